"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant


def many(M, N):
    """Fewer elements may be equal by chance."""
    return M * N >= 64


MUTANTS = (
    Mutant("zeros", (("a * static_cast<float>(A[i])", "0.0f"),)),
    Mutant("plain copy", (("a * static_cast<float>(A[i])", "static_cast<float>(A[i])"),)),
    Mutant("wrong scalar", (("a * static_cast<float>(A[i])", "2 * a * static_cast<float>(A[i])"),)),
    Mutant("sum instead of product", (("a * static_cast<float>(A[i])", "a + static_cast<float>(A[i])"),), applies=many),
    # In bf16 it moves only some elements out of their bounds.
    Mutant(
        "bf16 scalar",
        (("a * static_cast<float>(A[i])", "__bfloat162float(__float2bfloat16(a)) * static_cast<float>(A[i])"),),
        applies=lambda M, N: M * N >= 2048,
    ),
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
    dropped_last_tile("if (i >= M * N) return;", "M * N"),
    aligned_packets("matrix_scalar_mul_kernel", "A", "i", "M * N"),
)
