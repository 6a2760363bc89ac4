"""spmm_csc: a sparse matrix times a dense one, from its columns: sums are scattered."""

from msbench.operators import sparse
from msbench.spec import Array, Dim, Operator, Split


def reference(xp, values, row_indices, col_offsets, X, rows, cols, nnz, K):
    return sparse.product(xp, sparse.from_csc(xp, values, row_indices, col_offsets), X, rows)


def bound(xp, u, out, values, row_indices, col_offsets, X, rows, cols, nnz, K):
    return sparse.product_bound(xp, u, out["Y"], sparse.from_csc(xp, values, row_indices, col_offsets), X, rows)


def inputs(rng, distribution, rows, cols, nnz, K):
    return {
        **sparse.draw_csc(rng, distribution, rows, cols, nnz),
        "X": sparse.draw_dense(rng, "X", (cols, K), distribution),
    }


def one_percent(rows, cols, K, split, distribution="uniform"):
    nnz = sparse.one_percent(rows, cols, cols)
    return sparse.case(split, distribution, rows=rows, cols=cols, nnz=nnz, K=K)


OPERATOR = Operator(
    name="spmm_csc",
    title="Sparse matrix times dense matrix (CSC)",
    scenario="Sparse",
    definition="Yᵢⱼ = Σₘ Σₖ valuesₖ·Xₘⱼ, k from offsetsₘ to offsetsₘ₊₁-1 where rowₖ = i; 0 for a row without entries",
    dims=(
        Dim("rows", 1, 2**18, "rows of the matrix and of Y"),
        Dim("cols", 1, 2**18, "columns of the matrix, rows of X"),
        Dim("nnz", 1, 2**24, "stored entries; rows within a column in any order, duplicates add up"),
        Dim("K", 1, 2**12, "columns of X and Y"),
    ),
    arrays=(
        Array("values", ("nnz",)),
        Array("row_indices", ("nnz",), "i32"),
        Array("col_offsets", ("cols + 1",), "i32"),
        Array("X", ("cols", "K")),
        Array("Y", ("rows", "K"), output=True),
    ),
    cases=(
        *(one_percent(2048, 2**k, 4096, Split.PAPER) for k in range(10, 15)),
        sparse.case(Split.LARGE, rows=2**17, cols=2**17, nnz=2**22, K=128),
        one_percent(1501, 1003, 77, Split.ODD),
        one_percent(1501, 1003, 77, Split.ODD, "skewed"),
        one_percent(1501, 1003, 77, Split.ODD, "duplicates"),
        one_percent(2048, 2**14, 512, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, nnz, K: nnz * (itemsize + 4) + (cols + 1) * 4 + (cols + rows) * K * itemsize,
    flops=lambda rows, cols, nnz, K: 2 * nnz * K,
    inputs=inputs,
    distributions=sparse.ALL_DISTRIBUTIONS,
    valid=lambda rows, cols, nnz, K: sparse.sensible(rows, cols, nnz),
    bound_note=sparse.BOUND_NOTE,
    library_note=(
        "cuSPARSE's generic SpMM: the fastest of its algorithms on CSC as it is, and on CSR after a sort by row "
        "(cub::DeviceRadixSort), which is part of the call. Its sums are fp32, and in bf16 a pass of its own rounds "
        "them, as some algorithms may add parts of a row atomically; nothing is prepared or kept for a matrix, as a "
        "launcher meets every one for the first time."
    ),
    bytes_note=(
        "Entries of a column go to different rows of Y: cuSPARSE adds each product to Y in memory, which is larger "
        "than L2. The spec counts X and Y once."
    ),
    flops_note="cuSPARSE's kernel for this layout takes two operations where the definition has one.",
    paper_name="spmm_csc",
)
