"""triangle_attention: a causal, masked softmax for every channel of its own; exponentials decide, not matrix products."""

from functools import cache
from math import sqrt
from typing import Any, NamedTuple

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split

THRESHOLD = 0.5


BLOCK = 2**26
"""Elements of rows that are looked at together, up to ROWS: their partial sums end at the same keys."""
ROWS = 8

KEYS = ("uniform", "few", "zeros", "tiny")
DEEP = (320.0, 2.0**14, 2.0**17)
"""Some scores in patches are about minus one of these: exp of them is zero in fp32, and the last two are below what a kernel may
take for minus infinity."""
FAR = 1000.0
"""The exponential of minus this is zero in float64, and so are the weights."""
HUGE = 2.0**40
"""A score is taken for no larger than this: it makes no 0·∞ then."""


def block_rows(B, H, S, D):
    return max(1, min(ROWS, BLOCK // (B * H * S * D)))


def blocks(B, H, S, D):
    """Ranges of query rows, each with all its keys in one array."""
    step = block_rows(B, H, S, D)
    return (slice(start, min(start + step, S)) for start in range(0, S, step))


class Sums(NamedTuple):
    """For each element of the output, over the keys that count: sums [B,H,S,D], and the largest score, 0 where none counts.

    A key's weight p is exp of its distance below the largest score; a *term* is p·v. ``steps``, 2|s| + t for a score s at
    distance t, is what roundings of scores and exponentials grow with. ``lost`` is what running sums may lose of the
    weights (see ``bounds.absorbed``), and ``lost_values`` the same times |v|. ``partial`` is the largest of eight partial sums of terms.
    """

    largest: Any
    weights: Any
    terms: Any
    squares: Any
    sizes: Any
    partial: Any
    steps: Any
    sizes_steps: Any
    lost: Any
    lost_values: Any


def sums(xp, q, k, v, mask, B, H, S, D):
    """``Sums`` of all rows: on a GPU by a kernel, since arrays of all pairs would go through memory dozens of times."""
    found = Sums(*(xp.empty((B, H, S, D)) for _ in Sums._fields))
    if hasattr(xp, "ElementwiseKernel"):
        arrays = (xp.ascontiguousarray(array) for array in (q / sqrt(D), k, v, mask))
        _kernel(xp)(*arrays, H, S, D, block_rows(B, H, S, D), *found)
        return found
    for rows in blocks(B, H, S, D):
        for whole, part in zip(found, of_rows(xp, q, k, v, mask, rows, D), strict=True):
            whole[:, :, rows] = part
    return found


def of_rows(xp, q, k, v, mask, rows, D):
    """``Sums`` of some query rows, from arrays [B,H,rows,n,D] of all their pairs.

    What does not count has an exponential of zero, as has whatever lies further than FAR below the maximum.
    """
    n = rows.stop
    causal = xp.arange(n) <= xp.arange(rows.start, n)[:, None]
    counts = (causal & ~(mask[:, rows, :n] > THRESHOLD))[:, None, :, :, None]
    scores = xp.where(counts, (q / sqrt(D))[:, :, rows, None] * k[:, :, None, :n], -xp.inf)
    largest = xp.where(xp.any(counts, axis=3, keepdims=True), xp.max(scores, axis=3, keepdims=True), 0.0)
    below = xp.maximum(scores - largest, -FAR)
    p = xp.exp(below)
    terms = xp.where(counts, p * v[:, :, None, :n], 0.0)
    sizes = xp.abs(terms)
    steps = 2 * xp.abs(below + xp.clip(largest, -HUGE, HUGE)) - below
    found = xp.sum(p, axis=3)
    lost = bounds.absorbed(xp, p / some(xp, found)[:, :, :, None])
    return Sums(
        largest[:, :, :, 0],
        found,
        xp.sum(terms, axis=3),
        xp.sum(terms * terms, axis=3),
        xp.sum(sizes, axis=3),
        largest_partial(xp, terms),
        xp.sum(p * steps, axis=3),
        xp.sum(sizes * steps, axis=3),
        xp.sum(lost, axis=3),
        xp.sum(xp.where(lost > 0, lost * xp.abs(v)[:, :, None, :n], 0.0), axis=3),
    )


@cache
def _kernel(xp):
    """``of_rows`` for one row and channel in each thread, which goes over the keys three times."""
    return xp.ElementwiseKernel(
        "raw float64 q, raw float64 k, raw float64 v, raw float64 mask, int64 H, int64 S, int64 D, int64 rows",
        ", ".join(f"float64 {name}" for name in Sums._fields),
        f"""
        const long long channel = i % D, row = i / D % S, head = i / D / S;
        const long long stop = min((row / rows + 1) * rows, S), part = (stop + {bounds.PARTIAL_SUMS - 1}) / {bounds.PARTIAL_SUMS};
        const long long first = head * S * D + channel, masked = (head / H * S + row) * S;
        const double query = q[i];
        bool any = false;
        double most = -1.0 / 0.0;
        for (long long j = 0; j <= row; ++j) {{
            if (mask[masked + j] > {THRESHOLD}) continue;
            const double score = query * k[first + j * D];
            most = score > most || score != score || most != most ? score + (most != most ? most : 0.0) : most;
            any = true;
        }}
        largest = any ? most : 0.0;
        const double limited = largest < -{HUGE} ? -{HUGE} : largest > {HUGE} ? {HUGE} : largest;
        weights = terms = squares = sizes = partial = steps = sizes_steps = lost = lost_values = 0.0;
        for (long long j = 0; j <= row; ++j) {{
            if (!(mask[masked + j] > {THRESHOLD})) {{
                double below = query * k[first + j * D] - largest;
                below = below < -{FAR} ? -{FAR} : below;
                const double p = exp(below), term = p * v[first + j * D], step = 2 * fabs(below + limited) - below;
                weights += p;
                terms += term;
                squares += term * term;
                sizes += fabs(term);
                steps += p * step;
                sizes_steps += fabs(term) * step;
            }}
            if ((j + 1) % part == 0 || j == row) partial = fabs(terms) > partial ? fabs(terms) : partial;
        }}
        for (long long j = 0; j <= row; ++j) {{
            if (mask[masked + j] > {THRESHOLD}) continue;
            double below = query * k[first + j * D] - largest;
            below = below < -{FAR} ? -{FAR} : below;
            const double share = exp(below) / (weights == 0 ? 1.0 : weights) / {bounds.FP32_ROUNDOFF};
            const double gone = share < {bounds.FEW_UNITS} ? min(share, 1.0) : 0.0;
            lost += gone;
            lost_values += gone > 0 ? gone * fabs(v[first + j * D]) : 0.0;
        }}
        """,
        "msbench_triangle_attention_sums",
    )


def some(xp, found):
    """The sum of a row's weights: 1 where none counts, and all are zero."""
    return xp.where(found == 0, 1.0, found)


def reference(xp, q, k, v, mask, B, H, S, D):
    found = sums(xp, q, k, v, mask, B, H, S, D)
    return {"y": found.terms / some(xp, found.weights), "sums": found}


def bound(xp, u, out, q, k, v, mask, B, H, S, D):
    found, y = out["sums"], out["y"]
    all_weights = some(xp, found.weights)
    n = xp.arange(1, S + 1, dtype="float64")[:, None]
    # Weights change from key to key as k does. Where neighbours are alike, so are the roundings of a sum. Of short sums all
    # are counted anyway, so rows are looked at in a few blocks.
    keys, products = xp.empty((B, H, S, D)), xp.empty((B, H, S, D))
    step = -(-S // bounds.PARTIAL_SUMS)
    for start in range(0, S, step):
        rows, seen = slice(start, start + step), slice(start + step)
        keys[:, :, rows] = bounds.alike(xp, k[:, :, seen], axis=2)[:, :, None]
        products[:, :, rows] = keys[:, :, rows] * bounds.alike(xp, v[:, :, seen], axis=2)[:, :, None]
    # Twice the terms: a running maximum rescales the sum as often as it adds.
    factor = xp.maximum(bounds.probabilistic(2) * xp.sqrt(n), 2 * bounds.FP32_ROUNDOFF * n * products)
    rounding = factor * (found.partial + xp.sqrt(found.squares))
    # Scores, arguments of exponentials and exponentials err by so many 2⁻²⁴ of each weight: 6|s| + 3t + 8 for a
    # score s that is t below the maximum, of which steps are the third part without the 8.
    error = 3 * found.sizes_steps + 8 * found.sizes
    error += (3 * found.steps + (8 + 2 * bounds.growth(xp, n, keys)) * all_weights) * xp.abs(y)
    error += all_weights * (xp.abs(y) * found.lost + found.lost_values)
    return bounds.rounded(xp, u, y, (bounds.FP32_ROUNDOFF * error + rounding) / all_weights)


def largest_partial(xp, terms):
    """The largest of eight partial sums along axis 3."""
    count = terms.shape[3]
    step = -(-count // bounds.PARTIAL_SUMS)
    partial = largest = 0.0
    for start in range(0, count, step):
        partial = partial + xp.sum(terms[:, :, :, start : start + step], axis=3)
        largest = xp.maximum(largest, xp.abs(partial))
    return largest


def inputs(rng, distribution, B, H, S, D):
    if distribution in patchwork.NAMES:
        return patches(rng, distribution, B, H, S, D)
    drawn = "uniform" if distribution in ("masked", "seldom_masked") else distribution
    q, k, v = (rng.floats(name, (B, H, S, D), drawn) for name in ("q", "k", "v"))
    if distribution == "seldom_masked":
        # One entry alone, of large values: whoever looks for masked ones at a few places finds none.
        mask = rng.xp.zeros((B, S, S), dtype="float32")
        batch, row = rng.position("batch", B), rng.position("row", S)
        key = rng.position("key", row + 1)
        mask[batch, row, key] = 1
        v[batch, :, key] += 8
        return {"q": q, "k": k, "v": v, "mask": mask}
    mask = rng.floats("mask", (B, S, S), "uniform")
    if distribution == "masked":
        # Every third row masks everything, the row after it all but itself, and later batches mask nothing.
        mask[:, 0::3] = 1
        mask[:, 1::3] = 1
        diagonal = rng.xp.arange(1, S, 3)
        mask[:, diagonal, diagonal] = THRESHOLD
        if B > 1:
            mask[B // 2 :] = 0
    return {"q": q, "k": k, "v": v, "mask": mask}


def patches(rng, distribution, B, H, S, D):
    """Kinds of queries, and of channels of keys and values.

    Some queries have scores far below 0 in the channels in which all keys are near 1, and some begin with masked keys. No values are infinite: a weight that is
    zero in fp32 only would make NaN of them.
    """
    shape = (B, H, S, D)
    q = rng.floats("q", shape, distribution, axis=3, kinds=(*KEYS, "ties", "nan"))
    k = rng.floats("k", shape, distribution, axis=2, kinds=KEYS)
    v = rng.floats("v", shape, distribution, axis=2, kinds=(*patchwork.FINITE, "nan"))
    near_one = rng.integers("near one", (B, H, 1, D), 0, 4) == 0
    which = rng.integers("deep", (B, H, S, 1), 0, 8 * len(DEEP))
    k = rng.xp.where(near_one, 1 + k / 8, k)
    for number, depth in enumerate(DEEP):
        q = rng.xp.where(which == number, rng.xp.float32(-depth * sqrt(D)), q)
    mask = rng.floats("mask", (B, S, S), "uniform")
    padded = rng.integers("padded", (B, S, 1), 0, 4) == 0
    padding = padded & (rng.xp.arange(S) < rng.integers("padding", (B, S, 1), 0, S))
    return {"q": q, "k": k, "v": v, "mask": rng.xp.where(padding, rng.xp.float32(1), mask)}


def pairs(B, H, S, D):
    return B * H * D * (S * (S + 1) // 2)


def case(b, h, s, d, split, distribution="uniform"):
    return Case((("B", b), ("H", h), ("S", s), ("D", d)), split, distribution)


PAPER = (
    (1, 32, 512, 128),
    (1, 96, 256, 128),
    (1, 48, 1024, 128),
    (2, 16, 256, 256),
    (2, 64, 512, 128),
    (4, 8, 32, 128),
    (4, 32, 512, 128),
    (8, 16, 512, 128),
)

OPERATOR = Operator(
    name="triangle_attention",
    title="Triangle attention",
    scenario="LLM",
    definition=(
        "y[b,h,i,c] = Σⱼ wⱼ·v[b,h,j,c] / Σⱼ wⱼ, wⱼ = exp(q[b,h,i,c]·k[b,h,j,c]/√D), over the j ≤ i with "
        "mask[b,i,j] ≤ 0.5; 0 where there is none"
    ),
    dims=(
        Dim("B", 1, 64, "batches"),
        Dim("H", 1, 128, "heads"),
        Dim("S", 1, 2048, "positions"),
        Dim("D", 1, 256, "channels of a head"),
    ),
    arrays=(
        Array("q", ("B", "H", "S", "D")),
        Array("k", ("B", "H", "S", "D")),
        Array("v", ("B", "H", "S", "D")),
        Array("mask", ("B", "S", "S"), "f32"),
        Array("y", ("B", "H", "S", "D"), output=True),
    ),
    cases=(
        *(case(*sizes, Split.PAPER) for sizes in PAPER),
        case(4, 32, 1024, 128, Split.LARGE),
        case(2, 3, 77, 64, Split.ODD),
        case(2, 3, 77, 64, Split.ODD, "masked"),
    ),
    reference=reference,
    bound=bound,
    # Of the mask only the triangle j ≤ i matters.
    nbytes=lambda itemsize, B, H, S, D: 4 * B * H * S * D * itemsize + B * (S * (S + 1) // 2) * 4,
    # A product, a subtraction, an exponential, a sum, and a product and a sum with v.
    flops=lambda B, H, S, D: 6 * pairs(B, H, S, D),
    inputs=inputs,
    # No "large": scores of 2⁸⁰ are known to 2⁵⁶, and which of them is the largest is anybody's guess.
    distributions=("uniform", "masked", "seldom_masked", "spiked", "constant", "sorted", *patchwork.NAMES),
    valid=lambda B, H, S, D: B * H * S * D <= 2**27,
    bound_note=(
        "Rounding a score s at distance t from the largest changes its weight by (6|s| + 3t + 8)·2⁻²⁴ of itself, the "
        "weights' sum errs by min(n', 8√n')·2⁻²⁴, n' = min(n, 4096), counted twice for a running maximum, both sums may "
        "lose weights below 2⁻¹⁹ (up to 2⁻²⁴ each), and the weighted sum of n terms errs by 8·2⁻²⁴·√(2n) times its "
        "largest partial sum (Higham 2002, equation 4.4; Higham and Mary 2019, theorem 3.1). Where keys are sorted or all "
        "alike, roundings are too: the weights' sum errs by n'·2⁻²⁴, and, if values are so as well, the weighted one by "
        "2⁻²⁴·2n times its largest partial sum. Entries that are masked or "
        "above the diagonal are never used: NaN there stays there, and a row without any entry is 0."
    ),
    library_note=(
        "No vendor library has it. straightforward.cu is the bar: our own kernel with a running maximum, eight rows to a "
        "thread and masked entries skipped."
    ),
    paper_name="triangle_attention",
)
