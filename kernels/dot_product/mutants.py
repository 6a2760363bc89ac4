"""Wrong kernels that the check must reject.

TF32 inputs are not among them: they move a sum of one output by about √Σt²·2⁻¹², of random sign, which is within the bound
by chance too often. The one output is a sum of random signs, so that what leaves out a few terms is tried where these are
not lost beside the rounding of the others.
"""

from msbench.operators.mistakes import skipped_zeros
from msbench.operators.mutants import Mutant

MUTANTS = (
    Mutant("zeros", (("out[0] = sum;", "out[0] = 0.0f;"),)),
    Mutant("half the reduction", (("i < N; i += kBlocks", "i < N / 2; i += kBlocks"),), applies=lambda N: N >= 2),
    Mutant(
        "dropped tail", (("i < N; i += kBlocks", "i < N / 256 * 256; i += kBlocks"),), applies=lambda N: N % 256 >= 16
    ),
    Mutant("adds to the output", (("out[0] = sum;", "out[0] += sum;"),)),
    Mutant("only the first block", (("block < kBlocks; ++block", "block < 1; ++block"),), applies=lambda N: N > 1024),
    Mutant("squares of X", (("static_cast<float>(Y[i])", "static_cast<float>(X[i])"),)),
    Mutant(
        "bf16 accumulation",
        (
            ("own += static_cast", "own = static_cast<__nv_bfloat16>(own + static_cast"),
            ("(Y[i]);", "(Y[i]));"),
            (
                "+= partial[threadIdx.x + half];",
                "= __float2bfloat16(partial[threadIdx.x] + partial[threadIdx.x + half]);",
            ),
            ("sum += sums[block];", "sum = static_cast<__nv_bfloat16>(sum + sums[block]);"),
        ),
        applies=lambda N: N >= 256,
    ),
    skipped_zeros(
        "static_cast<float>(X[i]) * static_cast<float>(Y[i])", "X[i]", lambda N: N % 2 == 0, distribution="opposed"
    ),
)
