"""silu_and_mul: a gated map whose two inputs lie side by side in each row."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, B, D):
    gate, value = x[:, :D], x[:, D:]
    return gate * value / (1 + xp.exp(-gate))


def bound(xp, u, out, x, B, D):
    return bounds.gated(xp, u, out["y"], x[:, :D], x[:, D:])


def inputs(rng, distribution, B, D):
    if distribution not in patchwork.NAMES:
        return {"x": rng.floats("x", (B, 2 * D), distribution)}
    halves = (("gate", patchwork.GATES), ("value", patchwork.GATED))
    return {
        "x": rng.xp.concatenate([rng.floats(name, (B, D), distribution, kinds=some) for name, some in halves], axis=1)
    }


def case(b, d, split):
    return Case((("B", b), ("D", d)), split)


OPERATOR = Operator(
    name="silu_and_mul",
    title="SiLU and multiply",
    scenario="LLM",
    definition="yᵢⱼ = gᵢⱼ·vᵢⱼ / (1 + exp(-gᵢⱼ)), g the left half of x and v the right",
    dims=(Dim("B", 1, 2**14, "rows"), Dim("D", 1, 2**14, "columns of y, half of those of x")),
    arrays=(Array("x", ("B", "2 * D")), Array("y", ("B", "D"), output=True)),
    cases=(
        *(case(b, d, Split.PAPER) for b in (16, 32, 64) for d in (4096, 5120, 8192, 12288)),
        case(4096, 12288, Split.LARGE),
        case(37, 1003, Split.ODD),
    ),
    inputs=inputs,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, B, D: 3 * B * D * itemsize,
    flops=lambda B, D: 4 * B * D,
    deterministic=True,
    bound_note=(
        "The logistic function errs by (1 - σ)·(5 + 3|g|) + 6 units of 2⁻²⁴ relative to itself, which carries __expf "
        "(CUDA C++ Programming Guide, intrinsic functions: 2 + 1.173|x| ulp); two products follow, and one rounding "
        "to the element type, not one between them. A σ below 2⁻¹²⁶ may be flushed to zero, which costs 2⁻¹²⁶·(|g| + "
        "1)·(|v| + 1)."
    ),
    library_note=(
        "There is no vendor call for it; straightforward.cu is msbench's own, with 16-byte accesses and fast intrinsics."
    ),
    paper_name="silu_and_mul",
)
