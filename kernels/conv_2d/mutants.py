"""Wrong kernels that the check must reject.

With few outputs each wrong sum may come out right by chance, or nearly so; with 64 that does not happen.
"""

from msbench.operators.mistakes import dropped_last_tile, samples_before_it_rounds, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

PRODUCT = "sum += static_cast<float>(w[a * KW + b]) * static_cast<float>(x[(i + a) * W + j + b]);"
TF32 = "__device__ float tf32(float a) { return __int_as_float(__float_as_int(a) & ~0x1fff); }\n\n__global__"


def several(least_rows=1, least_columns=1, least=1):
    def applies(H, W, KH, KW):
        enough = least_rows <= KH and least_columns <= KW and least <= KH * KW
        return enough and (H - KH + 1) * (W - KW + 1) >= 64

    return applies


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sum)", "static_cast<scalar_t>(0.0f)"),), several()),
    Mutant("half the reduction", (("a < KH;", "a < KH / 2;"),), several()),
    Mutant("dropped last column of the filter", (("b < KW;", "b < KW - 1;"),), several()),
    Mutant("off by one row", (("(i + a) * W", "(i + (a + 1) % KH) * W"),), several(least_rows=2)),
    Mutant("flipped filter", (("w[a * KW + b]", "w[(KH - 1 - a) * KW + KW - 1 - b]"),), several(least=2)),
    Mutant("transposed index", (("w[a * KW + b]", "w[b * KH + a]"),), several(2, 2)),
    Mutant(
        "bf16 accumulation",
        ((PRODUCT, PRODUCT + " sum = static_cast<float>(static_cast<__nv_bfloat16>(sum));"),),
        # bf16 rounds a product anyway, and a sum of few is right too often.
        several(least=4),
    ),
    Mutant(
        "TF32 inputs",
        (
            (PRODUCT, PRODUCT.replace("(w[", "(tf32(w[").replace("(x[", "(tf32(x[").replace("])", "]))")),
            ("__global__", TF32),
        ),
        several(),
        (Precision.FP32,),
    ),
    Mutant("stale output", (("if (i >= rows ||", "if (i >= rows - 1 ||"),)),
    Mutant("dropped tail", (("j >= columns)", "j >= columns / 4 * 4)"),), lambda H, W, KH, KW: (W - KW + 1) % 4 != 0),
    dropped_last_tile(
        "if (i >= rows || j >= columns) return;", "columns", "rows * columns", rows="H - KH + 1", columns="W - KW + 1"
    ),
    skipped_zeros(
        "static_cast<float>(w[a * KW + b]) * static_cast<float>(x[(i + a) * W + j + b])",
        "w[a * KW + b]",
        lambda H, W, KH, KW: KH * KW >= 16 and H * W >= 240 * KH * KW,
    ),
    samples_before_it_rounds(
        "conv_2d_kernel",
        "sum += static_cast<float>(w[a * KW + b]) * static_cast<float>(x[(i + a) * W + j + b]);",
        "static_cast<float>(w[a * KW + b])",
        "static_cast<float>(x[(i + a) * W + j + b])",
        {"x": "(rows + KH - 1) * W"},  # 64 places of a filter are nearly all of it
        lambda H, W, KH, KW: KH * KW >= 40 and H * W >= 512 * KH * KW,
    ),
)
