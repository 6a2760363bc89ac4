"""swiglu: a gated map of two vectors."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split


def reference(xp, gate, value, beta, N):
    return gate * value / (1 + xp.exp(-beta * gate))


def bound(xp, u, out, gate, value, beta, N):
    return bounds.gated(xp, u, out["out"], gate, value, beta)


def inputs(rng, distribution, beta, N):
    kinds = {"gate": patchwork.GATES, "value": patchwork.GATED}
    return {name: rng.floats(name, (N,), distribution, kinds=some) for name, some in kinds.items()}


def case(n, split, scalars=()):
    return Case((("N", n),), split, scalars=scalars)


OPERATOR = Operator(
    name="swiglu",
    title="SwiGLU",
    scenario="LLM",
    definition="outᵢ = xᵢ·vᵢ / (1 + exp(-β·xᵢ)), x the gate and v the value",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("gate", ("N",)), Array("value", ("N",)), Array("out", ("N",), output=True)),
    scalars=(Scalar("beta", "float", 1.0, low=0.25, high=4.0),),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
        case(1_000_003, Split.ODD, (("beta", 1.702),)),
    ),
    inputs=inputs,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 3 * N * itemsize,
    flops=lambda N: 6 * N,
    deterministic=True,
    bound_note=(
        "The logistic function errs by (1 - σ)·(5 + 5|βx|) + 6 units of 2⁻²⁴ relative to itself, which carries "
        "__expf (CUDA C++ Programming Guide, intrinsic functions: 2 + 1.173|x| ulp) of a rounded β·x; two products "
        "follow, and the rounding to the element type. A σ below 2⁻¹²⁶ may be flushed to zero, which costs "
        "2⁻¹²⁶·(|x| + 1)·(|v| + 1)."
    ),
    library_note="cub::DeviceTransform, which picks vector widths and bytes in flight for the GPU at hand.",
    flops_note=(
        "An exponential and a division count as one operation each; computed, they are special-function instructions, which are no "
        "additions or multiplications, with a few of those around them."
    ),
    paper_name="SwiGLU",
)
