"""Wrong kernels that the check must reject. The loss of one class is zero, which many wrong kernels get right."""

from msbench.operators.mutants import Mutant
from msbench.spec import Precision

MUTANTS = (
    Mutant("zeros", (("out[0] = -sum;", "out[0] = 0.0f;"),), applies=lambda C: C >= 2),
    Mutant("half the reduction", (("i < C; i += kBlocks", "i < C / 2; i += kBlocks"),), applies=lambda C: C >= 2),
    # Of more elements the tail is less than what the sum's roundings may amount to.
    Mutant(
        "dropped tail",
        (("i < C; i += kBlocks", "i < C / 256 * 256; i += kBlocks"),),
        applies=lambda C: C % 256 >= 16 and C % 256 * 2**14 >= C,
    ),
    Mutant("wrong sign", (("-sum", "sum"),), applies=lambda C: C >= 2),
    Mutant("base-2 logarithm", (("logf(", "log2f("),), applies=lambda C: C >= 2),
    Mutant("limit of 1e-4", (("1e-8f", "1e-4f"),), applies=lambda C: C >= 2**14),
    Mutant("adds to the output", (("out[0] = -sum", "out[0] += -sum"),)),
    Mutant(
        "TF32 inputs",
        (("static_cast<float>(Y[i])", "__uint_as_float(__float_as_uint(Y[i]) & 0xffffe000u)"),),
        applies=lambda C: C >= 16,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            ("own += static_cast", "own = static_cast<__nv_bfloat16>(own + static_cast"),
            ("1e-8f));", "1e-8f)));"),
            (
                "+= partial[threadIdx.x + half];",
                "= __float2bfloat16(partial[threadIdx.x] + partial[threadIdx.x + half]);",
            ),
            ("sum += sums[block];", "sum = static_cast<__nv_bfloat16>(sum + sums[block]);"),
        ),
        applies=lambda C: C >= 256,
    ),
)
