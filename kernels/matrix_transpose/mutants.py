"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import SURE, aligned_packets, flushed_subnormals, lost_signs_of_zeros, more
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

MUTANTS = (
    Mutant("zeros", (("= A[row * N + column];", "= static_cast<scalar_t>(0.0f);"),)),
    # One row, or one column, is its own transpose in memory.
    Mutant(
        "transposed index", (("B[column * M + row]", "B[row * N + column]"),), applies=lambda M, N: M >= 2 and N >= 2
    ),
    Mutant("off by one row", (("A[row * N + column]", "A[(row + 1) % M * N + column]"),), applies=lambda M, N: M >= 2),
    Mutant(
        "TF32 inputs",
        (("= A[row * N + column];", "= __uint_as_float(__float_as_uint(A[row * N + column]) & 0xffffe000u);"),),
        applies=lambda M, N: M * N >= 8,
        precisions=(Precision.FP32,),
    ),
    Mutant("dropped tail", (("column < N)", "column < N / 8 * 8)"),), applies=lambda M, N: N % 8 != 0),
    Mutant("stale output", (("row < M &&", "row < M - 1 &&"),)),
    aligned_packets("matrix_transpose_kernel", "A", "row * N + column", "M * N"),
    flushed_subnormals("A[row * N + column]", more("M * N", SURE)),
    lost_signs_of_zeros("A[row * N + column]", more("M * N", SURE)),
)
