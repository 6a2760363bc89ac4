"""spmv_csr: a sparse matrix times a vector; irregular reads and rows of unequal length."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, values, col_indices, row_offsets, x, rows, cols, nnz):
    return sum_rows(xp, values * x[col_indices.astype("int64")], row_offsets, rows)


def bound(xp, u, out, values, col_indices, row_offsets, x, rows, cols, nnz):
    sizes = sum_rows(xp, xp.abs(values * x[col_indices.astype("int64")]), row_offsets, rows)
    lengths = row_offsets[1:] - row_offsets[:-1]
    return bounds.rounded(xp, u, out["y"], bounds.FP32_ROUNDOFF * bounds.growth(xp, lengths) * sizes)


def sum_rows(xp, terms, row_offsets, rows):
    """Σ of each row's terms, 0 for an empty row. One infinite term reaches its own row only."""
    row_of_term = xp.searchsorted(row_offsets.astype("int64"), xp.arange(terms.size), side="right") - 1
    return xp.bincount(row_of_term, weights=terms, minlength=rows)


def inputs(rng, distribution, rows, cols, nnz):
    skewed = distribution == "skewed"
    drawn = "uniform" if skewed else distribution
    row, col = skewed_entries(rng, rows, cols, nnz) if skewed else uniform_entries(rng, rows, cols, nnz)
    row_offsets = rng.xp.zeros(rows + 1, dtype="int32")
    row_offsets[1:] = rng.xp.cumsum(rng.xp.bincount(row, minlength=rows))
    return {
        "values": rng.floats("values", (nnz,), drawn),
        "col_indices": col,
        "row_offsets": row_offsets,
        "x": rng.floats("x", (cols,), drawn),
    }


def uniform_entries(rng, rows, cols, nnz):
    return rng.integers("rows", (nnz,), 0, rows), rng.integers("columns", (nnz,), 0, cols)


def skewed_entries(rng, rows, cols, nnz):
    """Row lengths fall like rank^(-3/4), every seventh row is empty, and row 0 is full if half of nnz suffices."""
    row = (rng.uniform("rows", (nnz,)).astype("float64") ** 4 * rows).astype("int32")
    row = row - (row % 7 == 3)
    col = rng.integers("columns", (nnz,), 0, cols)
    if cols <= nnz // 2:
        # Entries are stored by rows: the first `cols` of them are row 0's, which has at least that many.
        row[:cols] = 0
        col[:cols] = rng.xp.arange(cols, dtype="int32")
    return row, col


def case(rows, cols, nnz, split, distribution="uniform"):
    return Case((("rows", rows), ("cols", cols), ("nnz", nnz)), split, distribution)


def one_percent(rows, cols, split, distribution="uniform"):
    return case(rows, cols, max(rows * cols // 100, rows), split, distribution)


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
        case(2**19, 2**19, 2**25, Split.LARGE),
        one_percent(10_007, 5_003, Split.ODD),
        one_percent(10_007, 5_003, Split.ODD, "skewed"),
        one_percent(2**15, 2048, Split.ODD, "skewed"),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, rows, cols, nnz: nnz * (itemsize + 4) + (rows + 1) * 4 + (cols + rows) * itemsize,
    flops=lambda rows, cols, nnz: 2 * nnz,
    inputs=inputs,
    distributions=(
        "uniform",
        "skewed",
        "integers",
        "spiked",
        "constant",
        "zeros",
        "tiny",
        "large",
        "sorted",
        "nonfinite",
    ),
    valid=lambda rows, cols, nnz: nnz <= rows * cols,
    bound_note=(
        "A row of n products, added in fp32 in any order, errs by min(n', 8√n')·2⁻²⁴·Σ|terms|, n' = min(n, 4096) "
        "(Higham 2002, equation 4.4; Higham and Mary 2019, theorem 3.1). Rows without entries are zero."
    ),
    library_note=(
        "cuSPARSE's generic SpMV with the faster of its CSR algorithms; nothing is prepared for the matrix "
        "beforehand, as a launcher meets every matrix for the first time."
    ),
    paper_name="spmv_csr",
)
