"""elu: a map with an exponential that cancels near zero."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split


def reference(xp, x, alpha, N):
    return xp.where(x >= 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


def bound(xp, u, out, x, alpha, N):
    y = out["y"]
    below = xp.minimum(x, 0)
    # In units of v: exp(x), from which 1 is then taken, and expm1 (3), its product with α and α as a float.
    error = abs(alpha) * bounds.exponential(xp, below) * xp.exp(below) + 5 * xp.abs(y)
    return xp.where(x >= 0, bounds.EITHER_ZERO, bounds.rounded(xp, u, y, bounds.FP32_ROUNDOFF * error))


def case(n, split, scalars=()):
    return Case((("N", n),), split, scalars=scalars)


OPERATOR = Operator(
    name="elu",
    title="ELU",
    scenario="Activations and losses",
    definition="yᵢ = xᵢ if xᵢ ≥ 0, else α·(exp(xᵢ) - 1)",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    scalars=(Scalar("alpha", "float", 1.0, low=0.25, high=4.0),),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
        case(1_000_003, Split.ODD, (("alpha", 0.5),)),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: 3 * N,
    deterministic=True,
    bound_note=(
        "Where x < 0 the bound carries both ways to compute eˣ-1: expm1f, whose error is relative to it, and expf or "
        "__expf less 1, whose error is α·2⁻²⁴·(5 + 3|x|)·eˣ and absolute near 0 (CUDA C++ Programming Guide, "
        "mathematical functions: 2 and 2 + 1.173|x| ulp; Higham 2002, section 1.14.1, on this subtraction). Two "
        "roundings and that to the element type follow; where x ≥ 0 the element is kept and has to come out exactly, but for the sign of a zero."
    ),
    library_note="cub::DeviceTransform and cudnnActivationForward; the faster of the two is the bar.",
    flops_note="eˣ-1 counts as one operation; computed, it is a dozen additions and multiplications.",
    paper_name="elu",
)
