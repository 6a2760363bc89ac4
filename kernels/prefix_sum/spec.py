"""prefix_sum: an inclusive scan, whose every output depends on all inputs before it."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Split

BLOCK = 1024


def reference(xp, x, N):
    return xp.cumsum(x)


def bound(xp, u, out, x, N):
    # A NaN or an infinity must not reach the bound of the outputs before it.
    largest = largest_so_far(xp, xp.where(xp.isfinite(out["y"]), xp.abs(out["y"]), 0.0))
    squares = xp.sqrt(xp.cumsum(xp.where(xp.isfinite(x), x * x, 0.0)))
    # The sums of blocks of sorted samples are alike, and so are the roundings where they are carried from block to block.
    chain = xp.minimum(xp.arange(1, N + 1), bounds.LONGEST_CHAIN)
    chain = xp.maximum(bounds.CONFIDENCE * xp.sqrt(chain), chain * bounds.alike(xp, x))
    return bounds.rounded(xp, u, out["y"], bounds.FP32_ROUNDOFF * chain * (largest + squares))


def largest_so_far(xp, sizes):
    """The running maximum, in steps of BLOCK elements (CuPy has no maximum.accumulate)."""
    blocks = -(-sizes.size // BLOCK)
    padded = xp.zeros(blocks * BLOCK)
    padded[: sizes.size] = sizes
    maxima = padded.reshape(blocks, BLOCK).max(axis=1)
    distance = 1
    while distance < blocks:
        maxima = xp.concatenate((maxima[:distance], xp.maximum(maxima[distance:], maxima[:-distance])))
        distance *= 2
    return xp.repeat(maxima, BLOCK)[: sizes.size]


def inputs(rng, distribution, N):
    """In patches, large numbers come late, and after them what makes all that follows NaN."""
    x = rng.floats("x", (N,), distribution, kinds=patchwork.SMALL)
    if distribution in patchwork.NAMES:
        for part, kinds in ((N // 2, patchwork.FINITE), (N // 8, patchwork.TERMS)):
            x[N - part :] = rng.floats(f"last {part} of x", (part,), distribution, kinds=kinds)
    return {"x": x}


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="prefix_sum",
    title="Prefix sum",
    scenario="Dense algebra",
    definition="yᵢ = Σⱼ≤ᵢ xⱼ",
    dims=(Dim("N", 1, 2**28, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    inputs=inputs,
    distributions=STANDARD_DISTRIBUTIONS,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: N - 1,
    bound_note=(
        "A sum of i terms in fp32, in any order, errs by 8·2⁻²⁴·√min(i, 4096) times its largest partial sum (Higham "
        "and Mary 2019, theorem 3.1), taken as the largest |y| so far plus √Σx², and by up to 2⁻²⁴·min(i, 4096) times it where "
        "samples are sorted or all alike, so that terms round alike (Higham 2002, equation 4.4). Sums that are carried from "
        "block to block in bf16 are rejected."
    ),
    library_note="cub::DeviceScan::InclusiveScan: one pass with decoupled look-back, fp32 sums in both precisions.",
    flops_note="A parallel scan adds more often than N - 1 times: within threads, then across lanes and warps.",
    paper_name="prefix_sum",
)
