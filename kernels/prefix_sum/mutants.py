"""Wrong kernels that the check must reject."""

from msbench.operators.mutants import Mutant

SUM = "sums[i - distance] + sums[i]"


def several(N):
    """Of a few sums each may be what the wrong kernel makes of it."""
    return N >= 8


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sums[i])", "static_cast<scalar_t>(0.0f)"),)),
    Mutant(
        "exclusive",
        (("static_cast<scalar_t>(sums[i])", "static_cast<scalar_t>(i == 0 ? 0.0f : sums[i - 1])"),),
        applies=several,
    ),
    Mutant(
        "half the reduction", (("distance < N; distance *= 2", "distance < N / 2; distance *= 2"),), applies=several
    ),
    Mutant("off by one element", (("int64_t distance = 1;", "int64_t distance = 2;"),), applies=several),
    Mutant(
        "no sums carried from block to block",
        (("i < distance ? sums[i]", "i < distance || distance >= kThreads ? sums[i]"),),
        applies=lambda N: N >= 300,
    ),
    Mutant(
        "bf16 accumulation",
        ((SUM, f"__uint_as_float(__float_as_uint({SUM}) & 0xffff0000u)"),),
        applies=lambda N: N >= 64,
    ),
    Mutant("dropped tail", (("if (i < N) y[i]", "if (i < N / 8 * 8) y[i]"),), applies=lambda N: N % 8 != 0),
    Mutant("stale output", (("if (i < N) y[i]", "if (i < N - 1) y[i]"),)),
)
