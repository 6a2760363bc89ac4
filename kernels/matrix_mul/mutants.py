"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import dropped_last_tile, samples_before_it_rounds, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

LOOP = "for (int64_t k = 0; k < K; ++k)"
A, B = "static_cast<float>(A[row * K + k])", "static_cast<float>(B[k * N + column])"
SUM = f"sum += {A} * {B};"
MASKED = "__uint_as_float(__float_as_uint({}) & {}u)"


def several(M, N, K):
    """Of a few outputs each may be what the wrong kernel makes of it."""
    return M * N >= 64


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sum)", "static_cast<scalar_t>(0.0f)"),)),
    Mutant(
        "half the reduction",
        ((LOOP, LOOP.replace("k < K", "k < K / 2")),),
        applies=lambda M, N, K: several(M, N, K) and K >= 2,
    ),
    Mutant(
        "dropped tail",
        ((LOOP, LOOP.replace("k < K", "k < K / 8 * 8")),),
        applies=lambda M, N, K: several(M, N, K) and K % 8 != 0,
    ),
    Mutant(
        "bf16 accumulation",
        ((SUM, f"sum = {MASKED.format(f'sum + {A} * {B}', '0xffff0000')};"),),
        applies=lambda M, N, K: several(M, N, K) and K >= 32,
    ),
    Mutant(
        "TF32 inputs",
        ((SUM, f"sum += {MASKED.format(A, '0xffffe000')} * {MASKED.format(B, '0xffffe000')};"),),
        applies=several,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "transposed index",
        (("B[k * N + column]", "B[column * K + k]"),),
        applies=lambda M, N, K: several(M, N, K) and N >= 2 and K >= 2,
    ),
    Mutant(
        "off by one row",
        (("A[row * K + k]", "A[(row + 1) % M * K + k]"),),
        applies=lambda M, N, K: several(M, N, K) and M >= 2,
    ),
    Mutant("stale output", (("column >= N) return", "column >= N - 1) return"),)),
    dropped_last_tile("if (row >= M || column >= N) return;", "M", "M * N"),
    skipped_zeros(
        "static_cast<float>(A[row * K + k]) * static_cast<float>(B[k * N + column])",
        "A[row * K + k]",
        lambda M, N, K: min(M, N) >= 60 and K >= 16,
    ),
    samples_before_it_rounds(
        "matrix_mul_kernel",
        "sum += static_cast<float>(A[row * K + k]) * static_cast<float>(B[k * N + column]);",
        "static_cast<float>(A[row * K + k])",
        "static_cast<float>(B[k * N + column])",
        {"A": "M * K", "B": "K * N"},
        lambda M, N, K: M >= 30 and N >= 700 and K >= 256,
    ),
)
