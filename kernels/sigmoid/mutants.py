"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant


def many(N):
    """Fewer elements may all lie where the mutant is right."""
    return N >= 64


def thousands(N):
    """The rounding moves only some elements out of their bounds."""
    return N >= 2048


MUTANTS = (
    Mutant("zeros", (("1 / (1 + expf(-value))", "0.0f"),)),
    Mutant("wrong sign", (("1 / (1 + expf(-value))", "1 / (1 + expf(value))"),), applies=many),
    Mutant("exponential without the 1", (("1 / (1 + expf(-value))", "1 / expf(-value)"),)),
    Mutant(
        "piecewise linear",
        (("1 / (1 + expf(-value))", "fminf(fmaxf(0.25f * value + 0.5f, 0.0f), 1.0f)"),),
        applies=many,
    ),
    Mutant(
        "bf16 exponential", (("expf(-value)", "__bfloat162float(__float2bfloat16(expf(-value)))"),), applies=thousands
    ),
    Mutant("dropped tail", (("if (i >= N) return;", "if (i >= N / 8 * 8) return;"),), applies=lambda N: N % 8 != 0),
    Mutant("off by one element at the end", (("if (i >= N) return;", "if (i >= N - 1) return;"),)),
    Mutant("stale output", (("if (i >= N) return;", "if (i >= N || i % 64 == 63) return;"),), applies=many),
    Mutant("off by one element", (("x[i])", "x[i > 0 ? i - 1 : 0])"),), applies=many),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("sigmoid_kernel", "x", "i", "N"),
)
