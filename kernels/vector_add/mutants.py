"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SUM = "static_cast<float>(A[i]) + static_cast<float>(B[i])"
MASKED = "__uint_as_float(__float_as_uint(static_cast<float>({}[i])) & {}u)"


def several(N):
    """Of a few elements each may be what the wrong kernel makes of it."""
    return N >= 8


MUTANTS = (
    Mutant("zeros", ((SUM, "0.0f"),)),
    Mutant("wrong sign", ((SUM, SUM.replace("+", "-")),), applies=several),
    Mutant("off by one element", (("B[i]", "B[(i + 1) % N]"),), applies=several),
    Mutant(
        "TF32 inputs",
        ((SUM, f"{MASKED.format('A', '0xffffe000')} + {MASKED.format('B', '0xffffe000')}"),),
        applies=several,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 inputs",
        ((SUM, f"{MASKED.format('A', '0xffff0000')} + {MASKED.format('B', '0xffff0000')}"),),
        applies=several,
        precisions=(Precision.FP32,),
    ),
    Mutant("dropped tail", (("if (i < N)", "if (i < N / 8 * 8)"),), applies=lambda N: N % 8 != 0),
    Mutant("stale output", (("if (i < N)", "if (i < N - 1)"),)),
    aligned_packets("vector_add_kernel", "A", "i", "N"),
)
