"""dot_product: the sum of products of two vectors; one number out of two streams."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Split


def reference(xp, X, Y, N):
    return xp.sum(X * Y).reshape(1)


def bound(xp, u, out, X, Y, N):
    # Products of sorted vectors are alike, in bf16 all over the block, and so are the roundings of each thread's sum.
    terms = X * Y
    error = bounds.summed(xp, terms, bounds.alike(xp, terms))
    # The result is fp32 in both precisions.
    return bounds.rounded(xp, bounds.FP32_ROUNDOFF, out["out"], error)


def inputs(rng, distribution, N):
    """``opposed``: zeros against a NaN or an infinity, which no kernel may leave out; X is zero where N is even, else Y."""
    if distribution != "opposed":
        return {name: rng.floats(name, (N,), distribution, kinds=patchwork.SMALL) for name in "XY"}
    zero, other = "YX" if N % 2 else "XY"
    drawn = {zero: rng.floats(zero, (N,), "zeros"), other: rng.floats(other, (N,), "uniform")}
    drawn[other][rng.position("place", N)] = (float("nan"), float("inf"), float("-inf"))[rng.position("value", 3)]
    return drawn


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="dot_product",
    title="Dot product",
    scenario="Dense algebra",
    definition="out = Σᵢ Xᵢ·Yᵢ, one float in both precisions",
    dims=(Dim("N", 1, 2**28, "elements"),),
    arrays=(Array("X", ("N",)), Array("Y", ("N",)), Array("out", ("1",), "f32", output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in range(16, 21)),
        case(2**27, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    inputs=inputs,
    distributions=(*STANDARD_DISTRIBUTIONS, "opposed"),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize + 4,
    flops=lambda N: 2 * N,
    bound_note=(
        "A sum of N products in fp32, in any order, errs by 8·2⁻²⁴·√min(N, 4096) times its largest partial sum (Higham "
        "and Mary 2019, theorem 3.1), taken as the largest of eight partial sums plus √Σ(XᵢYᵢ)², and by up to "
        "2⁻²⁴·min(N, 4096) times it where products are sorted or all alike, so that they round alike (Higham 2002, equation "
        "4.4). The result is stored in fp32, so nothing is rounded to bf16."
    ),
    library_note=(
        "cublasSdot (fp32) and cub::DeviceReduce::TransformReduce (both precisions); the faster of the two is the bar. "
        "cublasDotEx is left out: its usual call on bf16 vectors gives a bf16 result, which is not the one asked for."
    ),
    paper_name="dot_product",
)
