"""Wrong kernels that the check must reject.

A wrong window may have the right maximum; of fifty that have few elements and share none, not all have.
"""

from msbench.operators.mistakes import SURE, dropped_last_tile, flushed_subnormals, maximum_from, more
from msbench.operators.mutants import Mutant
from msbench.spec import Precision


def windows(size, k, stride, padding):
    return (size + 2 * padding - k) // stride + 1


def outputs(N, C, H, W, k, stride, padding):
    return N * C * windows(H, k, stride, padding) * windows(W, k, stride, padding)


def several(least_k=1):
    def applies(N, C, H, W, k, stride, padding):
        return least_k <= k <= min(4, H, W) and outputs(N, C, H, W, k, stride, padding) >= 50 * k * k

    return applies


def crosses_edges(N, C, H, W, k, stride, padding):
    """Whether there are enough windows with padding, and few enough elements in each, for some to be all negative."""
    beside = N * C * (windows(H, k, stride, padding) + windows(W, k, stride, padding))
    return padding > 0 and k <= 3 and beside >= 1500


def holds_lowest(N, C, H, W, k, stride, padding):
    """Whether some window has nothing but -∞, but for one time in ten thousand: k runs of memory have to meet."""
    return 16 ** (k - 1) * SURE < N * C * H * W


OUTPUTS = "N * C * ((H + 2 * padding - k) / stride + 1) * ((W + 2 * padding - k) / stride + 1)"

MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(largest)", "static_cast<scalar_t>(0.0f)"),)),
    Mutant("ignores padding", (("continue;", "{ largest = fmaxf(largest, 0.0f); continue; }"),), crosses_edges),
    Mutant(
        "starts at zero",
        (("largest = -INFINITY", "largest = 0"),),
        lambda **dims: dims["k"] == 1 and outputs(**dims) >= 64,
    ),
    Mutant("dropped last column of the window", (("b < k;", "b < k - 1;"),), several(2)),
    Mutant("off by one element", (("j * stride - padding + b", "j * stride - padding + b - 1"),), several()),
    Mutant("minimum", (("value > largest ||", "value < largest || largest == -INFINITY ||"),), several(2)),
    Mutant(
        "wrong stride",
        (("i * stride - padding", "i * (stride + 1) - padding"),),
        lambda **dims: several()(**dims) and windows(dims["H"], dims["k"], dims["stride"], dims["padding"]) >= 3,
    ),
    Mutant("stale output", (("if (at >= outputs)", "if (at >= outputs - 1)"),)),
    Mutant(
        "dropped tail", (("if (at >= outputs)", "if (at >= outputs / 4 * 4)"),), lambda **dims: outputs(**dims) % 4 != 0
    ),
    dropped_last_tile("if (at >= outputs) return;", "outputs", outputs=OUTPUTS),
    flushed_subnormals("image[row * W + column]", more("N * C * H * W", SURE)),
    maximum_from("0.0f", "0", more("N * C * H * W", SURE)),
    maximum_from(
        "-3.402823466e+38f",
        "the lowest finite number",
        holds_lowest,
        precisions=(Precision.FP32,),  # in bf16 it is rounded to -∞
    ),
)
