"""Wrong kernels that the check must reject. A few rows may come out right by accident, hence M ≥ 32."""

from msbench.operators.mistakes import dropped_last_tile, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SUM = "sum += static_cast<float>(A[row * N + j]) * static_cast<float>(x[j]);"

MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sum);", "static_cast<scalar_t>(0.0f);"),)),
    Mutant("half the reduction", (("j < N; ++j", "j < N / 2; ++j"),), applies=lambda M, N: N >= 2),
    Mutant("off by one row", (("A[row * N + j]", "A[(row + 1) % M * N + j]"),), applies=lambda M, N: M >= 2),
    Mutant("transposed index", (("A[row * N + j]", "A[j * M + row]"),), applies=lambda M, N: M >= 2 and N >= 2),
    Mutant("dropped tail", (("j < N; ++j", "j < N / 8 * 8; ++j"),), applies=lambda M, N: M >= 32 and N % 8),
    Mutant("stale output", (("if (row >= M) return", "if (row >= M / 32 * 32) return"),), applies=lambda M, N: M % 32),
    Mutant(
        "TF32 inputs",
        (
            (
                SUM,
                "sum += __int_as_float(__float_as_int(static_cast<float>(A[row * N + j])) & ~0x1fff) *"
                " __int_as_float(__float_as_int(static_cast<float>(x[j])) & ~0x1fff);",
            ),
        ),
        applies=lambda M, N: M >= 32,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                SUM,
                "sum = __bfloat162float(__float2bfloat16("
                "sum + static_cast<float>(A[row * N + j]) * static_cast<float>(x[j])));",
            ),
        ),
        applies=lambda M, N: M >= 32 and N >= 8,
    ),
    dropped_last_tile("if (row >= M) return;", "M", "M * N"),
    skipped_zeros("static_cast<float>(A[row * N + j]) * static_cast<float>(x[j])", "x[j]", lambda M, N: M >= 32),
)
