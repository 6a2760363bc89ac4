"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant
from msbench.spec import Precision


def many(N):
    """Fewer elements may all lie where the mutant is right."""
    return N >= 64


def thousands(N):
    """The rounding moves only some elements out of their bounds."""
    return N >= 2048


MUTANTS = (
    Mutant("zeros", (("0.5f * value * (1 + erff(value * 0.70710678f))", "0.0f"),)),
    Mutant("no half", (("0.5f * value * (1 + erff(value * 0.70710678f))", "value * (1 + erff(value * 0.70710678f))"),)),
    Mutant(
        "no square root of two",
        (("0.5f * value * (1 + erff(value * 0.70710678f))", "0.5f * value * (1 + erff(value))"),),
        applies=many,
    ),
    # In bf16 its error, at most 2e-4 for inputs up to 1, is within one rounding on most elements.
    Mutant(
        "tanh approximation",
        (
            (
                "0.5f * value * (1 + erff(value * 0.70710678f))",
                "0.5f * value * (1 + tanhf(0.79788456f * (value + 0.044715f * value * value * value)))",
            ),
        ),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "logistic approximation",
        (("0.5f * value * (1 + erff(value * 0.70710678f))", "value / (1 + expf(-1.702f * value))"),),
        applies=many,
    ),
    Mutant(
        "bf16 error function",
        (("erff(value * 0.70710678f)", "__bfloat162float(__float2bfloat16(erff(value * 0.70710678f)))"),),
        applies=thousands,
    ),
    Mutant("dropped tail", (("if (i >= N) return;", "if (i >= N / 8 * 8) return;"),), applies=lambda N: N % 8 != 0),
    Mutant("off by one element at the end", (("if (i >= N) return;", "if (i >= N - 1) return;"),)),
    Mutant("stale output", (("if (i >= N) return;", "if (i >= N || i % 64 == 63) return;"),), applies=many),
    Mutant("off by one element", (("x[i])", "x[i > 0 ? i - 1 : 0])"),), applies=many),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("gelu_kernel", "x", "i", "N"),
)
