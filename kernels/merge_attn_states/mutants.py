"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import dropped_last_tile, maximum_from, more
from msbench.operators.mutants import Mutant


def several(T, H, D):
    """For one token and head both log-sum-exps may be about the same, or the larger about zero."""
    return T * H >= 8


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(value / sum)", "static_cast<scalar_t>(0.0f)"),)),
    Mutant("zeros for lse", (("static_cast<scalar_t>(most + logf(sum))", "static_cast<scalar_t>(0.0f)"),)),
    Mutant("equal weights", (("float weight_b = expf(b - most);", "float weight_b = weight_a;"),), applies=several),
    Mutant("no division", (("value / sum", "value"),)),
    Mutant("lse without the maximum", (("most + logf(sum)", "logf(sum)"),), applies=several),
    Mutant("dropped state", (("weight_a * static_cast<float>(Va[i]) + ", ""),), applies=several),
    Mutant(
        "transposed index",
        (("int64_t at = head * T + token;", "int64_t at = token * H + head;"),),
        applies=lambda T, H, D: T >= 3 and H >= 3,
    ),
    Mutant("stale output", (("if (i % D == 0) lse[at]", "if (i % D == 0 && token < T - 1) lse[at]"),)),
    dropped_last_tile("if (i >= T * H * D) return;", "T * H * D"),
    maximum_from("0.0f", "0", more("H * T", 2000), old="fmaxf(a, b)"),
)
