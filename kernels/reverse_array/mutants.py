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


def many(N):
    """Fewer elements may be equal by chance."""
    return N >= 64


MUTANTS = (
    Mutant("zeros", (("x[N - 1 - i]", "static_cast<scalar_t>(0.0f)"),)),
    Mutant("copy", (("x[N - 1 - i]", "x[i]"),), applies=many),
    Mutant("off by one element", (("x[N - 1 - i]", "x[i > 0 ? N - i : 0]"),), applies=many),
    Mutant(
        "reversed within blocks",
        (("x[N - 1 - i]", "x[(i / 256 * 256 + 255 < N ? i / 256 * 256 + 255 : N - 1) - i % 256]"),),
        applies=lambda N: N > 512,
    ),
    Mutant(
        "bf16 rounding",
        (("x[N - 1 - i]", "static_cast<scalar_t>(__bfloat162float(__float2bfloat16(x[N - 1 - i])))"),),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    Mutant("dropped tail", (("if (i >= N) return;", "if (i >= N / 8 * 8) return;"),), applies=lambda N: N % 8 != 0),
    Mutant("off by one element at the end", (("if (i >= N) return;", "if (i >= N - 1) return;"),)),
    Mutant("stale output", (("if (i >= N) return;", "if (i >= N || i % 64 == 63) return;"),), applies=many),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("reverse_array_kernel", "x", "N - 1 - i", "N"),
    flushed_subnormals("x[N - 1 - i]", more("N", SURE)),
    lost_signs_of_zeros("x[N - 1 - i]", more("N", SURE)),
)
