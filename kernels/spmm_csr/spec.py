"""spmm_csr: a sparse matrix times a dense one; rows of X are read again and again."""

from msbench.operators import sparse
from msbench.spec import Array, Dim, Operator, Split


def reference(xp, values, col_indices, row_offsets, X, rows, cols, nnz, K):
    return sparse.product(xp, sparse.from_csr(xp, values, col_indices, row_offsets), X, rows)


def bound(xp, u, out, values, col_indices, row_offsets, X, rows, cols, nnz, K):
    return sparse.product_bound(xp, u, out["Y"], sparse.from_csr(xp, values, col_indices, row_offsets), X, rows)


def inputs(rng, distribution, rows, cols, nnz, K):
    return {
        **sparse.draw_csr(rng, distribution, rows, cols, nnz),
        "X": sparse.draw_dense(rng, "X", (cols, K), distribution),
    }


def one_percent(rows, cols, K, split, distribution="uniform"):
    nnz = sparse.one_percent(rows, cols, rows)
    return sparse.case(split, distribution, rows=rows, cols=cols, nnz=nnz, K=K)


OPERATOR = Operator(
    name="spmm_csr",
    title="Sparse matrix times dense matrix (CSR)",
    scenario="Sparse",
    definition="Yᵢⱼ = Σₖ valuesₖ·X[colₖ, j], k from offsetsᵢ to offsetsᵢ₊₁-1; 0 for a row without entries",
    dims=(
        Dim("rows", 1, 2**18, "rows of the matrix and of Y"),
        Dim("cols", 1, 2**18, "columns of the matrix, rows of X"),
        Dim("nnz", 1, 2**24, "stored entries; columns within a row in any order, duplicates add up"),
        Dim("K", 1, 2**12, "columns of X and Y"),
    ),
    arrays=(
        Array("values", ("nnz",)),
        Array("col_indices", ("nnz",), "i32"),
        Array("row_offsets", ("rows + 1",), "i32"),
        Array("X", ("cols", "K")),
        Array("Y", ("rows", "K"), output=True),
    ),
    cases=(
        *(one_percent(2**k, 2048, 4096, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        sparse.case(Split.LARGE, rows=2**17, cols=2**17, nnz=2**22, K=128),
        one_percent(1003, 1501, 77, Split.ODD),
        one_percent(1003, 1501, 77, Split.ODD, "skewed"),
        one_percent(1003, 1501, 77, Split.ODD, "duplicates"),
        one_percent(2**14, 2048, 512, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, nnz, K: nnz * (itemsize + 4) + (rows + 1) * 4 + (cols + rows) * K * itemsize,
    flops=lambda rows, cols, nnz, K: 2 * nnz * K,
    inputs=inputs,
    distributions=sparse.ALL_DISTRIBUTIONS,
    valid=lambda rows, cols, nnz, K: sparse.sensible(rows, cols, nnz),
    bound_note=sparse.BOUND_NOTE,
    library_note=(
        "cuSPARSE's generic SpMM with the fastest of its CSR algorithms, on row-major X and Y. Its sums are fp32, and "
        "in bf16 a pass of its own rounds them, as some algorithms may add parts of a row atomically; nothing is prepared "
        "or kept for a matrix, as a launcher meets every one for the first time. In cusparse_prepared, "
        "cusparseSpMM_preprocess has analysed the sparsity pattern before the call, which is not timed; the third algorithm "
        "is left out there, which crashes after it (CUDA 13.0)."
    ),
    bytes_note=(
        "Each entry needs a row of X, and X is larger than L2: rows are read from memory many times. The spec "
        "counts X once."
    ),
    paper_name="spmm_csr",
)
