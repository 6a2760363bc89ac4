"""spmv_ell: a sparse matrix times a vector, from rows padded to one width."""

from msbench.operators import sparse
from msbench.spec import Array, Dim, Operator, Split


def reference(xp, values, col_ids, x, rows, cols, w):
    return sparse.product(xp, sparse.from_ell(xp, values, col_ids), x, rows)


def bound(xp, u, out, values, col_ids, x, rows, cols, w):
    return sparse.product_bound(xp, u, out["y"], sparse.from_ell(xp, values, col_ids), x, rows)


def inputs(rng, distribution, rows, cols, w):
    return {
        **sparse.draw_ell(rng, distribution, rows, cols, w),
        "x": sparse.draw_dense(rng, "x", (cols,), distribution),
    }


def one_percent(rows, cols, split, distribution="uniform"):
    return sparse.case(split, distribution, rows=rows, cols=cols, w=sparse.ell_width(cols))


OPERATOR = Operator(
    name="spmv_ell",
    title="Sparse matrix times vector (ELL)",
    scenario="Sparse",
    definition="yᵢ = Σⱼ valuesᵢⱼ·x[colᵢⱼ] over all j < w with colᵢⱼ ≥ 0; 0 for a row of padding",
    dims=(
        Dim("rows", 1, 2**20, "rows of the matrix"),
        Dim("cols", 1, 2**20, "columns of the matrix"),
        Dim("w", 1, 2**14, "stored elements a row, of which column -1 is padding and comes last; duplicates add up"),
    ),
    arrays=(
        Array("values", ("rows", "w")),
        Array("col_ids", ("rows", "w"), "i32"),
        Array("x", ("cols",)),
        Array("y", ("rows",), output=True),
    ),
    cases=(
        *(one_percent(2048, 2**k, Split.PAPER) for k in range(10, 16)),
        sparse.case(Split.LARGE, rows=2**19, cols=2**19, w=64),
        one_percent(5_003, 10_007, Split.ODD),
        one_percent(5_003, 10_007, Split.ODD, "skewed"),
        one_percent(5_003, 10_007, Split.ODD, "duplicates"),
        one_percent(2048, 2**15, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, w: rows * w * (itemsize + 4) + (cols + rows) * itemsize,
    flops=lambda rows, cols, w: 2 * rows * w,
    # Each entry reads an element of x in a random column: see sparse.gathered for how many sectors that moves. One row in
    # eight is padded and not counted.
    gathered=lambda itemsize, rows, cols, w: sparse.gathered(itemsize, cols, rows * w * 7 // 8),
    inputs=inputs,
    distributions=sparse.ALL_DISTRIBUTIONS,
    valid=lambda rows, cols, w: rows * w <= 2**26 and sparse.sensible(rows, cols, rows * w),
    bound_note=sparse.BOUND_NOTE,
    library_note=(
        "cuSPARSE's generic SpMV on CSR, into which each call turns the matrix first, padding becoming entries of an added "
        "column of zeros. Sliced-ELL with slices of one row is this format as it is, but cuSPARSE multiplies its padding "
        "with the vector there, so that an infinity becomes NaN; nothing is prepared or kept for a matrix, as a launcher "
        "meets every one for the first time."
    ),
    bytes_note=(
        "With a thread for each row neighbouring threads read 4·w bytes apart, and the cache loses part of a line "
        "before the thread comes back for the rest."
    ),
    flops_note="Padding takes no operations, and the spec counts it.",
    paper_name="spmv_ell",
)
