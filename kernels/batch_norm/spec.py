"""batch_norm: statistics down the columns of a row-major matrix, then a map."""

from msbench import bounds
from msbench.operators import offsets, patchwork
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split

KINDS = tuple(kind for kind in patchwork.TERMS if kind != "ties")


def inputs(rng, distribution, epsilon, N, C):
    drawn = {"gamma": (C,), "beta": (C,)}
    if offsets.among(rng, distribution):
        x = offsets.draw(rng, "x", (N, C), distribution)
        return {"x": x, **{name: rng.floats(name, shape, "uniform") for name, shape in drawn.items()}}
    # γ stays finite: x·s + (β - mean·s) with s = γ/σ is right too, and makes NaN of an infinite γ.
    return {
        "x": rng.floats("x", (N, C), distribution, axis=0, kinds=KINDS),
        "gamma": rng.floats("gamma", (C,), distribution, kinds=patchwork.FINITE),
        "beta": rng.floats("beta", (C,), distribution),
    }


def reference(xp, x, gamma, beta, epsilon, N, C):
    return gamma * (x - xp.mean(x, axis=0)) / xp.sqrt(xp.var(x, axis=0) + epsilon) + beta


def bound(xp, u, out, x, gamma, beta, epsilon, N, C):
    return bounds.normalised(xp, u, out["y"], x, gamma, beta, epsilon)


def case(n, c, split):
    return Case((("N", n), ("C", c)), split)


OPERATOR = Operator(
    name="batch_norm",
    title="Batch normalisation",
    scenario="LLM",
    definition="yᵢⱼ = γⱼ·(xᵢⱼ - mⱼ) / √(vⱼ + ε) + βⱼ, mⱼ = 1/N·Σᵢxᵢⱼ, vⱼ = 1/N·Σᵢ(xᵢⱼ - mⱼ)²",
    dims=(Dim("N", 1, 2**16, "rows, over which statistics are taken"), Dim("C", 1, 2**14, "columns")),
    arrays=(
        Array("x", ("N", "C")),
        Array("gamma", ("C",)),
        Array("beta", ("C",)),
        Array("y", ("N", "C"), output=True),
    ),
    # Hidden ones are large enough to be seen beside a mean square of a third.
    scalars=(Scalar("epsilon", "float", 1e-5, low=0.01, high=1.0),),
    cases=(
        *(case(2**i, 2**j, Split.PAPER) for i in (4, 6, 8, 10) for j in (4, 6, 8, 10)),
        case(65536, 1024, Split.LARGE),
        case(1003, 777, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N, C: (2 * N * C + 2 * C) * itemsize,
    flops=lambda N, C: 8 * N * C + 4 * C,
    inputs=inputs,
    # No "ties" and "sorted": down a column distances from the mean then take few values or rise in even steps, so that
    # squares and sums of many rows round the same way each time, and errors add up.
    distributions=("uniform", "spiked", "constant", *offsets.DISTRIBUTIONS, *patchwork.NAMES),
    bound_note=(
        "The mean of N terms in fp32 errs by 8·2⁻²⁴·√N' times its largest partial sum over N, N' = min(N, 4096) (Higham "
        "and Mary 2019, theorem 3.1), and a variance by two passes or Welford's updates, merged after 4096, by "
        "min(N', 8√N')·2⁻²⁴·κ of itself, "
        "κ² = 1 + mean²/variance, plus the mean's error squared (Chan, Golub and LeVeque 1983, table 1). Twenty "
        "roundings and the one to the element type follow; E[x²] - E[x]², which errs by κ times more, is rejected where κ "
        "is large (distribution offset, in fp32; bf16 makes all its numbers equal) and accepted where it is not."
    ),
    library_note=(
        "cuDNN's batch normalisation, training forward, x as N images of one pixel: the fastest of the classic call in its "
        "two modes for any values and of the graph API's plans, which are tried for at most half a second a size."
    ),
    bytes_note="The naive kernel reads the matrix three times, for means, variances and results, and the matrix is larger than L2.",
    flops_note=(
        "cuDNN's kernel does more than the definition for each element: it also keeps statistics for a backward pass."
    ),
    paper_name="batch_norm",
)
