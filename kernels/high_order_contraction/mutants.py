"""Wrong kernels that the check must reject. A few elements may come out right by accident, hence the sizes."""

from msbench.operators.mistakes import dropped_last_tile, samples_before_it_rounds, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SUM = "sum += static_cast<float>(row[iy]) * static_cast<float>(column[iy]);"


def many(a, b, c, x, y):
    return a * b * c >= 32


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(sum);", "static_cast<scalar_t>(0.0f);"),)),
    Mutant("half the reduction", (("ix < x; ++ix", "ix < x / 2; ++ix"),), applies=lambda a, b, c, x, y: x >= 2),
    Mutant("no sum over x", (("ix < x; ++ix", "ix < 1; ++ix"),), applies=lambda a, b, c, x, y: x >= 2),
    Mutant("dropped tail", (("iy < y; ++iy", "iy < y / 4 * 4; ++iy"),), applies=lambda a, b, c, x, y: y % 4),
    Mutant(
        "off by one row",
        (("+ ib) * y", "+ (ib + 1) % b) * y"),),
        applies=lambda a, b, c, x, y: b >= 2,
    ),
    Mutant(
        "transposed index",
        (("B + (ix * c + ic) * y", "B + (ic * x + ix) * y"),),
        applies=lambda a, b, c, x, y: c >= 2 and x >= 2,
    ),
    Mutant(
        "stale output",
        (("if (element >= a * b * c) return", "if (element >= a * b * c / 4 * 4) return"),),
        applies=lambda a, b, c, x, y: a * b * c % 4,
    ),
    Mutant(
        "TF32 inputs",
        (
            (
                SUM,
                "sum += __int_as_float(__float_as_int(static_cast<float>(row[iy])) & ~0x1fff) *"
                " __int_as_float(__float_as_int(static_cast<float>(column[iy])) & ~0x1fff);",
            ),
        ),
        applies=many,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                SUM,
                "sum = __bfloat162float(__float2bfloat16("
                "sum + static_cast<float>(row[iy]) * static_cast<float>(column[iy])));",
            ),
        ),
        applies=lambda a, b, c, x, y: many(a, b, c, x, y) and x * y >= 8,
    ),
    dropped_last_tile("if (element >= a * b * c) return;", "a * b * c"),
    skipped_zeros(
        "static_cast<float>(row[iy]) * static_cast<float>(column[iy])",
        "row[iy]",
        lambda a, b, c, x, y: a * b >= 60 and c >= 60 and x * y >= 16,
    ),
    samples_before_it_rounds(
        "contraction_kernel",
        "sum += static_cast<float>(row[iy]) * static_cast<float>(column[iy]);",
        "static_cast<float>(row[iy])",
        "static_cast<float>(column[iy])",
        {"A": "a * x * b * y", "B": "x * c * y"},
        lambda a, b, c, x, y: a * b >= 256 and c >= 40 and x * y >= 256,
    ),
)
