"""spmv_csr: a sparse matrix times a vector; irregular reads and rows of unequal length."""

from msbench.operators import sparse
from msbench.spec import Array, Dim, Operator, Split


def reference(xp, values, col_indices, row_offsets, x, rows, cols, nnz):
    return sparse.product(xp, sparse.from_csr(xp, values, col_indices, row_offsets), x, rows)


def bound(xp, u, out, values, col_indices, row_offsets, x, rows, cols, nnz):
    entries = sparse.from_csr(xp, values, col_indices, row_offsets)
    return sparse.product_bound(xp, u, out["y"], entries, x, rows)


def inputs(rng, distribution, rows, cols, nnz):
    return {
        **sparse.draw_csr(rng, distribution, rows, cols, nnz),
        "x": sparse.draw_dense(rng, "x", (cols,), distribution),
    }


def one_percent(rows, cols, split, distribution="uniform"):
    return sparse.case(split, distribution, rows=rows, cols=cols, nnz=sparse.one_percent(rows, cols, rows))


OPERATOR = Operator(
    name="spmv_csr",
    title="Sparse matrix times vector (CSR)",
    scenario="Sparse",
    definition="yᵢ = Σₖ valuesₖ·x[colₖ], k from offsetsᵢ to offsetsᵢ₊₁-1",
    dims=(
        Dim("rows", 1, 2**20, "rows of the matrix"),
        Dim("cols", 1, 2**20, "columns of the matrix"),
        Dim("nnz", 1, 2**26, "stored entries; columns within a row in any order, duplicates add up"),
    ),
    arrays=(
        Array("values", ("nnz",)),
        Array("col_indices", ("nnz",), "i32"),
        Array("row_offsets", ("rows + 1",), "i32"),
        Array("x", ("cols",)),
        Array("y", ("rows",), output=True),
    ),
    cases=(
        *(one_percent(2**k, 2048, Split.PAPER) for k in range(10, 16)),
        sparse.case(Split.LARGE, rows=2**19, cols=2**19, nnz=2**25),
        one_percent(10_007, 5_003, Split.ODD),
        one_percent(10_007, 5_003, Split.ODD, "skewed"),
        one_percent(2**15, 2048, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, nnz: nnz * (itemsize + 4) + (rows + 1) * 4 + (cols + rows) * itemsize,
    flops=lambda rows, cols, nnz: 2 * nnz,
    # Each entry reads an element of x in a random column: see sparse.gathered for how many sectors that moves.
    gathered=lambda itemsize, rows, cols, nnz: sparse.gathered(itemsize, cols, nnz),
    inputs=inputs,
    distributions=sparse.DISTRIBUTIONS,
    valid=lambda rows, cols, nnz: nnz <= rows * cols,
    bound_note=sparse.BOUND_NOTE,
    library_note=(
        "cuSPARSE's generic SpMV with the faster of its CSR algorithms; nothing is prepared for the matrix "
        "beforehand, as a launcher meets every matrix for the first time. In cusparse_prepared, cusparseSpMV_preprocess "
        "has analysed the sparsity pattern before the call, which is not timed."
    ),
    bytes_note="The naive kernel's threads read rows that lie apart, so that sectors leave L2 before their other entries are read.",
    flops_note="Lanes of a warp share a row and add up their sums, which are more additions than the definition's.",
    paper_name="spmv_csr",
)
