"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import dropped_last_tile, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SUM = "sum += static_cast<float>(left[row * N + k]) * static_cast<float>(right[k * N + column]);"


MUTANTS = (
    Mutant("zeros", (("static_cast<Result>(power[i]);", "static_cast<Result>(0.0f);"),)),
    Mutant("half the reduction", (("k < N; ++k", "k < N / 2; ++k"),), applies=lambda N, P: P >= 2 and N >= 2),
    Mutant(
        "one power less",
        (("if (P & bit)", "if ((P - 1) & bit)"),),
        applies=lambda N, P: N >= 8 and P >= 3 and P % 2 == 1,
    ),
    Mutant("squares only", (("if (P & bit)", "if (false)"),), applies=lambda N, P: N >= 8 and P & (P - 1)),
    Mutant(
        "transposed index",
        (("right[k * N + column]", "right[column * N + k]"),),
        applies=lambda N, P: P >= 2 and N >= 2,
    ),
    Mutant("dropped tail", (("k < N; ++k", "k < N / 8 * 8; ++k"),), applies=lambda N, P: P >= 2 and N % 8),
    Mutant(
        "stale output",
        (
            (
                "if (i < N * N) result[i] = static_cast<Result>(power[i])",
                "if (i < N) result[i] = static_cast<Result>(power[i])",
            ),
        ),
        applies=lambda N, P: N >= 2,
    ),
    Mutant(
        "TF32 inputs",
        (
            (
                SUM,
                "sum += __int_as_float(__float_as_int(static_cast<float>(left[row * N + k])) & ~0x1fff) *"
                " __int_as_float(__float_as_int(static_cast<float>(right[k * N + column])) & ~0x1fff);",
            ),
        ),
        applies=lambda N, P: P >= 2 and N >= 4,  # a few elements may come out right by accident
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                SUM,
                "sum = __bfloat162float(__float2bfloat16("
                "sum + static_cast<float>(left[row * N + k]) * static_cast<float>(right[k * N + column])));",
            ),
        ),
        applies=lambda N, P: P >= 2 and N >= 16,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation in bf16",
        (
            (
                SUM,
                "sum = __bfloat162float(__float2bfloat16("
                "sum + static_cast<float>(left[row * N + k]) * static_cast<float>(right[k * N + column])));",
            ),
        ),
        # Below that it is no worse than the rounding of intermediate powers, which is allowed.
        applies=lambda N, P: P >= 2 and N >= 64,
        precisions=(Precision.BF16,),
    ),
    dropped_last_tile("if (row >= N || column >= N) return;", "N", "N * N"),
    skipped_zeros(
        "static_cast<float>(left[row * N + k]) * static_cast<float>(right[k * N + column])",
        "left[row * N + k]",
        lambda N, P: P == 2 and N >= 16,  # higher powers have no zeros
        distribution="nan",
    ),
)
