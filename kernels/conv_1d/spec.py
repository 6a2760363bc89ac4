"""conv_1d: a long signal and a short filter; every sample is used again by as many outputs as the filter is long."""

from msbench import bounds, weighted
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def taps(x, w, N, K):
    """Each element of the filter, and the samples that it is multiplied with."""
    return ((w[k], x[k : k + N - K + 1]) for k in range(K))


def reference(xp, x, w, N, K):
    y, error = weighted.weighted_sum(xp, taps(x, w, N, K), K, (N - K + 1,))
    return {"y": y, "error": error}


def bound(xp, u, out, x, w, N, K):
    return bounds.rounded(xp, u, out["y"], out["error"])


def inputs(rng, distribution, N, K):
    """In patches, sums have few terms: everywhere, as the filter has few, or in one tile of the signal. Of ``dotted`` ones the filter is
    nearly symmetric, of ``scattered`` ones every other time a moving average."""
    x = rng.floats("x", (N,), distribution, tile=(1, 2 * K), kinds=patchwork.TERMS)
    if distribution == "patchwork":
        return {"x": x, "w": rng.few("w", K, 1).reshape(K)}
    boxed = ("uniform", "constant")[rng.position("boxed", 2)]
    drawn = boxed if distribution == "scattered" else distribution
    return {"x": x, "w": rng.floats("w", (K,), drawn, kinds=("uniform", "ties"))}


def case(n, k, split):
    return Case((("N", n), ("K", k)), split)


OPERATOR = Operator(
    name="conv_1d",
    title="Convolution in one dimension",
    scenario="LLM",
    definition="yᵢ = Σₖ wₖ·xᵢ₊ₖ, k from 0 to K-1, i from 0 to N-K (valid cross-correlation, one channel)",
    dims=(Dim("N", 1, 2**26, "samples"), Dim("K", 1, 2**10, "elements of the filter, at most N")),
    arrays=(Array("x", ("N",)), Array("w", ("K",)), Array("y", ("max(N - K + 1, 0)",), output=True)),
    cases=(
        *(case(2**n, 2**k, Split.PAPER) for n in (10, 12, 14, 16, 18) for k in (5, 6, 7, 8)),
        case(2**25, 128, Split.LARGE),
        case(100_003, 77, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N, K: (N + K + N - K + 1) * itemsize,
    flops=lambda N, K: 2 * K * (N - K + 1),
    compute="precision",
    inputs=inputs,
    valid=lambda N, K: K <= N,
    bound_note=(
        "A sum of K products in fp32, in any order, errs by 8·2⁻²⁴·√K times its largest partial sum, √t if all but t of them "
        "are zero (Higham and Mary 2019, theorem 3.1); that is taken as the largest of eight partial sums plus "
        "√Σ(wₖxᵢ₊ₖ)². It counts for each output alone, which rules out inputs rounded to TF32, two bf16 numbers in place of "
        "one of fp32, and convolutions by FFT where samples differ in size."
    ),
    library_note=(
        "cuDNN's convolution with one channel, along rows or columns, with the algorithms and engines that sum products in "
        "fp32 tried for at most a second a size; fp32 without TF32."
    ),
    paper_name="conv_1d",
)
