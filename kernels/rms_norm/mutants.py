"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

SUM = "partial[threadIdx.x] += partial[threadIdx.x + half];"
TRUNCATED = "__uint_as_float(__float_as_uint(partial[threadIdx.x] + partial[threadIdx.x + half]) & 0xffff0000u);"
VALUE = "static_cast<float>(x[i]) / root"

MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(value);", "static_cast<scalar_t>(0.0f);"),)),
    # Where there are few outputs, each may be little but its bias, or have little of it: here and below.
    Mutant("half the reduction", (("i < N; i += kBlocks", "i < N / 2; i += kBlocks"),), applies=lambda N: N >= 8),
    Mutant("no bias", (("+ static_cast<float>(bias[i])", ""),), applies=lambda N: N >= 8),
    Mutant("mean without the size", (("sum / N + epsilon", "sum + epsilon"),), applies=lambda N: N >= 8),
    Mutant("wrong scalar", (("+ epsilon)", "+ 0.1f)"),), applies=lambda N: N >= 8),
    # Fewer elements are not added up in enough steps.
    Mutant("bf16 accumulation", ((SUM, f"partial[threadIdx.x] = {TRUNCATED}"),), applies=lambda N: N >= 256),
    Mutant(
        "TF32 inputs",
        ((VALUE, "__uint_as_float(__float_as_uint(static_cast<float>(x[i])) & 0xffffe000u) / root"),),
        applies=lambda N: N >= 8,
        precisions=(Precision.FP32,),
    ),
    Mutant("dropped tail", (("if (i >= N) return", "if (i >= N / 8 * 8) return"),), applies=lambda N: N % 8 != 0),
    dropped_last_tile("if (i >= N) return;", "N"),
    aligned_packets("normalise", "weight", "i", "N"),
)
