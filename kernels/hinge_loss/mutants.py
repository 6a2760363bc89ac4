"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant
from msbench.spec import Precision


def many(N):
    """Fewer elements may all lie where the mutant is right."""
    return N >= 64


MUTANTS = (
    Mutant("zeros", (("margin < 0 ? 0 : margin", "0.0f"),), applies=many),
    Mutant("no maximum", (("margin < 0 ? 0 : margin", "margin"),), applies=many),
    Mutant("targets taken for signs", (("targets[i] == 0 ? -1 : 1", "targets[i]"),), applies=many),
    Mutant("signs exchanged", (("targets[i] == 0 ? -1 : 1", "targets[i] == 0 ? 1 : -1"),), applies=many),
    Mutant("squared", (("margin < 0 ? 0 : margin", "margin < 0 ? 0 : margin * margin"),), applies=many),
    # So did the published bf16 baseline.
    Mutant(
        "first 1024 elements only",
        (("if (i >= N) return;", "if (i >= N || i >= 1024) return;"),),
        applies=lambda N: N > 1024,
    ),
    Mutant("dropped tail", (("if (i >= N) return;", "if (i >= N / 8 * 8) return;"),), applies=lambda N: N % 8 != 0),
    Mutant("off by one element at the end", (("if (i >= N) return;", "if (i >= N - 1) return;"),)),
    Mutant("stale output", (("if (i >= N) return;", "if (i >= N || i % 64 == 63) return;"),), applies=many),
    Mutant("off by one element", (("predictions[i])", "predictions[i > 0 ? i - 1 : 0])"),), applies=many),
    Mutant(
        "bf16 input",
        (("static_cast<float>(predictions[i])", "__bfloat162float(__float2bfloat16(predictions[i]))"),),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("hinge_loss_kernel", "predictions", "i", "N"),
)
