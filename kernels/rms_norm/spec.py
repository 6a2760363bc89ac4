"""rms_norm over one whole vector: a reduction, then a map that needs its result."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Scalar, Split


def reference(xp, x, weight, bias, epsilon, N):
    return weight * x / xp.sqrt(xp.mean(x * x) + epsilon) + bias


def bound(xp, u, out, x, weight, bias, epsilon, N):
    # Relative errors, in units of v: the sum of squares, halved by the square root; then mean, ε, the reciprocal
    # square root (2 ulp in CUDA) and two products.
    relative = (bounds.growth(xp, N) / 2 + 10) * bounds.FP32_ROUNDOFF
    scaled = xp.abs(out["y"] - bias)
    return bounds.rounded(xp, u, out["y"], relative * scaled + bounds.FP32_ROUNDOFF * xp.abs(out["y"]))


def inputs(rng, distribution, epsilon, N):
    drawn = {name: rng.floats(name, (N,), distribution) for name in ("weight", "bias")}
    return {"x": rng.floats("x", (N,), distribution, kinds=patchwork.SMALL), **drawn}


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="rms_norm",
    title="RMS normalisation",
    scenario="LLM",
    definition="yᵢ = wᵢ·xᵢ / √(1/N·Σⱼxⱼ² + ε) + bᵢ",
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
    inputs=inputs,
    distributions=STANDARD_DISTRIBUTIONS,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 4 * N * itemsize,
    flops=lambda N: 5 * N + 3,
    bound_note=(
        "A sum of N squares in fp32 errs by min(N', 8√N')·2⁻²⁴ of itself in any order, N' = min(N, 4096) (Higham "
        "2002, equation 4.4; Higham and Mary 2019, theorem 3.1), and the square root keeps half of that. Ten more "
        "roundings follow, and the one to the element type."
    ),
    library_note=(
        "cuDNN's RMS-norm operation where it takes the size, and cub::DeviceReduce followed by cub::DeviceTransform."
    ),
    bytes_note=(
        "The array is needed twice, for its sum of squares and for the result, and the part of it that the chip "
        "can't hold in between is read again."
    ),
    flops_note="Partial sums are added once more across threads and blocks.",
    paper_name="rms_norm",
)
