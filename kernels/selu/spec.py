"""selu: elu with a scale."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split


def reference(xp, x, alpha, scale, N):
    return scale * xp.where(x >= 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


def bound(xp, u, out, x, alpha, scale, N):
    y = out["y"]
    below = xp.minimum(x, 0)
    # In units of v: exp(x), from which 1 is then taken, and expm1 (3), products with α and λ, and these as floats.
    negative = abs(scale * alpha) * bounds.exponential(xp, below) * xp.exp(below) + 7 * xp.abs(y)
    error = xp.where(x >= 0, xp.abs(y), negative)  # else one product, with λ as a float
    return bounds.rounded(xp, u, y, bounds.FP32_ROUNDOFF * error)


def case(n, split, scalars=()):
    return Case((("N", n),), split, scalars=scalars)


OPERATOR = Operator(
    name="selu",
    title="SELU",
    scenario="Activations and losses",
    definition="yᵢ = λ·xᵢ if xᵢ ≥ 0, else λ·α·(exp(xᵢ) - 1); λ is the scalar scale",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    scalars=(Scalar("alpha", "float", 1.67, low=0.25, high=4.0), Scalar("scale", "float", 1.0, low=0.25, high=4.0)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
        case(1_000_003, Split.ODD, (("alpha", 1.6732632), ("scale", 1.050701))),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: 4 * N,
    deterministic=True,
    bound_note=(
        "Where x < 0 the bound carries both ways to compute eˣ-1: expm1f, whose error is relative to it, and expf or "
        "__expf less 1, whose error is λα·2⁻²⁴·(5 + 3|x|)·eˣ and absolute near 0 (CUDA C++ Programming Guide, "
        "mathematical functions: 2 and 2 + 1.173|x| ulp; Higham 2002, section 1.14.1, on this subtraction). Four "
        "roundings and that to the element type follow; where x ≥ 0 there is one product, with a scale that was "
        "rounded to fp32."
    ),
    library_note=(
        "cub::DeviceTransform, and cudnnActivationForward of ELU with its result scaled by λ; the faster of the two is "
        "the bar."
    ),
    flops_note="eˣ-1 counts as one operation; computed, it is a dozen additions and multiplications.",
    paper_name="selu",
)
