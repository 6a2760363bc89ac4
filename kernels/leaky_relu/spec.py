"""leaky_relu: a map that selects and scales; only bandwidth counts."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split


def reference(xp, x, alpha, N):
    return xp.where(x >= 0, x, alpha * x)


def bound(xp, u, out, x, alpha, N):
    y = out["y"]
    # The error is that of α as a float; what is not negative is kept.
    return xp.where(x >= 0, bounds.EITHER_ZERO, bounds.rounded(xp, u, y, bounds.FP32_ROUNDOFF * xp.abs(y)))


def case(n, split, scalars=()):
    return Case((("N", n),), split, scalars=scalars)


OPERATOR = Operator(
    name="leaky_relu",
    title="Leaky ReLU",
    scenario="Activations and losses",
    definition="yᵢ = xᵢ if xᵢ ≥ 0, else α·xᵢ",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    scalars=(Scalar("alpha", "float", 0.01, low=0.05, high=0.95),),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
        case(1_000_003, Split.ODD, (("alpha", 0.2),)),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: N,
    deterministic=True,
    bound_note=(
        "Where x ≥ 0 the element is kept and has to come out exactly, but for the sign of a zero. Elsewhere one product is rounded to the "
        "element type (Higham 2002, theorem 2.2), of a slope that was rounded to fp32."
    ),
    library_note="cub::DeviceTransform, which picks vector widths and bytes in flight for the GPU at hand.",
    flops_note=(
        "A comparison counts as one operation, and is no addition or multiplication to a profiler; the "
        "multiplication takes place for negative elements only."
    ),
    paper_name="leaky_RELU",
)
