"""spmm_ell: a sparse matrix times a dense one, from rows padded to one width."""

from msbench.operators import sparse
from msbench.spec import Array, Dim, Operator, Split


def reference(xp, values, col_ids, X, rows, cols, w, K):
    return sparse.product(xp, sparse.from_ell(xp, values, col_ids), X, rows)


def bound(xp, u, out, values, col_ids, X, rows, cols, w, K):
    return sparse.product_bound(xp, u, out["Y"], sparse.from_ell(xp, values, col_ids), X, rows)


def inputs(rng, distribution, rows, cols, w, K):
    return {
        **sparse.draw_ell(rng, distribution, rows, cols, w),
        "X": sparse.draw_dense(rng, "X", (cols, K), distribution),
    }


def one_percent(rows, cols, K, split, distribution="uniform"):
    return sparse.case(split, distribution, rows=rows, cols=cols, w=sparse.ell_width(cols), K=K)


OPERATOR = Operator(
    name="spmm_ell",
    title="Sparse matrix times dense matrix (ELL)",
    scenario="Sparse",
    definition="Yᵢⱼ = Σₖ valuesᵢₖ·X[colᵢₖ, j] over all k < w with colᵢₖ ≥ 0; 0 for a row of padding",
    dims=(
        Dim("rows", 1, 2**18, "rows of the matrix and of Y"),
        Dim("cols", 1, 2**18, "columns of the matrix, rows of X"),
        Dim("w", 1, 2**14, "stored elements a row, of which column -1 is padding and comes last; duplicates add up"),
        Dim("K", 1, 2**12, "columns of X and Y"),
    ),
    arrays=(
        Array("values", ("rows", "w")),
        Array("col_ids", ("rows", "w"), "i32"),
        Array("X", ("cols", "K")),
        Array("Y", ("rows", "K"), output=True),
    ),
    cases=(
        *(one_percent(2048, 2**k, 4096, Split.PAPER) for k in range(10, 15)),
        sparse.case(Split.LARGE, rows=2**17, cols=2**17, w=32, K=128),
        one_percent(1501, 1003, 77, Split.ODD),
        one_percent(1501, 1003, 77, Split.ODD, "skewed"),
        one_percent(1501, 1003, 77, Split.ODD, "duplicates"),
        one_percent(2048, 2**14, 512, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, w, K: rows * w * (itemsize + 4) + (cols + rows) * K * itemsize,
    flops=lambda rows, cols, w, K: 2 * rows * w * K,
    inputs=inputs,
    distributions=sparse.ALL_DISTRIBUTIONS,
    valid=lambda rows, cols, w, K: rows * w <= 2**24 and sparse.sensible(rows, cols, rows * w),
    bound_note=sparse.BOUND_NOTE,
    library_note=(
        "cuSPARSE's generic SpMM with the fastest of its CSR algorithms. Each call turns the matrix into CSR first, "
        "padding becoming entries of an added row of zeros in a copy of X. Its sums are fp32, and in bf16 a pass of its "
        "own rounds them, as some algorithms may add parts of a row atomically; nothing is prepared or kept for a matrix, "
        "as a launcher meets every one for the first time."
    ),
    bytes_note=(
        "Each entry needs a row of X, and X is larger than L2: rows are read from memory many times. The spec "
        "counts X once."
    ),
    flops_note="Padding takes no operations, and the spec counts it.",
    paper_name="spmm_ell",
)
