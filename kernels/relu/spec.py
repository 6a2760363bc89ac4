"""relu: a map that selects; only bandwidth counts."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, N):
    return xp.maximum(x, 0)


def bound(xp, u, out, x, N):
    return xp.full(1, bounds.EITHER_ZERO)  # for every element: exact, as a maximum is


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="relu",
    title="ReLU",
    scenario="Activations and losses",
    definition="yᵢ = max(0, xᵢ), and NaN where xᵢ is NaN",
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
        "Elements are kept or replaced by zero and not computed with, so they have to come out exactly. The maximum "
        "is that of IEEE 754-2019, section 9.6, which keeps a NaN; fmaxf, which drops it, is not. A zero may have either sign."
    ),
    library_note="cub::DeviceTransform and cudnnActivationForward; the faster of the two is the bar.",
    flops_note="A maximum counts as one operation, and is no addition or multiplication to a profiler.",
    paper_name="RELU",
)
