"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import (
    SURE,
    aligned_packets,
    dropped_last_tile,
    flushed_subnormals,
    lost_signs_of_zeros,
    more,
)
from msbench.operators.mutants import Mutant
from msbench.spec import Precision


def many(M, N):
    """Fewer elements may be equal by chance."""
    return M * N >= 64


MUTANTS = (
    Mutant("zeros", (("A[i]", "static_cast<scalar_t>(0.0f)"),)),
    Mutant(
        "dropped tail of each row",
        (("if (i >= M * N) return;", "if (i >= M * N || i % N >= N / 8 * 8) return;"),),
        applies=lambda M, N: N % 8 != 0,
    ),
    Mutant("off by one row at the end", (("if (i >= M * N) return;", "if (i >= (M - 1) * N) return;"),)),
    Mutant("stale output", (("if (i >= M * N) return;", "if (i >= M * N || i % 64 == 63) return;"),), applies=many),
    Mutant("off by one row", (("A[i]", "A[i >= N ? i - N : i]"),), applies=lambda M, N: M >= 2 and M * N >= 64),
    Mutant(
        "transposed index", (("A[i]", "A[i % M * N + i / M]"),), applies=lambda M, N: min(M, N) >= 2 and M * N >= 64
    ),
    Mutant(
        "bf16 rounding",
        (("A[i]", "static_cast<scalar_t>(__bfloat162float(__float2bfloat16(A[i])))"),),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    dropped_last_tile("if (i >= M * N) return;", "M * N"),
    aligned_packets("matrix_copy_kernel", "A", "i", "M * N"),
    flushed_subnormals("A[i]", more("M * N", SURE)),
    lost_signs_of_zeros("A[i]", more("M * N", SURE)),
)
