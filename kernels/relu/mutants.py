"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import SURE, aligned_packets, dropped_last_tile, flushed_subnormals, more
from msbench.operators.mutants import Mutant
from msbench.spec import Precision


def many(N):
    """Fewer elements may all lie where the mutant is right."""
    return N >= 64


MUTANTS = (
    Mutant("zeros", (("value < 0 ? 0 : value", "0.0f"),), applies=many),
    Mutant("identity", (("value < 0 ? 0 : value", "value"),), applies=many),
    Mutant("absolute value", (("value < 0 ? 0 : value", "value < 0 ? -value : value"),), applies=many),
    Mutant("minimum", (("value < 0 ? 0 : value", "value < 0 ? value : 0"),), applies=many),
    Mutant("dropped tail", (("if (i >= N) return;", "if (i >= N / 8 * 8) return;"),), applies=lambda N: N % 8 != 0),
    Mutant("off by one element at the end", (("if (i >= N) return;", "if (i >= N - 1) return;"),)),
    Mutant("stale output", (("if (i >= N) return;", "if (i >= N || i % 64 == 63) return;"),), applies=many),
    Mutant("off by one element", (("x[i])", "x[i > 0 ? i - 1 : 0])"),), applies=many),
    Mutant(
        "bf16 input",
        (("static_cast<float>(x[i])", "__bfloat162float(__float2bfloat16(x[i]))"),),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("relu_kernel", "x", "i", "N"),
    flushed_subnormals("x[i]", more("N", SURE)),
)
