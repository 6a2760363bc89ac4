"""Wrong kernels that the check must reject.

Leaving out the subtraction of the maximum is not among them: uniform inputs are right without it, and others overflow.
"""

from msbench.operators.mistakes import dropped_last_tile, maximum_from
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SUM = "for (int64_t j = 0; j < C; ++j) sum += expf(static_cast<float>(x[j]) - maximum);"
OUTPUT = "y[j] = static_cast<scalar_t>(expf(static_cast<float>(x[j]) - maximum) / sum);"

MUTANTS = (
    Mutant("zeros", ((OUTPUT, "y[j] = static_cast<scalar_t>(0.0f);"),)),
    Mutant("half the reduction", ((SUM, SUM.replace("j < C", "j < (C + 1) / 2")),), applies=lambda N, C: C >= 2),
    # In longer rows one element is within what fp32 sums may err by; in bf16 within two roundings.
    Mutant(
        "off by one element",
        ((SUM, SUM.replace("j < C", "j < C - 1")),),
        applies=lambda N, C: C <= 2**11,
        precisions=(Precision.FP32,),
    ),
    # Fewer terms do not lose enough.
    Mutant(
        "bf16 accumulation",
        (
            (
                SUM,
                "for (int64_t j = 0; j < C; ++j) sum = __uint_as_float(__float_as_uint(sum + "
                "expf(static_cast<float>(x[j]) - maximum)) & 0xffff0000u);",
            ),
        ),
        applies=lambda N, C: C >= 64,
    ),
    Mutant("wrong base", ((OUTPUT, OUTPUT.replace("expf", "exp2f")),), applies=lambda N, C: C >= 2),
    Mutant("no division", ((" / sum", ""),), applies=lambda N, C: C >= 2),
    Mutant(
        "dropped tail",
        (("for (int64_t j = 0; j < C; ++j) y[j]", "for (int64_t j = 0; j < C / 8 * 8; ++j) y[j]"),),
        applies=lambda N, C: C % 8 != 0,
    ),
    Mutant("stale output", (("if (row >= N) return", "if (row >= N - 1) return"),)),
    dropped_last_tile("if (row >= N) return;", "N", "N * C"),
    maximum_from("0.0f", "0", lambda N, C: N >= 100),
)
