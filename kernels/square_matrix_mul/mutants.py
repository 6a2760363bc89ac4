"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import dropped_last_tile, samples_before_it_rounds, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SUM = "sum += static_cast<float>(A[row * M + k]) * static_cast<float>(B[k * M + column]);"

MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sum);", "static_cast<scalar_t>(0.0f);"),)),
    Mutant("half the reduction", (("k < M; ++k", "k < M / 2; ++k"),), applies=lambda M: M >= 2),
    Mutant("off by one row", (("A[row * M + k]", "A[(row + 1) % M * M + k]"),), applies=lambda M: M >= 2),
    Mutant("transposed index", (("B[k * M + column]", "B[column * M + k]"),), applies=lambda M: M >= 2),
    Mutant("dropped tail", (("k < M; ++k", "k < M / 16 * 16; ++k"),), applies=lambda M: M % 16),
    Mutant(
        "stale output",
        (("if (row >= M || column >= M) return", "if (row >= M || column >= M / 4 * 4) return"),),
        applies=lambda M: M % 4,
    ),
    Mutant(
        "TF32 inputs",
        (
            (
                SUM,
                "sum += __int_as_float(__float_as_int(static_cast<float>(A[row * M + k])) & ~0x1fff) *"
                " __int_as_float(__float_as_int(static_cast<float>(B[k * M + column])) & ~0x1fff);",
            ),
        ),
        applies=lambda M: M >= 4,  # a few elements may come out right by accident
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                SUM,
                "sum = __bfloat162float(__float2bfloat16("
                "sum + static_cast<float>(A[row * M + k]) * static_cast<float>(B[k * M + column])));",
            ),
        ),
        applies=lambda M: M >= 8,
    ),
    dropped_last_tile("if (row >= M || column >= M) return;", "M", "M * M"),
    skipped_zeros(
        "static_cast<float>(A[row * M + k]) * static_cast<float>(B[k * M + column])",
        "A[row * M + k]",
        lambda M: M >= 60,
    ),
    samples_before_it_rounds(
        "square_matrix_mul_kernel",
        "sum += static_cast<float>(A[row * M + k]) * static_cast<float>(B[k * M + column]);",
        "static_cast<float>(A[row * M + k])",
        "static_cast<float>(B[k * M + column])",
        {"A": "M * M", "B": "M * M"},
        lambda M: M >= 256,
    ),
)
