"""merge_attn_states: two partial attention results joined by their log-sum-exps, read in another layout than the values."""

import numpy as np

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split

LOWEST = -float(np.finfo(np.float32).max)
VALUES = (*patchwork.FINITE, "subnormal", "nan")  # a weight that is zero in fp32 only would make NaN of an infinity
APART = 80.0
"""The smaller weight is still a normal number then, and its value may be the larger one by far."""
SUMS = ("uniform", "ties", "negative", "deep", "bottom", "large", "zeros", "nan")


def inputs(rng, distribution, T, H, D):
    """In patches, both log-sum-exps are within 1 of a common one, which may be far from 0, or in one pair of four up to ``APART``
    apart, and some are infinite, on one side, on the other or on both.
    """
    if distribution not in patchwork.NAMES:
        shapes = {"Va": (T, H, D), "Vb": (T, H, D), "la": (H, T), "lb": (H, T)}
        return {name: rng.floats(name, shape, distribution) for name, shape in shapes.items()}
    xp = rng.xp
    drawn = {name: rng.floats(name, (T, H, D), distribution, axis=2, kinds=VALUES) for name in ("Va", "Vb")}
    common = rng.floats("common", (H, T), distribution, kinds=SUMS)
    apart = rng.integers("apart", (H, T), 0, 4) == 0
    gap = xp.where(apart, APART * rng.floats("gap", (H, T), "uniform"), xp.float32(0))
    which = rng.integers("which", (H, T), 0, 10)
    for name, lowest, highest in (("la", (0, 1), (2, 3)), ("lb", (1, 4), (3,))):
        values = common + rng.floats(name, (H, T), "uniform") + (gap if name == "lb" else 0)
        for numbers, infinity in ((lowest, -xp.inf), (highest, xp.inf)):
            for number in numbers:
                values = xp.where(which == number, xp.float32(infinity), values)
        drawn[name] = values
    return drawn


def weights(xp, la, lb):
    """The larger log-sum-exp and exp of either less it, [H, T] each, where ±inf counts as -FLT_MAX."""
    la, lb = (xp.where(xp.isinf(values), LOWEST, values) for values in (la, lb))
    most = xp.maximum(la, lb)
    return most, xp.exp(la - most), xp.exp(lb - most)


def over_heads(weight):
    """[H, T] as a factor of [T, H, D]."""
    return weight.T[:, :, None]


def reference(xp, Va, Vb, la, lb, T, H, D):
    most, wa, wb = weights(xp, la, lb)
    V = (over_heads(wa) * Va + over_heads(wb) * Vb) / over_heads(wa + wb)
    return {"V": V, "lse": most + xp.log(wa + wb)}


def bound(xp, u, out, Va, Vb, la, lb, T, H, D):
    _, wa, wb = weights(xp, la, lb)
    small = xp.minimum(wa, wb)
    distance = -xp.log(xp.maximum(small, 2.0**-1000))  # where both are 1 and where one underflows alike
    total = wa + wb
    # Relative errors, in units of v: of the smaller weight 3d from rounding its argument -d and 6 from exp itself; the
    # larger weight is exact. The sum inherits its share. A weight that is subnormal may be flushed to zero.
    slip = small * (3 * distance + 6) / total * bounds.FP32_ROUNDOFF + bounds.FLOOR
    sizes = (over_heads(wa) * xp.abs(Va) + over_heads(wb) * xp.abs(Vb)) / over_heads(total)
    moved = over_heads(slip * xp.maximum(wa, wb) / total) * (xp.abs(Va) + xp.abs(Vb))
    return {
        "V": bounds.rounded(xp, u, out["V"], moved + 8 * bounds.FP32_ROUNDOFF * sizes),
        "lse": bounds.rounded(xp, u, out["lse"], slip + 8 * bounds.FP32_ROUNDOFF),
    }


def case(t, h, d, split):
    return Case((("T", t), ("H", h), ("D", d)), split)


OPERATOR = Operator(
    name="merge_attn_states",
    title="Merging of attention states",
    scenario="LLM",
    definition=(
        "V = (wₐ·Vₐ + w_b·V_b) / (wₐ + w_b), lse = m + ln(wₐ + w_b), w = exp(l - m), m = max(lₐ, l_b), for each token and head; an "
        "l of ±∞ counts as -FLT_MAX, so that two of them give the mean and -FLT_MAX"
    ),
    dims=(Dim("T", 1, 2**15, "tokens"), Dim("H", 1, 2**7, "heads"), Dim("D", 1, 2**9, "elements of a head")),
    arrays=(
        Array("Va", ("T", "H", "D")),
        Array("Vb", ("T", "H", "D")),
        Array("la", ("H", "T")),
        Array("lb", ("H", "T")),
        Array("V", ("T", "H", "D"), output=True),
        Array("lse", ("H", "T"), output=True),
    ),
    cases=(
        *(case(t, h, d, Split.PAPER) for t in (512, 768, 1024) for h in (32, 64) for d in (128, 256)),
        case(16384, 32, 128, Split.LARGE),
        case(333, 17, 96, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, T, H, D: (3 * T * H * D + 3 * H * T) * itemsize,
    flops=lambda T, H, D: 4 * T * H * D + 8 * H * T,
    inputs=inputs,
    deterministic=True,
    bound_note=(
        "Weights come from differences to the larger log-sum-exp: rounding the argument of an exponential at distance d "
        "changes it by 3d·2⁻²⁴ of itself, with 6·2⁻²⁴ for exp, and moves the result by that times both weights' shares; eight more "
        "roundings follow, and the one to the element type (Higham 2002, sections 1.6 and 3.1). Log-sum-exps have the element type; "
        "theirs errs by the sum's relative error and 8·2⁻²⁴, before that rounding, so that cancellation of m and ln(wₐ + w_b) is "
        "allowed for."
    ),
    library_note=(
        "No vendor library has it: the bar is a straightforward kernel that moves 16 bytes at a time and computes both "
        "weights once a packet."
    ),
    flops_note=(
        "Exponentials and divisions count as one operation each and once for a row; the straightforward kernel "
        "computes the weights of a row in each of its threads."
    ),
    paper_name="merge_attn_states",
)
