"""hinge_loss: a map of predictions and labels."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, predictions, targets, N):
    return xp.maximum(1 - xp.where(targets == 0, -1.0, 1.0) * predictions, 0)


def bound(xp, u, out, predictions, targets, N):
    return bounds.rounded(xp, u, out["losses"])


def inputs(rng, distribution, N):
    predictions = 2 * rng.floats(
        "predictions", (N,), distribution, kinds=patchwork.TERMS
    )  # losses on either side of zero
    return {"predictions": predictions, "targets": rng.integers("targets", (N,), 0, 2)}


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="hinge_loss",
    title="Hinge loss",
    scenario="Activations and losses",
    definition="lossᵢ = max(0, 1 - yᵢ·pᵢ), yᵢ = 1 where targetᵢ is 1 and -1 where it is 0, and NaN where pᵢ is NaN",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("predictions", ("N",)), Array("targets", ("N",), "i32"), Array("losses", ("N",), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: N * (2 * itemsize + 4),
    flops=lambda N: 3 * N,
    inputs=inputs,
    deterministic=True,
    bound_note=(
        "The product with ±1 is exact, so there is one subtraction, rounded once to the element type: at most u·loss "
        "(Higham 2002, theorem 2.2). The maximum is exact and, as IEEE 754-2019, section 9.6, has it, keeps a NaN; "
        "fmaxf, which drops it, is not what is asked for."
    ),
    library_note="cub::DeviceTransform, which picks vector widths and bytes in flight for the GPU at hand.",
    flops_note=(
        "A maximum counts as one operation, and is no addition or multiplication to a profiler; nor is a product with a "
        "target of ±1, which a kernel takes by flipping a sign."
    ),
    paper_name="hinge_loss",
)
