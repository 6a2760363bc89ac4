"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant


def many(B, D):
    """Fewer elements may all lie where the mutant is right."""
    return B * D >= 64


MUTANTS = (
    Mutant("zeros", (("silu * value", "0.0f"),)),
    Mutant("no value", (("silu * value", "silu"),), applies=many),
    Mutant("no SiLU", (("gate / (1 + expf(-gate))", "gate"),), applies=many),
    Mutant("sigmoid alone", (("gate / (1 + expf(-gate))", "1 / (1 + expf(-gate))"),), applies=many),
    Mutant(
        "halves exchanged",
        (("row * 2 * D + column", "row * 2 * D + (D + column)"), ("row * 2 * D + D + column", "row * 2 * D + column")),
        applies=many,
    ),
    Mutant(
        "adjacent pairs",
        (
            ("row * 2 * D + column", "row * 2 * D + 2 * column"),
            ("row * 2 * D + D + column", "row * 2 * D + 2 * column + 1"),
        ),
        applies=lambda B, D: D >= 2 and B * D >= 64,
    ),
    # Rounded twice in bf16, some elements leave their bounds.
    Mutant(
        "bf16 SiLU",
        (("gate / (1 + expf(-gate))", "__bfloat162float(__float2bfloat16(gate / (1 + expf(-gate))))"),),
        applies=lambda B, D: B * D >= 2048,
    ),
    Mutant(
        "dropped tail of each row",
        (("if (i >= B * D) return;", "if (i >= B * D || i % D >= D / 8 * 8) return;"),),
        applies=lambda B, D: D % 8 != 0,
    ),
    Mutant("off by one row at the end", (("if (i >= B * D) return;", "if (i >= (B - 1) * D) return;"),)),
    Mutant("stale output", (("if (i >= B * D) return;", "if (i >= B * D || i % 64 == 63) return;"),), applies=many),
    dropped_last_tile("if (i >= B * D) return;", "B * D"),
    aligned_packets("silu_and_mul_kernel", "x", "row * 2 * D + column", "2 * B * D"),
)
