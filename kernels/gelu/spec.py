"""gelu: a map with an error function that cancels where x is negative."""

import importlib
from math import sqrt

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split

SATURATED = -8.0  # erf(x/√2) is -1 in fp32 for every x below: 1 - 1e-15


def reference(xp, x, N):
    # 1 + erf(z) is erfc(-z), which does not cancel.
    return x / 2 * error_function(xp).erfc(x * -sqrt(0.5))


def error_function(xp):
    """The module with erfc for arrays of ``xp``: neither NumPy nor CuPy has it in itself."""
    return importlib.import_module("scipy.special" if xp.__name__ == "numpy" else "cupyx.scipy.special")


def bound(xp, u, out, x, N):
    size = xp.abs(out["y"])
    # In units of v. |x|/2 times what 1 + erf errs by: 2.5 for erf, 1 for two roundings of its argument, whatever its
    # sign; normcdf or erfc, and products, err by 12 of the result. Below SATURATED zero is right as well.
    error = xp.where(x < SATURATED, size, bounds.FP32_ROUNDOFF * (2 * xp.abs(x) + 12 * size))
    return bounds.rounded(xp, u, out["y"], error)


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="gelu",
    title="GELU",
    scenario="Activations and losses",
    definition="yᵢ = xᵢ/2·(1 + erf(xᵢ/√2))",
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
    flops=lambda N: 5 * N,
    deterministic=True,
    bound_note=(
        "1 + erf(z) errs by at most 4·2⁻²⁴, absolute, as erf nears -1 and cancels: erff has 2 ulp, and its "
        "argument's two roundings are worth one more (CUDA C++ Programming Guide, mathematical functions); times "
        "|x|/2 that is 2|x|·2⁻²⁴, beside 12·2⁻²⁴ of the result for products or for normcdff's 5 ulp. Below x = -8 "
        "erf is -1 in fp32 and 0 is as good as the result, which is smaller than 1e-14; approximations by tanh or a "
        "logistic function are not, in fp32."
    ),
    library_note="cub::DeviceTransform, which picks vector widths and bytes in flight for the GPU at hand.",
    flops_note="erf counts as one operation; computed, it is a polynomial of a dozen additions and multiplications.",
    paper_name="gelu",
)
