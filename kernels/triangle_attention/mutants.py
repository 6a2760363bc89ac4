"""Wrong kernels that the check must reject. The first row has one entry at most, so that S ≥ 2 is where weights matter."""

from msbench.operators.mistakes import dropped_last_tile, maximum_from
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

WEIGHT = "float weight = expf(query * static_cast<float>(k[j * D]) / root - maximum);"
LAST = "for (int64_t j = 0; j <= i; ++j) {\n        if (mask[j] > 0.5f) continue;\n        float weight"


def many(B, H, S, D):
    """So many outputs that a wrong kernel is not right in all of them by accident."""
    return S >= 8 and B * H * D >= 4


MUTANTS = (
    Mutant("zeros", (("empty ? 0.0f : weighted / sum", "0.0f"),), applies=many),
    Mutant("half the reduction", ((LAST, LAST.replace("j <= i", "j <= i / 2")),), applies=many),
    Mutant("the diagonal left out", ((LAST, LAST.replace("j <= i", "j < i")),), applies=many),
    Mutant("ignores the mask", ((LAST, LAST.replace("mask[j] > 0.5f", "false")),), applies=many),
    Mutant("wrong threshold", ((LAST, LAST.replace("0.5f", "0.0f")),), applies=many),
    Mutant("not causal", ((LAST, LAST.replace("j <= i", "j < S")),), applies=many),
    Mutant("another row's mask", (("mask += (b * S + i) * S", "mask += (b * S + S - 1 - i) * S"),), applies=many),
    Mutant(
        "wrong scalar",
        (("sqrtf(static_cast<float>(D))", "static_cast<float>(D)"),),
        applies=lambda B, H, S, D: D >= 4 and S >= 8,
    ),
    Mutant(
        "TF32 inputs",
        (
            (
                "weighted += weight * static_cast<float>(v[j * D]);",
                "weighted += weight * __int_as_float(__float_as_int(static_cast<float>(v[j * D])) & ~0x1fff);",
            ),
        ),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                "weighted += weight * static_cast<float>(v[j * D]);",
                "weighted = __bfloat162float(__float2bfloat16(weighted + weight * static_cast<float>(v[j * D])));",
            ),
        ),
        applies=lambda B, H, S, D: S >= 16 and B * H * D >= 16,
    ),
    Mutant(
        "stale output",
        (("if (element >= B * H * S * D) return", "if (element >= B * H * S * D / 32 * 32) return"),),
        applies=lambda B, H, S, D: B * H * S * D % 32,
    ),
    dropped_last_tile("if (element >= B * H * S * D) return;", "B * H * S * D"),
    maximum_from("0.0f", "0", lambda B, H, S, D: B * H * D >= 60 and S >= 60),
)
