"""Shared by the sparse operators: matrices in four formats, the reference, its bound, and random matrices.

A format is turned into a list of entries (row, column, value), on which a product A·x or A·X is computed in float64 in
whatever order the entries have. Duplicate coordinates add up. Arrays are NumPy's or CuPy's; ``xp`` is their module.

Matrices are drawn by format, so that no kernel can rely on more than the format promises: entries of a compressed line
in any order, COO in any order at all, ELL with its padding at the end of a row. The distributions beyond the standard
ones, whose numbers are uniform:

``skewed``: row lengths fall like a power law, every seventh row is empty, and row 0 is full where nnz allows it; up to
``LONGEST_ROW`` entries, it has half of all of them.
``duplicates``: entries come in fours with the same coordinates, as far as lines are long enough.

In ``sorted`` ones the entries of a line are consecutive, but for three of all of them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from msbench import bounds
from msbench.arrays import every
from msbench.operators import patchwork
from msbench.spec import Case, Split

DISTRIBUTIONS = ("uniform", "skewed", "spiked", "constant", "sorted", "nonfinite", *patchwork.NAMES)
"""What ``spmv_csr`` is tried on."""
ALL_DISTRIBUTIONS = (*DISTRIBUTIONS, "duplicates")
"""What the other sparse operators are tried on."""

BOUND_NOTE = (
    "A row of n products, added in fp32 in any order, errs by min(n', 8√n')·2⁻²⁴·Σ|terms|, n' = min(n, 4096), or "
    "by n'·2⁻²⁴·Σ|terms| where values are sorted or all alike, so that terms round alike "
    "(Higham 2002, equation 4.4; Higham and Mary 2019, theorem 3.1), and by 2⁻¹²⁶ a product, since atomic additions in global "
    "memory flush subnormal sums to zero (PTX ISA, atom.add.f32). Rows without entries are zero."
)

LONGEST_MEAN = 2**15
"""Entries a row in the mean, at most: products of the ``constant`` distribution are at most 4 and multiples of 1/64, so
that fp32 still adds this many of them exactly, where longer sums of equal terms round the same way each time."""

LONGEST_ROW = 2**22
"""Up to so many entries half of them may be in one row: a plain kernel has one thread for that."""

SELDOM = 256
"""In patches one element of a vector in so many is infinite."""

SECTOR = 32
"""Bytes that move between L2 and a multiprocessor at least, however few of them are wanted (CUDA C++ Programming Guide)."""

ON_CHIP = 2**18
"""Bytes of a multiprocessor's L1 cache and shared memory together, at most: 256 KiB on Hopper (tuning guide, 1.4.2)."""

MULTIPROCESSORS = 256
"""No device has more: of so many each works on nnz/256 entries at least, if they share them evenly."""

_MOVED = 3
_SLAB = 2**25  # float64 products that exist at a time: 256 MiB, and as much again for each temporary


class Entries(NamedTuple):
    """A matrix as a list: ``rows`` and ``cols`` are [nnz] integers, ``values`` [nnz] float64."""

    rows: Any
    cols: Any
    values: Any


# ------------------------------------------------------------------ work


def gathered(itemsize: int, cols: int, nnz: int) -> int:
    """Bytes of sectors of x [cols] that a product with ``nnz`` entries in random columns moves from L2, at least.

    x has S = cols·itemsize/32 sectors. Take any n entries that a multiprocessor works on one after the other. Their columns are
    independent, so they touch D(n) = S(1 - (1 - 1/S)ⁿ) different sectors in the mean. Of these at most M = 256 KiB/32 are
    there when it begins, whatever was kept and with whatever foresight; the others have to come: D(n) - M. (The argument of
    Hong and Kung 1981, "I/O complexity: the red-blue pebble game".) So of entries that are cut into runs of n each costs
    (D(n) - M)/n sectors, and the run length that gives the most counts. A vector that fits (S ≤ M) costs nothing here.
    Registers do not count: they can't be indexed by what is read.

    What comes out of another multiprocessor's shared memory counts as if it came from L2. A kernel that sorts the entries by
    column first may gather less, and moves every entry twice for that. Products with a dense matrix have no such bound: a
    kernel can keep a few columns of X on chip and read the entries again.
    """
    sectors, kept = cols * itemsize / SECTOR, ON_CHIP / SECTOR
    most = nnz / MULTIPROCESSORS
    runs = [most / number for number in range(1, 65)]
    share = max((sectors * -math.expm1(-n / sectors) - kept) / n for n in runs)
    return max(0, int(nnz * share * SECTOR))


