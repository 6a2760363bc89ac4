"""spmv_csc: a sparse matrix times a vector, from its columns: reads are in order and sums are scattered."""

from msbench.operators import sparse
from msbench.spec import Array, Dim, Operator, Split


def reference(xp, values, row_indices, col_offsets, x, rows, cols, nnz):
    return sparse.product(xp, sparse.from_csc(xp, values, row_indices, col_offsets), x, rows)


def bound(xp, u, out, values, row_indices, col_offsets, x, rows, cols, nnz):
    return sparse.product_bound(xp, u, out["y"], sparse.from_csc(xp, values, row_indices, col_offsets), x, rows)


def inputs(rng, distribution, rows, cols, nnz):
    return {
        **sparse.draw_csc(rng, distribution, rows, cols, nnz),
        "x": sparse.draw_dense(rng, "x", (cols,), distribution),
    }


def one_percent(rows, cols, split, distribution="uniform"):
    nnz = sparse.one_percent(rows, cols, cols)
    return sparse.case(split, distribution, rows=rows, cols=cols, nnz=nnz)


OPERATOR = Operator(
    name="spmv_csc",
    title="Sparse matrix times vector (CSC)",
    scenario="Sparse",
    definition="yᵢ = Σⱼ Σₖ valuesₖ·xⱼ, k from offsetsⱼ to offsetsⱼ₊₁-1 where rowₖ = i; 0 for a row without entries",
    dims=(
        Dim("rows", 1, 2**20, "rows of the matrix"),
        Dim("cols", 1, 2**20, "columns of the matrix"),
        Dim("nnz", 1, 2**26, "stored entries; rows within a column in any order, duplicates add up"),
    ),
    arrays=(
        Array("values", ("nnz",)),
        Array("row_indices", ("nnz",), "i32"),
        Array("col_offsets", ("cols + 1",), "i32"),
        Array("x", ("cols",)),
        Array("y", ("rows",), output=True),
    ),
    cases=(
        *(one_percent(2048, 2**k, Split.PAPER) for k in range(10, 16)),
        sparse.case(Split.LARGE, rows=2**19, cols=2**19, nnz=2**25),
        one_percent(5_003, 10_007, Split.ODD),
        one_percent(5_003, 10_007, Split.ODD, "skewed"),
        one_percent(5_003, 10_007, Split.ODD, "duplicates"),
        one_percent(2048, 2**15, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, nnz: nnz * (itemsize + 4) + (cols + 1) * 4 + (cols + rows) * itemsize,
    flops=lambda rows, cols, nnz: 2 * nnz,
    inputs=inputs,
    distributions=sparse.ALL_DISTRIBUTIONS,
    valid=sparse.sensible,
    bound_note=sparse.BOUND_NOTE,
    library_note=(
        "cuSPARSE's generic SpMV: the fastest of its algorithms on CSC as it is, with fp32 sums, and on CSR after a "
        "sort by row (cub::DeviceRadixSort), which is part of the call; nothing is prepared or kept for a matrix, as a "
        "launcher meets every one for the first time."
    ),
    bytes_note=(
        "The naive kernel's threads read columns that lie apart, so that sectors leave L2 before their other entries are read."
    ),
    flops_note="The naive kernel adds by atomics, which are no additions to a profiler.",
    paper_name="spmv_csc",
)
