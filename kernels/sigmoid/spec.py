"""sigmoid: a map with an exponential and a quotient."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, N):
    return 1 / (1 + xp.exp(-x))


def bound(xp, u, out, x, N):
    y = out["y"]
    return bounds.rounded(xp, u, y, bounds.FP32_ROUNDOFF * bounds.logistic(xp, x) * y)


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="sigmoid",
    title="Sigmoid",
    scenario="Activations and losses",
    definition="yᵢ = 1 / (1 + exp(-xᵢ))",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: 3 * N,
    deterministic=True,
    bound_note=(
        "The exponential errs by (5 + 3|x|)·2⁻²⁴ of itself, which carries __expf (CUDA C++ Programming Guide, "
        "intrinsic functions: 2 + 1.173|x| ulp), and hands on its share 1 - y of that; the sum and a quotient of 2 "
        "ulp add 6·2⁻²⁴, and the rounding to the element type follows. The bound is relative to each output, so "
        "small outputs count like large ones; (1 + tanh(x/2))/2, which cancels, meets it only where x > -3 or so."
    ),
    library_note="cub::DeviceTransform and cudnnActivationForward; the faster of the two is the bar.",
    flops_note=(
        "An exponential and a division count as one operation each; computed, they are special-function "
        "instructions, which are no additions or multiplications, with a few of those around them."
    ),
    paper_name="sigmoid",
)
