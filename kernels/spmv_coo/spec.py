"""spmv_coo: a sparse matrix times a vector, from entries in no order: rows have to be collected."""

from msbench.operators import sparse
from msbench.spec import Array, Dim, Operator, Split


def reference(xp, values, row_indices, col_indices, x, rows, cols, nnz):
    return sparse.product(xp, sparse.from_coo(values, row_indices, col_indices), x, rows)


def bound(xp, u, out, values, row_indices, col_indices, x, rows, cols, nnz):
    return sparse.product_bound(xp, u, out["y"], sparse.from_coo(values, row_indices, col_indices), x, rows)


def inputs(rng, distribution, rows, cols, nnz):
    return {
        **sparse.draw_coo(rng, distribution, rows, cols, nnz),
        "x": sparse.draw_dense(rng, "x", (cols,), distribution),
    }


def one_percent(rows, cols, split, distribution="uniform"):
    nnz = sparse.one_percent(rows, cols, rows)
    return sparse.case(split, distribution, rows=rows, cols=cols, nnz=nnz)


OPERATOR = Operator(
    name="spmv_coo",
    title="Sparse matrix times vector (COO)",
    scenario="Sparse",
    definition="y[rowₖ] = Σₖ valuesₖ·x[colₖ] over all entries k of that row; 0 for a row without entries",
    dims=(
        Dim("rows", 1, 2**20, "rows of the matrix"),
        Dim("cols", 1, 2**20, "columns of the matrix"),
        Dim("nnz", 1, 2**26, "stored entries, in any order; duplicates add up"),
    ),
    arrays=(
        Array("values", ("nnz",)),
        Array("row_indices", ("nnz",), "i32"),
        Array("col_indices", ("nnz",), "i32"),
        Array("x", ("cols",)),
        Array("y", ("rows",), output=True),
    ),
    cases=(
        *(one_percent(2**k, 2048, Split.PAPER) for k in range(10, 16)),
        sparse.case(Split.LARGE, rows=2**19, cols=2**19, nnz=2**25),
        one_percent(10_007, 5_003, Split.ODD),
        one_percent(10_007, 5_003, Split.ODD, "skewed"),
        one_percent(10_007, 5_003, Split.ODD, "duplicates"),
        one_percent(2**15, 2048, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, nnz: nnz * (itemsize + 8) + (cols + rows) * itemsize,
    flops=lambda rows, cols, nnz: 2 * nnz,
    # Each entry reads an element of x in a random column: see sparse.gathered for how many sectors that moves.
    gathered=lambda itemsize, rows, cols, nnz: sparse.gathered(itemsize, cols, nnz),
    inputs=inputs,
    distributions=sparse.ALL_DISTRIBUTIONS,
    valid=sparse.sensible,
    bound_note=sparse.BOUND_NOTE,
    library_note=(
        "cuSPARSE's generic SpMV. It wants COO sorted by row, so the sort (cub::DeviceRadixSort) is part of the call; "
        "then the fastest of its COO algorithms, and of its CSR algorithms after cusparseXcoo2csr. The bar of spmv_csr "
        "at the same sizes is what is left without the sort; nothing is prepared or kept for a matrix, as a launcher "
        "meets every one for the first time."
    ),
    flops_note="The naive kernel adds by atomics, which are no additions to a profiler.",
    paper_name="spmv_coo",
)
