"""rope: rotations whose angles are computed on the way; traffic against sines and cosines."""

import math

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split


def angles(xp, base, M, D):
    """Angles [M, D/2], and the exponents 2p/D [D/2]."""
    exponents = xp.arange(0, D, 2) / D
    return xp.arange(M, dtype="float64")[:, None] * float(base) ** -exponents, exponents


def reference(xp, x, base, M, D):
    angle, _ = angles(xp, base, M, D)
    cosine, sine = xp.cos(angle), xp.sin(angle)
    y = xp.empty((M, D))
    y[:, 0::2] = x[:, 0::2] * cosine - x[:, 1::2] * sine
    y[:, 1::2] = x[:, 0::2] * sine + x[:, 1::2] * cosine
    return y


def bound(xp, u, out, x, base, M, D):
    y = out["y"]
    angle, exponents = angles(xp, base, M, D)
    # Relative errors of an angle, in units of v: rounding the exponent, the logarithm or their product shifts the power by
    # exponent·ln(base) each, up to five times (__powf); 12 from power, quotient, product and the angle's own rounding.
    slip = (5 * exponents * abs(math.log(base)) + 12) * bounds.FP32_ROUNDOFF * angle
    error = xp.empty((M, D))
    for own, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        # A slip turns the pair further: to first order by the other result, to second by this one. Sine and cosine have
        # 2 ulp (4 at most, for fast ones of an angle within ±π), and two products and a sum follow.
        turned = slip * xp.abs(y[:, other]) + slip * slip * xp.abs(y[:, own])
        sizes = xp.abs(x[:, 0::2]) + xp.abs(x[:, 1::2])
        error[:, own] = turned + 10 * bounds.FP32_ROUNDOFF * sizes
    return bounds.rounded(xp, u, y, error)


def case(m, d, split):
    return Case((("M", m), ("D", d)), split)


OPERATOR = Operator(
    name="rope",
    title="Rotary position embedding",
    scenario="LLM",
    definition=(
        "(y₂ₚ, y₂ₚ₊₁) = (x₂ₚ·cos a - x₂ₚ₊₁·sin a, x₂ₚ·sin a + x₂ₚ₊₁·cos a) with a = m·base^(-2p/D) in row m, D even"
    ),
    dims=(Dim("M", 1, 2**14, "rows: positions"), Dim("D", 2, 2**14, "columns, an even number")),
    arrays=(Array("x", ("M", "D")), Array("y", ("M", "D"), output=True)),
    scalars=(Scalar("base", "float", 1e4, low=100.0, high=1e6),),
    cases=(
        *(case(m, 2**k, Split.PAPER) for m in (16, 32, 64, 128) for k in (8, 10, 12, 14)),
        case(8192, 4096, Split.LARGE),
        case(333, 130, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, M, D: 2 * M * D * itemsize,
    flops=lambda M, D: 3 * M * D,
    # No infinity: its sign in the output would hang on the sign of a cosine that may be within rounding of zero.
    kinds=(*patchwork.FINITE, "deep", "subnormal", "nan"),
    valid=lambda M, D: D % 2 == 0,
    deterministic=True,
    bound_note=(
        "The angle m·base^(-2p/D) by powf, __powf, exp2f or expf in fp32 is off by (5·2p/D·ln base + 12)·2⁻²⁴ of itself (their "
        "maximum errors in the CUDA C++ Programming Guide, and the rounding of the exponent times its condition number, Higham "
        "2002, section 1.6), which turns a pair by as much, absolutely: powers by recurrence are not accurate enough. Sine and "
        "cosine within 4 ulp of that angle, reduced over its whole range as sincosf does and __sincosf does not, and three "
        "more roundings add 10·2⁻²⁴·(|x₂ₚ| + |x₂ₚ₊₁|), before the rounding to the element type."
    ),
    library_note=(
        "No vendor library has it: the bar is a straightforward kernel that computes each power once for many rows and moves "
        "16 bytes at a time."
    ),
    flops_note=(
        "A sine or a cosine counts as one operation; computed, it is a reduction of the argument and a polynomial."
    ),
    paper_name="rope",
)
