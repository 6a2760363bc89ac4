"""Wrong kernels that the check must reject."""

from msbench.operators.mutants import Mutant
from msbench.spec import Precision

TF32 = "__uint_as_float(__float_as_uint({0}[i]) & 0xffffe000u)"

MUTANTS = (
    Mutant("zeros", (("out[0] = sum / N;", "out[0] = 0.0f;"),)),
    Mutant("half the reduction", (("i < N; i += kBlocks", "i < N / 2; i += kBlocks"),), applies=lambda N: N >= 2),
    # Of more elements the tail is less than what the sum's roundings may amount to.
    Mutant(
        "dropped tail",
        (("i < N; i += kBlocks", "i < N / 256 * 256; i += kBlocks"),),
        applies=lambda N: N % 256 >= 16 and N % 256 * 2**14 >= N,
    ),
    Mutant("sum, not mean", (("sum / N", "sum"),), applies=lambda N: N >= 2),
    Mutant("mean over one less", (("sum / N", "sum / (N - 1)"),), applies=lambda N: N <= 2**13),
    Mutant("absolute differences", (("difference * difference", "fabsf(difference)"),)),
    Mutant("adds to the output", (("out[0] = sum", "out[0] += sum"),)),
    Mutant(
        "TF32 inputs",
        (("static_cast<float>(X[i]) - static_cast<float>(Y[i])", TF32.format("X") + " - " + TF32.format("Y")),),
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            ("own += difference * difference", "own = static_cast<__nv_bfloat16>(own + difference * difference)"),
            (
                "+= partial[threadIdx.x + half];",
                "= __float2bfloat16(partial[threadIdx.x] + partial[threadIdx.x + half]);",
            ),
            ("sum += sums[block];", "sum = static_cast<__nv_bfloat16>(sum + sums[block]);"),
        ),
        applies=lambda N: N >= 256,
    ),
)
