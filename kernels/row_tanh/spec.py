"""row_tanh: a map with a hyperbolic tangent, exact to the last bits at either end."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, N):
    return xp.tanh(x)


def bound(xp, u, out, x, N):
    y = out["y"]
    return bounds.rounded(xp, u, y, 10 * bounds.FP32_ROUNDOFF * xp.abs(y))


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="row_tanh",
    title="Hyperbolic tangent",
    scenario="Activations and losses",
    definition="yᵢ = tanh(xᵢ)",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: N,
    deterministic=True,
    bound_note=(
        "tanhf errs by at most 2 ulp over its full range (CUDA C++ Programming Guide, mathematical functions), which "
        "is 5·2⁻²⁴ of the result or less; 10·2⁻²⁴ are granted, beside the rounding to the element type, for a polynomial near "
        "zero and exponentials with a fast division elsewhere. The "
        "bound is relative near zero, too, where formulas from exponentials, such as 1 - 2/(1 + exp(2x)), cancel and "
        "miss it."
    ),
    library_note="cub::DeviceTransform and cudnnActivationForward; the faster of the two is the bar.",
    flops_note="tanh counts as one operation; computed, it is an exponential, a division and a polynomial.",
    paper_name="row_tanh",
)
