"""mse_loss: the mean of squared differences of two vectors."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Split


def reference(xp, X, Y, N):
    difference = X - Y
    return (xp.dot(difference, difference) / N).reshape(1)


def bound(xp, u, out, X, Y, N):
    # Relative errors, in units of v: a difference counts twice in its square; then the sum with its products, and the
    # quotient by N, which may be a product with a rounded 1/N.
    relative = (bounds.growth(xp, N) + 6) * bounds.FP32_ROUNDOFF
    # The result is fp32 in both precisions.
    return bounds.rounded(xp, bounds.FP32_ROUNDOFF, out["out"], relative * out["out"])


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="mse_loss",
    title="Mean squared error",
    scenario="Activations and losses",
    definition="out = 1/N·Σᵢ (Xᵢ - Yᵢ)², one float in both precisions",
    dims=(Dim("N", 1, 2**28, "elements"),),
    arrays=(Array("X", ("N",)), Array("Y", ("N",)), Array("out", ("1",), "f32", output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    distributions=STANDARD_DISTRIBUTIONS,
    kinds=patchwork.SMALL,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize + 4,
    flops=lambda N: 3 * N,
    bound_note=(
        "A sum of N squares in fp32 errs by min(N', 8√N')·2⁻²⁴ of itself in any order, N' = min(N, 4096) (Higham "
        "2002, equation 4.4; Higham and Mary 2019, theorem 3.1). Six roundings of the differences and the mean come "
        "on top, and the result is stored in fp32, so nothing is rounded to bf16."
    ),
    library_note="cub::DeviceReduce::TransformReduce over pairs of elements, loaded one by one or in packets.",
    paper_name="MSE_loss",
)
