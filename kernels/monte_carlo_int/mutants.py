"""Wrong kernels that the check must reject.

The one output is a sum of random signs. In bf16 its last rounding hides what bf16 accumulation or a few samples left out do to
it; neither does one output tell TF32 inputs from fp32 ones every time.
"""

from msbench.operators.mutants import Mutant
from msbench.spec import Precision

FP32 = (Precision.FP32,)

MUTANTS = (
    Mutant("zeros", (("<scalar_t>((b - a) / N * sum)", "<scalar_t>(0.0f)"),)),
    Mutant("half the reduction", (("i < N; i += kBlocks", "i < N / 2; i += kBlocks"),), applies=lambda N: N >= 2),
    Mutant(
        "dropped tail",
        (("i < N; i += kBlocks", "i < N / 256 * 256; i += kBlocks"),),
        applies=lambda N: N % 256 >= 16,
        precisions=FP32,
    ),
    Mutant("sum, not mean", (("/ N * sum", "* sum"),), applies=lambda N: N >= 2),
    Mutant("wrong scalar", (("(b - a)", "(b + a)"),)),
    Mutant("interval's sign", (("(b - a)", "(a - b)"),)),
    Mutant("only the first block", (("block < kBlocks; ++block", "block < 1; ++block"),), applies=lambda N: N > 1024),
    Mutant(
        "bf16 accumulation",
        (
            ("own += static_cast<float>(y[i]);", "own = static_cast<__nv_bfloat16>(own + static_cast<float>(y[i]));"),
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
