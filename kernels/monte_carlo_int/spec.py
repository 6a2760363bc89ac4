"""monte_carlo_int: an integral from samples at random places, which is a plain sum and a factor."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Scalar, Split


def reference(xp, y, a, b, N):
    return ((b - a) / N * xp.sum(y)).reshape(1)


def bound(xp, u, out, y, a, b, N):
    # Of the roundings of b - a, N, the quotient and the product there are at most four; samples may be scaled first.
    error = abs(b - a) / N * bounds.summed(xp, y) + 6 * bounds.FP32_ROUNDOFF * xp.abs(out["out"])
    return bounds.rounded(xp, u, out["out"], error)


def inputs(rng, distribution, a, b, N):
    return {"y": 10 * rng.floats("y", (N,), distribution, kinds=patchwork.SMALL)}


def case(n, split, **scalars):
    return Case((("N", n),), split, scalars=tuple(scalars.items()))


OPERATOR = Operator(
    name="monte_carlo_int",
    title="Monte Carlo integral",
    scenario="Scientific",
    definition="out = (b - a)/N·Σᵢ yᵢ; the samples yᵢ are uniform on [-10, 10)",
    dims=(Dim("N", 1, 2**28, "samples"),),
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
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: (N + 1) * itemsize,
    flops=lambda N: N + 2,
    inputs=inputs,
    distributions=STANDARD_DISTRIBUTIONS,
    bound_note=(
        "A sum of N terms in fp32, in any order, errs by 8·2⁻²⁴·√min(N, 4096) times its largest partial sum (Higham "
        "and Mary 2019, theorem 3.1), taken as the largest of eight partial sums plus √Σy². Six roundings of the "
        "factor come on top, and the one to the element type."
    ),
    library_note="cub::DeviceReduce::TransformReduce, with samples loaded one by one or in packets.",
    paper_name="monte_carlo_int",
)
