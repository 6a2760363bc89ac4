"""Wrong kernels that the check must reject; fewer than three samples give zero, which many wrong kernels get right.

The one output is a sum of random signs. In bf16 its last rounding hides what bf16 accumulation or a few samples left out do to
it; neither does one output tell TF32 inputs from fp32 ones every time.
"""

from msbench.operators.mutants import Mutant
from msbench.spec import Precision

FP32 = (Precision.FP32,)


def pairs(N):
    return N >= 3


MUTANTS = (
    Mutant("zeros", (("N < 3 ? 0.0f : (b - a) / (N - 1) / 3 * sum", "0.0f"),), applies=pairs),
    Mutant("half the reduction", (("i <= last; i += kBlocks", "i <= last / 2; i += kBlocks"),), applies=pairs),
    Mutant("weights swapped", (("4.0f : 2.0f", "2.0f : 4.0f"),), applies=lambda N: N >= 5),
    Mutant(
        "ends weigh 2", (("i == 0 || i == last ? 1.0f : ", ""),), applies=lambda N: 3 <= N <= 2**10, precisions=FP32
    ),
    Mutant("h, not h/3", (("/ 3 * sum", "* sum"),), applies=pairs),
    Mutant("wrong scalar", (("(b - a)", "(b + a)"),), applies=pairs),
    # Of more samples one is less than the roundings of the others may amount to, or too often so.
    Mutant(
        "uses the last of an even number",
        (("= (N - 1) / 2 * 2;", "= N - 1;"),),
        applies=lambda N: N % 2 == 0 and 4 <= N <= 2**16,
        precisions=FP32,
    ),
    Mutant("no zero for a single sample", (("N < 3 ? 0.0f : ", ""),), applies=lambda N: N == 1),
    Mutant(
        "bf16 accumulation",
        (
            (
                "own += weight * static_cast<float>(y[i]);",
                "own = static_cast<__nv_bfloat16>(own + weight * static_cast<float>(y[i]));",
            ),
            (
                "+= partial[threadIdx.x + half];",
                "= __float2bfloat16(partial[threadIdx.x] + partial[threadIdx.x + half]);",
            ),
            ("sum += sums[block];", "sum = static_cast<__nv_bfloat16>(sum + sums[block]);"),
        ),
        applies=lambda N: N >= 256,
        precisions=FP32,
    ),
)
