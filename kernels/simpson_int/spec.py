"""simpson_int: an integral by the composite Simpson rule, which is a sum with alternating weights and a factor."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Scalar, Split


def last_sample(N):
    """Intervals come in pairs: the last sample of an even number has no part."""
    return (N - 1) // 2 * 2


def reference(xp, y, a, b, N):
    last = last_sample(N)
    if last == 0:
        return xp.zeros(1)
    total = y[0] + y[last] + 4 * xp.sum(y[1:last:2]) + 2 * xp.sum(y[2:last:2])
    return ((b - a) / (N - 1) / 3 * total).reshape(1)


def bound(xp, u, out, y, a, b, N):
    last = last_sample(N)
    if last == 0:
        return xp.full(1, bounds.EITHER_ZERO)
    terms = 2 * y[: last + 1]
    terms[1::2] *= 2
    terms[[0, -1]] /= 2
    # Of the roundings of b - a, N - 1, two quotients and the product there are at most five; samples may be scaled first.
    error = abs(b - a) / (N - 1) / 3 * bounds.summed(xp, terms) + 6 * bounds.FP32_ROUNDOFF * xp.abs(out["out"])
    return bounds.rounded(xp, u, out["out"], error)


def case(n, split, **scalars):
    return Case((("N", n),), split, scalars=tuple(scalars.items()))


OPERATOR = Operator(
    name="simpson_int",
    title="Simpson integral",
    scenario="Scientific",
    definition=(
        "out = (b - a)/(N - 1)/3·Σₖ (y₂ₖ + 4y₂ₖ₊₁ + y₂ₖ₊₂), k from 0 to (N - 1)//2 - 1: "
        "the last sample of an even N is ignored, even a NaN, and N < 3 gives 0"
    ),
    dims=(Dim("N", 1, 2**28, "samples at equal distances"),),
    arrays=(Array("y", ("N",)), Array("out", ("1",), output=True)),
    # Exact in fp32, so that a kernel and the reference work with the same interval. No hidden one is as long as the usual one.
    scalars=(
        Scalar("a", "float", -1.0, low=-8.0, high=-2.0, step=2**-12),
        Scalar("b", "float", 2.5, low=3.0, high=8.0, step=2**-12),
    ),
    cases=(
        *(case(2**k, Split.PAPER) for k in (14, 16, 18, 20, 22)),
        case(2**27, Split.LARGE),
        case(1_000_003, Split.ODD),
        case(10_007, Split.ODD, a=3.0, b=-0.5),
    ),
    distributions=STANDARD_DISTRIBUTIONS,
    kinds=patchwork.SMALL,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: (N + 1) * itemsize,
    flops=lambda N: 2 * N + 3,
    flops_note="A sample's weight counts as an operation; a kernel that adds up samples of the same weight multiplies their sum once.",
    bound_note=(
        "A sum of N weighted samples in fp32, in any order, errs by 8·2⁻²⁴·√min(N, 4096) times its largest partial sum "
        "(Higham and Mary 2019, theorem 3.1), taken as the largest of eight partial sums plus √Σ(wᵢyᵢ)². Six roundings "
        "of the factor come on top, and the one to the element type."
    ),
    library_note="cub::DeviceReduce::TransformReduce, with samples loaded one by one or in packets.",
    paper_name="simpson_int",
)
