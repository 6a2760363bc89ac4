"""Wrong kernels that the check must reject. With one key Y is V's row, whatever the scores; hence kv ≥ 2."""

from msbench.operators.mistakes import dropped_last_tile, maximum_from
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SCORE = "sum += static_cast<float>(Q[row * d + k]) * static_cast<float>(K[column * d + k]);"
WEIGHTED = "sum += weights[row * kv + j] * static_cast<float>(V[j * dv + column]);"


def many(q, kv, d, dv):
    return kv >= 2 and q * dv >= 32


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sum);", "static_cast<scalar_t>(0.0f);"),)),
    Mutant(
        "half the reduction",
        ((WEIGHTED, "if (j < kv / 2) " + WEIGHTED),),
        applies=lambda q, kv, d, dv: kv >= 2,
    ),
    Mutant(
        "wrong scalar",
        (("sqrtf(static_cast<float>(d))", "static_cast<float>(d)"),),
        applies=lambda q, kv, d, dv: d >= 4 and many(q, kv, d, dv),
    ),
    Mutant("no softmax", (("expf(scores[j] - maximum) / sum", "1.0f / kv"),), applies=many),
    Mutant(
        "not normalised",
        (("expf(scores[j] - maximum) / sum", "expf(scores[j] - maximum)"),),
        applies=lambda q, kv, d, dv: kv >= 2,
    ),
    Mutant(
        "off by one row",
        (("K[column * d + k]", "K[(column + 1) % kv * d + k]"),),
        applies=many,
    ),
    Mutant(
        "stale output",
        (("if (element >= q * dv) return", "if (element >= q * dv / 8 * 8) return"),),
        applies=lambda q, kv, d, dv: q * dv % 8,
    ),
    Mutant(
        "TF32 inputs",
        (
            (
                WEIGHTED,
                "sum += __int_as_float(__float_as_int(weights[row * kv + j]) & ~0x1fff) *"
                " __int_as_float(__float_as_int(static_cast<float>(V[j * dv + column])) & ~0x1fff);",
            ),
        ),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 weights",
        (
            (
                WEIGHTED,
                WEIGHTED.replace("weights[row * kv + j]", "__bfloat162float(__float2bfloat16(weights[row * kv + j]))"),
            ),
        ),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                WEIGHTED,
                "sum = __bfloat162float(__float2bfloat16("
                "sum + weights[row * kv + j] * static_cast<float>(V[j * dv + column])));",
            ),
        ),
        applies=lambda q, kv, d, dv: kv >= 64 and q * dv >= 256,
    ),
    dropped_last_tile("if (element >= q * dv) return;", "q * dv"),
    # In patches one column of V may hold nothing but NaN.
    maximum_from("0.0f", "0", lambda q, kv, d, dv: q >= 60 and dv >= 8),
)