# ------------------------------------------------------------------ formats


def from_csr(xp: Any, values: Any, col_indices: Any, row_offsets: Any) -> Entries:
    """The entries of a CSR matrix: ``values`` and ``col_indices`` [nnz], ``row_offsets`` [rows + 1]."""
    return Entries(_lines(xp, row_offsets, values.size), col_indices.astype("int64"), values)


def from_csc(xp: Any, values: Any, row_indices: Any, col_offsets: Any) -> Entries:
    """The entries of a CSC matrix: ``values`` and ``row_indices`` [nnz], ``col_offsets`` [cols + 1]."""
    return Entries(row_indices.astype("int64"), _lines(xp, col_offsets, values.size), values)


def from_coo(values: Any, row_indices: Any, col_indices: Any) -> Entries:
    """The entries of a COO matrix: three arrays [nnz]."""
    return Entries(row_indices.astype("int64"), col_indices.astype("int64"), values)


def from_ell(xp: Any, values: Any, col_ids: Any) -> Entries:
    """The entries of an ELL matrix: ``values`` and ``col_ids`` [rows, w]; a negative column is padding, whatever its value."""
    filled = xp.flatnonzero(col_ids.ravel() >= 0)
    return Entries(filled // col_ids.shape[1], col_ids.ravel()[filled].astype("int64"), values.ravel()[filled])


def _lines(xp: Any, offsets: Any, count: int) -> Any:
    """The line of each of ``count`` entries, [count], in a compressed format with these offsets, [lines + 1]."""
    return xp.searchsorted(offsets.astype("int64"), xp.arange(count), side="right") - 1


# ------------------------------------------------------------------ reference and bound


def product(xp: Any, entries: Entries, dense: Any, rows: int) -> Any:
    """A·x, [rows], for ``dense`` [cols], or A·X, [rows, K], for ``dense`` [cols, K]; float64.

    A NaN or an infinity reaches only the rows that have an entry for it.
    """
    if dense.ndim == 1:
        return _sum_rows(xp, entries.rows, entries.values * dense[entries.cols], rows)
    return _multiplied(xp, entries, dense, rows)


def product_bound(xp: Any, u: float, exact: Any, entries: Entries, dense: Any, rows: int) -> Any:
    """The largest acceptable error of each element of ``exact``, which is ``product`` of the same arguments."""
    lengths = _lengths(xp, entries.rows, rows)
    values = float(bounds.alike(xp, entries.values))  # of random ones 0: then nothing else has to be looked at

    def growth(columns: Any) -> Any:
        likeness = values * bounds.alike(xp, columns[entries.cols]) if values else 0.0
        terms = lengths if columns.ndim == 1 else lengths[:, None]
        return bounds.FP32_ROUNDOFF * bounds.growth(xp, terms, likeness)

    flushed = bounds.FLOOR * lengths
    sizes = Entries(entries.rows, entries.cols, xp.abs(entries.values))
    if dense.ndim == 1:
        return bounds.rounded(xp, u, exact, growth(dense) * product(xp, sizes, xp.abs(dense), rows) + flushed)
    limit = _multiplied(xp, sizes, xp.abs(dense), rows)
    for part in _slabs(entries, *exact.shape):
        error = growth(dense[:, part]) * limit[:, part] + flushed[:, None]
        limit[:, part] = bounds.rounded(xp, u, exact[:, part], error)
    return limit


def _sum_rows(xp: Any, rows: Any, terms: Any, count: int) -> Any:
    """Σ of each row's terms, [count]: 0 for a row without any. CuPy's ``bincount`` looks at all numbers twice more, and compiles for that."""
    if xp is np:
        return np.bincount(rows, weights=terms, minlength=count).astype("float64", copy=False)
    sums = xp.zeros(count)
    xp.add.at(sums, rows, terms)
    return sums


def _lengths(xp: Any, rows: Any, count: int) -> Any:
    """How many entries each row has, [count]."""
    if xp is np:
        return np.bincount(rows, minlength=count)
    return _sum_rows(xp, rows, xp.ones(rows.shape), count).astype("int64")


def _slabs(entries: Entries, rows: int, width: int) -> Iterator[slice]:
    """Ranges of the ``width`` columns of a [rows, width] product, with about _SLAB products or results in each."""
    step = max(1, _SLAB // max(rows, entries.values.size, 1))
    return (slice(start, min(start + step, width)) for start in range(0, width, step))


def _multiplied(xp: Any, entries: Entries, dense: Any, rows: int) -> Any:
    """A·X, [rows, K], by SciPy's or cuSPARSE's product of a CSR matrix; where an infinity must stay in its place, term by term.

    With infinities in patches, some results of cuSPARSE's were finite or not where those of single terms are the opposite (H200).
    """
    if not (every(xp.isfinite(entries.values), xp) and every(xp.isfinite(dense), xp)):
        result = xp.empty((rows, dense.shape[1]))
        for part in _slabs(entries, *result.shape):
            result[:, part] = _sum_slab(xp, entries, dense[:, part], rows)
        return result
    order = xp.argsort(entries.rows)
    ends = xp.cumsum(_lengths(xp, entries.rows, rows))
    offsets = xp.concatenate([xp.zeros(1, "int32"), ends.astype("int32")])
    columns = entries.cols[order].astype("int32")
    sparse = importlib.import_module("scipy.sparse" if xp is np else "cupyx.scipy.sparse")
    matrix = sparse.csr_matrix((entries.values[order], columns, offsets), shape=(rows, dense.shape[0]))
    matrix.has_canonical_format = True  # or CuPy copies it to add duplicates up first
    return xp.ascontiguousarray(matrix @ dense)


def _sum_slab(xp: Any, entries: Entries, dense: Any, rows: int) -> Any:
    """A·X for a few columns of X, [cols, width]: all products at once, added up by their place in the result."""
    width = dense.shape[1]
    terms = dense[entries.cols]
    terms *= entries.values[:, None]
    places = entries.rows[:, None] * width + xp.arange(width)
    return _sum_rows(xp, places.ravel(), terms.ravel(), rows * width).reshape(rows, width)


# ------------------------------------------------------------------ drawing


def numbers(distribution: str) -> str:
    """The standard distribution of a matrix's values, and of the dense operand, for one of ``ALL_DISTRIBUTIONS``."""
    return "uniform" if distribution in ("skewed", "duplicates") else distribution


def draw_csr(rng: Any, distribution: str, rows: int, cols: int, nnz: int) -> dict[str, Any]:
    """``values`` and ``col_indices`` [nnz], ``row_offsets`` [rows + 1]. ``rng`` is a ``msbench.harness.inputs.Draw``."""
    row, col = _entries(rng, distribution, rows, cols, nnz)
    if distribution == "skewed" and _can_be_full(cols, nnz):
        # Entries are stored by rows: so many of them are row 0's, which has at least that many.
        longest = _longest(cols, nnz)
        row[:longest] = 0
        col[:longest] = rng.xp.arange(longest, dtype="int32") % cols
    if distribution == "duplicates":
        col = col[rng.xp.arange(nnz) // 4]
    if distribution == "sorted":
        col = _band(rng, rng.xp.sort(row), rows, cols)
    return {
        "values": _values(rng, (nnz,), distribution),
        "col_indices": col,
        "row_offsets": _offsets(rng.xp, row, rows),
    }


def draw_csc(rng: Any, distribution: str, rows: int, cols: int, nnz: int) -> dict[str, Any]:
    """``values`` and ``row_indices`` [nnz], ``col_offsets`` [cols + 1]. Skewed matrices have skewed columns as well."""
    row, col = _entries(rng, distribution, rows, cols, nnz)
    full = distribution == "skewed" and _can_be_full(cols, nnz)
    if distribution == "skewed":
        col = _power_law(rng, "columns", cols, nnz)
    if full:
        col[:cols] = rng.xp.arange(cols, dtype="int32")
    if distribution == "duplicates":
        row = row[rng.xp.arange(nnz) // 4]
    offsets = _offsets(rng.xp, col, cols)
    if full:
        row[offsets[:-1]] = 0
    if distribution == "sorted":
        row = _band(rng, rng.xp.sort(col), cols, rows)
    return {"values": _scattered_values(rng, nnz, rows, distribution), "row_indices": row, "col_offsets": offsets}


def draw_coo(rng: Any, distribution: str, rows: int, cols: int, nnz: int) -> dict[str, Any]:
    """``values``, ``row_indices`` and ``col_indices`` [nnz], in no order; ``sorted``, in order by row but for two entries, or in runs that are."""
    xp = rng.xp
    row, col = _entries(rng, distribution, rows, cols, nnz)
    if distribution == "skewed" and _can_be_full(cols, nnz):
        # Every second entry, so that row 0 does not come in one piece.
        longest = _longest(cols, nnz)
        row[: 2 * longest : 2] = 0
        col[: 2 * longest : 2] = xp.arange(longest, dtype="int32") % cols
    if distribution == "duplicates":
        same = xp.arange(nnz) % -(-nnz // 4)  # duplicates lie far apart
        row, col = row[same], col[same]
    if distribution == "sorted":
        row = xp.sort(row)
        col = _band(rng, row, rows, cols)
        if rng.position("in runs", 4):
            place, places = patchwork.in_runs(rng, "runs", nnz)
            row, col = (of[place * nnz // places] for of in (row, col))
        else:
            pair = [rng.position(f"swapped {which}", nnz) for which in range(2)]
            row[pair] = row[pair[::-1]]
    return {"values": _scattered_values(rng, nnz, rows, distribution), "row_indices": row, "col_indices": col}


def draw_ell(rng: Any, distribution: str, rows: int, cols: int, w: int) -> dict[str, Any]:
    """``values`` and ``col_ids`` [rows, w]. Padding comes last in a row, and its values are numbers like any other.

    One row in eight has padding, from a single element to the whole row. Skewed matrices have padding in nearly every
    row, and in the whole of every seventh; row 0 has none, and no column twice where it need not.
    """
    xp = rng.xp
    place = xp.arange(w, dtype="int32")
    line = xp.arange(rows)
    if distribution == "skewed":
        length = (rng.uniform("lengths", (rows,)).astype("float64") ** 4 * (w + 1)).astype("int32")
        length[line % 7 == 3] = 0
        length[0] = w
    else:
        length = xp.where(line % 8 == 5, rng.integers("lengths", (rows,), 0, w), w)
    col = rng.integers("columns", (rows, w), 0, cols)
    if distribution == "skewed":
        col[0] = place % cols
    if distribution == "duplicates":
        col = col[:, place // 4]
    if distribution == "sorted":
        col = _band(rng, xp.repeat(line, w), rows, cols).reshape(rows, w)
    filled = place[None, :] < length[:, None]
    return {
        "values": _values(rng, (rows, w), distribution),
        "col_ids": xp.where(filled, col, -1).astype("int32"),
    }


def _entries(rng: Any, distribution: str, rows: int, cols: int, nnz: int) -> tuple[Any, Any]:
    """Row and column of each entry, [nnz] int32, drawn independently; the rows of skewed matrices by a power law."""
    if distribution == "skewed":
        row = _power_law(rng, "rows", rows, nnz)
        row = row - (row % 7 == 3)
    else:
        row = rng.integers("rows", (nnz,), 0, rows)
    return row, rng.integers("columns", (nnz,), 0, cols)


def _band(rng: Any, line: Any, lines: int, width: int) -> Any:
    """Consecutive places, [nnz] int32, for entries that lie in these ascending lines, [nnz]; three of them are moved anywhere."""
    xp = rng.xp
    start = rng.integers("band", (lines,), 0, width) - _offsets(xp, line, lines)[:-1]
    place = (xp.arange(line.size) + start[line]) % width
    for number in range(_MOVED):
        place[rng.position(f"moved {number}", line.size)] = rng.position(f"moved to {number}", width)
    return place.astype("int32")


def _power_law(rng: Any, name: str, lines: int, nnz: int) -> Any:
    """A line for each entry, [nnz] int32; how many a line gets falls like its number^(-3/4)."""
    return (rng.uniform(name, (nnz,)).astype("float64") ** 4 * lines).astype("int32")


def _can_be_full(cols: int, nnz: int) -> bool:
    """Whether half of the entries suffice for one full row."""
    return cols <= nnz // 2


def _longest(cols: int, nnz: int) -> int:
    """The entries of the longest row, in whose place there is room for ``cols``: half of all, unless that is more than one thread adds soon."""
    return max(cols, nnz // 2 if nnz <= LONGEST_ROW else 0)


def _offsets(xp: Any, line: Any, lines: int) -> Any:
    """The offsets, [lines + 1] int32, of a compressed format whose entries lie in these lines."""
    offsets = xp.zeros(lines + 1, dtype="int32")
    offsets[1:] = xp.cumsum(_lengths(xp, line, lines))
    return offsets


def draw_dense(rng: Any, name: str, shape: tuple[int, ...], distribution: str) -> Any:
    """The dense operand: a vector [cols], or a matrix [cols, K], each of whose columns is a patch.

    In patches a vector has infinities so seldom that most rows do without.
    """
    if len(shape) == 1:
        x = rng.floats(name, shape, numbers(distribution), kinds=patchwork.SMALL)
        if distribution in patchwork.OF_EVERY_KIND:
            x[rng.integers(f"{name} infinities", (-(-shape[0] // SELDOM),), 0, shape[0])] = rng.xp.inf
        return x
    return rng.floats(name, shape, numbers(distribution), axis=0, kinds=patchwork.TERMS)


def _values(rng: Any, shape: tuple[int, ...], distribution: str) -> Any:
    """Values by rows: in patches, what is not finite stays in few of them."""
    return rng.floats("values", shape, numbers(distribution), kinds=patchwork.TERMS)


def _scattered_values(rng: Any, nnz: int, rows: int, distribution: str) -> Any:
    """Values whose neighbours are in any rows: in patches some are infinite, of one row in 64 at most, where X may be zero."""
    values = rng.floats("values", (nnz,), numbers(distribution), kinds=patchwork.FINITE)
    if distribution in patchwork.OF_EVERY_KIND:
        values[rng.integers("infinities", (-(-min(nnz, rows) // 64),), 0, nnz)] = rng.xp.inf
    return values


# ------------------------------------------------------------------ cases


def case(split: Split, distribution: str = "uniform", **dims: int) -> Case:
    """A case; ``dims`` in the order in which the operator declares them."""
    return Case(tuple(dims.items()), split, distribution)


def one_percent(rows: int, cols: int, lines: int) -> int:
    """nnz: 1 % of a matrix, and at least one entry for each of the ``lines`` that a format stores."""
    return max(rows * cols // 100, lines)


def ell_width(cols: int) -> int:
    """w: 1 % of the columns, so that rows·w is 1 % of the matrix, padding included."""
    return max(1, cols // 100)


def sensible(rows: int, cols: int, nnz: int) -> bool:
    """Whether a held-out matrix is one to try: no more entries than places, and rows no longer than LONGEST_MEAN."""
    return nnz <= rows * min(cols, LONGEST_MEAN)
