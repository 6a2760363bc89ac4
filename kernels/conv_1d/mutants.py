"""Wrong kernels that the check must reject.

With few outputs each wrong sum may come out right by chance, or nearly so; with 64 that does not happen.
"""

from msbench.operators.mistakes import dropped_last_tile, samples_before_it_rounds, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

PRODUCT = "sum += static_cast<float>(w[k]) * static_cast<float>(x[i + k]);"
TF32 = "__device__ float tf32(float a) { return __int_as_float(__float_as_int(a) & ~0x1fff); }\n\n__global__"


def several(least_k=1):
    return lambda N, K: least_k <= K <= N - 63


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sum)", "static_cast<scalar_t>(0.0f)"),), several()),
    Mutant("half the reduction", (("k < K;", "k < K / 2;"),), several()),
    Mutant("dropped last product", (("k < K;", "k < K - 1;"),), several()),
    Mutant("off by one element", (("x[i + k]", "x[i + (k + 1) % K]"),), several(2)),
    Mutant("flipped filter", (("(w[k])", "(w[K - 1 - k])"),), several(2)),
    Mutant(
        "bf16 accumulation",
        ((PRODUCT, PRODUCT + " sum = static_cast<float>(static_cast<__nv_bfloat16>(sum));"),),
        # bf16 rounds a product anyway, and a sum of few is right too often.
        several(4),
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
    Mutant("stale output", (("if (i >= N - K + 1) return", "if (i >= N - K) return"),)),
    Mutant(
        "dropped tail", (("if (i >= N - K + 1)", "if (i >= (N - K + 1) / 4 * 4)"),), lambda N, K: (N - K + 1) % 4 != 0
    ),
    dropped_last_tile("if (i >= N - K + 1) return;", "N - K + 1"),
    skipped_zeros(
        "static_cast<float>(w[k]) * static_cast<float>(x[i + k])", "w[k]", lambda N, K: K >= 16 and N >= 120 * K
    ),
    samples_before_it_rounds(
        "conv_1d_kernel",
        "sum += static_cast<float>(w[k]) * static_cast<float>(x[i + k]);",
        "static_cast<float>(w[k])",
        "static_cast<float>(x[i + k])",
        {"x": "N"},  # 64 places of a filter are nearly all of it
        lambda N, K: K >= 64 and N >= 128 * K,
    ),
)
