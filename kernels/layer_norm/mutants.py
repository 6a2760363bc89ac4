"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant

MEAN = "const float mean = total(sums) / N;\n    float own"
SUM = "partial[threadIdx.x] += partial[threadIdx.x + half];"
TRUNCATED = "__uint_as_float(__float_as_uint(partial[threadIdx.x] + partial[threadIdx.x + half]) & 0xffff0000u);"
VALUE = "static_cast<float>(weight[i]) * value + static_cast<float>(bias[i])"

MUTANTS = (
    Mutant("zeros", ((VALUE, "0.0f"),)),
    # Where there are few outputs, each may be little but its bias: here and below.
    Mutant("half the reduction", ((MEAN, MEAN.replace("\n", "\n    N /= 2;\n")),), applies=lambda N: N >= 8),
    Mutant(
        "off by one element",
        (("(static_cast<float>(x[i]) - mean) / deviation", "(static_cast<float>(x[(i + 1) % N]) - mean) / deviation"),),
        applies=lambda N: N >= 8,
    ),
    # Fewer elements are not added up in enough steps.
    Mutant("bf16 accumulation", ((SUM, f"partial[threadIdx.x] = {TRUNCATED}"),), applies=lambda N: N >= 256),
    Mutant("dropped tail", (("if (i >= N) return", "if (i >= N / 8 * 8) return"),), applies=lambda N: N % 8 != 0),
    # In longer vectors the difference of 1/2N comes near what fp32 arithmetic may err by.
    Mutant(
        "unbiased variance",
        (("total(squares) / N", "total(squares) / (N - 1)"),),
        applies=lambda N: N == 1 or 8 <= N <= 2**12,
    ),
    Mutant("wrong scalar", (("+ epsilon)", "+ 0.1f)"),), applies=lambda N: N >= 8),
    Mutant(
        "variance for deviation",
        (("sqrtf(total(squares) / N + epsilon)", "(total(squares) / N + epsilon)"),),
        applies=lambda N: N >= 8,
    ),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("normalise", "weight", "i", "N"),
)
