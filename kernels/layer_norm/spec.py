"""layer_norm over one whole vector: mean, variance, then a map that needs both."""

from msbench import bounds
from msbench.operators import offsets, patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Scalar, Split


def inputs(rng, distribution, epsilon, N):
    if offsets.among(rng, distribution):
        x = offsets.draw(rng, "x", (N,), distribution)
        return {"x": x, **{name: rng.floats(name, (N,), "uniform") for name in ("weight", "bias")}}
    # Weights stay finite in patches: x·s + (b - m·s) with s = w/σ is right too, and makes NaN of an infinite w.
    return {
        "x": rng.floats("x", (N,), distribution, kinds=patchwork.SMALL),
        "weight": rng.floats("weight", (N,), distribution, kinds=patchwork.FINITE),
        "bias": rng.floats("bias", (N,), distribution),
    }


def reference(xp, x, weight, bias, epsilon, N):
    return weight * (x - xp.mean(x)) / xp.sqrt(xp.var(x) + epsilon) + bias


def bound(xp, u, out, x, weight, bias, epsilon, N):
    return bounds.normalised(xp, u, out["y"], x, weight, bias, epsilon)


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="layer_norm",
    title="Layer normalisation",
    scenario="LLM",
    definition="yᵢ = wᵢ·(xᵢ - m) / √(v + ε) + bᵢ, m = 1/N·Σⱼxⱼ, v = 1/N·Σⱼ(xⱼ - m)²",
    dims=(Dim("N", 1, 2**28, "elements"),),
    arrays=(
        Array("x", ("N",)),
        Array("weight", ("N",)),
        Array("bias", ("N",)),
        Array("y", ("N",), output=True),
    ),
    # Hidden ones are large enough to be seen beside a mean square of a third.
    scalars=(Scalar("epsilon", "float", 1e-5, low=0.01, high=1.0),),
    cases=(
        *(case(2**k, Split.PAPER) for k in range(6, 11)),
        case(2**25, Split.LARGE),
        case(100_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 4 * N * itemsize,
    flops=lambda N: 8 * N + 4,
    inputs=inputs,
    distributions=(*STANDARD_DISTRIBUTIONS, *offsets.DISTRIBUTIONS),
    bound_note=(
        "The mean of N terms in fp32 errs by 8·2⁻²⁴·√N' times its largest partial sum over N, N' = min(N, 4096) (Higham "
        "and Mary 2019, theorem 3.1), and a variance by two passes or Welford's updates, merged after 4096, by "
        "min(N', 8√N')·2⁻²⁴·κ of itself, "
        "κ² = 1 + mean²/variance, plus the mean's error squared (Chan, Golub and LeVeque 1983, table 1). Twenty "
        "roundings and the one to the element type follow; E[x²] - E[x]², which errs by κ times more, is rejected where κ "
        "is large (distribution offset, in fp32; bf16 makes all its numbers equal) and accepted where it is not."
    ),
    library_note=(
        "cuDNN's layer-norm operation where it takes the size, and cub::DeviceReduce followed by cub::DeviceTransform."
    ),
    bytes_note=(
        "The array is larger than what the chip holds, and it is needed twice: for its mean and deviation, and for "
        "the result."
    ),
    flops_note=(
        "CUB's reduction joins mean and squared distances of two parts at a time, which takes several times the "
        "operations of two plain sums."
    ),
    paper_name="layer_norm",
)
