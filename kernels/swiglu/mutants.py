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
    Mutant("zeros", (("x * sigmoid * static_cast<float>(value[i])", "0.0f"),)),
    Mutant("no sigmoid", (("1 / (1 + expf(-beta * x))", "1.0f"),), applies=many),
    Mutant("no value", ((" * static_cast<float>(value[i])", ""),), applies=many),
    Mutant("wrong scalar", (("1 / (1 + expf(-beta * x))", "1 / (1 + expf(-2 * beta * x))"),), applies=many),
    Mutant("sigmoid alone", (("x * sigmoid *", "sigmoid *"),), applies=many),
    Mutant(
        "bf16 sigmoid",
        (("1 / (1 + expf(-beta * x))", "__bfloat162float(__float2bfloat16(1 / (1 + expf(-beta * x))))"),),
        applies=thousands,
    ),
    Mutant(
        "gate and value exchanged",
        (
            ("float x = static_cast<float>(gate[i])", "float x = static_cast<float>(value[i])"),
            ("x * sigmoid * static_cast<float>(value[i])", "x * sigmoid * static_cast<float>(gate[i])"),
        ),
        applies=many,
    ),
    Mutant("dropped tail", (("if (i >= N) return;", "if (i >= N / 8 * 8) return;"),), applies=lambda N: N % 8 != 0),
    Mutant("off by one element at the end", (("if (i >= N) return;", "if (i >= N - 1) return;"),)),
    Mutant("stale output", (("if (i >= N) return;", "if (i >= N || i % 64 == 63) return;"),), applies=many),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("swiglu_kernel", "gate", "i", "N"),
)
