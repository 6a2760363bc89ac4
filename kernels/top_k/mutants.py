"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import lost_signs_of_zeros, maximum_from
from msbench.operators.mutants import Mutant
from msbench.spec import Precision


def crowded(N, k):
    """Whether the k largest of N uniform values are so close that some are equal in bf16, with 1 - exp(-8) or more."""
    return k >= 2 and k * N >= 2**15


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(first.value)", "static_cast<scalar_t>(0.0f)"),)),
    # The second half: in bf16 so many values round to 1 that all k often lie in the first. None of them does with a
    # probability of at most 2^-k.
    Mutant(
        "half of the input",
        (("int64_t i = blockIdx.x * kThreads", "int64_t i = N / 2 + blockIdx.x * kThreads"),),
        applies=lambda N, k: k >= 16,
    ),
    Mutant("ascending", (("return a.value > b.value;", "return a.value < b.value;"),), applies=lambda N, k: N >= 16),
    Mutant("stale output", (("round < k; ++round", "round < k - 1; ++round"),)),
    Mutant("indices from one", (("= first.index;", "= first.index + 1;"),)),
    Mutant("the same again", (("(round == 0 || before(previous, own)) && ", ""),), applies=lambda N, k: k >= 2),
    Mutant(
        "only the first block",
        (("if (threadIdx.x < count)", "if (threadIdx.x < 1)"),),
        applies=lambda N, k: k >= 16 and N >= 2**13,
    ),
    Mutant(
        "wrong tie order",
        (("return a.index < b.index;", "return a.index > b.index;"),),
        applies=crowded,
        precisions=(Precision.BF16,),
    ),
    Mutant(
        "ties dropped",
        (("return a.index < b.index;", "return false;"),),
        applies=crowded,
        precisions=(Precision.BF16,),
    ),
    Mutant(
        "values compared in bf16",
        (("Found own{static_cast<float>(x[i]),", "Found own{static_cast<float>(static_cast<__nv_bfloat16>(x[i])),"),),
        precisions=(Precision.FP32,),
    ),
    lost_signs_of_zeros(
        "first.value", lambda N, k: 50 <= N <= 3 * k, edit="static_cast<scalar_t>({})", distribution="signed_zeros"
    ),
    maximum_from(
        "Found own{fmaxf(static_cast<float>(x[i]), 0.0f), static_cast<int32_t>(i)};",
        "0",
        lambda N, k: N >= 20,
        distribution="negative",
        old="Found own{static_cast<float>(x[i]), static_cast<int32_t>(i)};",
    ),
)
