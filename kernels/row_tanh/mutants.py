"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant
from msbench.spec import Precision


def many(N):
    """Fewer elements may all lie where the mutant is right."""
    return N >= 64


def thousands(N):
    """Enough elements that several are near zero."""
    return N >= 2048


MUTANTS = (
    Mutant("zeros", (("tanhf(value)", "0.0f"),)),
    Mutant("identity", (("tanhf(value)", "value"),), applies=many),
    Mutant("one-sided", (("tanhf(value)", "fabsf(tanhf(value))"),), applies=many),
    # Its error of up to 3e-4 is within one rounding to bf16 on most elements.
    Mutant(
        "Padé approximant",
        (("tanhf(value)", "value * (15 + value * value) / (15 + 6 * value * value)"),),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    # In bf16 the cancellation shows only where |x| is below 2⁻¹⁵ or so.
    Mutant(
        "exponentials that cancel near zero",
        (("tanhf(value)", "1 - 2 / (1 + expf(2 * value))"),),
        applies=thousands,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 exponential",
        (("tanhf(value)", "1 - 2 / (1 + __bfloat162float(__float2bfloat16(expf(2 * value))))"),),
        applies=many,
    ),
    Mutant("dropped tail", (("if (i >= N) return;", "if (i >= N / 8 * 8) return;"),), applies=lambda N: N % 8 != 0),
    Mutant("off by one element at the end", (("if (i >= N) return;", "if (i >= N - 1) return;"),)),
    Mutant("stale output", (("if (i >= N) return;", "if (i >= N || i % 64 == 63) return;"),), applies=many),
    Mutant("off by one element", (("x[i])", "x[i > 0 ? i - 1 : 0])"),), applies=many),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("row_tanh_kernel", "x", "i", "N"),
)
