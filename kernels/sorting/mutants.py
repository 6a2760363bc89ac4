"""Wrong kernels that the check must reject. Up to eight elements one thread sorts alone, and nothing is merged."""

from msbench.operators.mistakes import SURE, flushed_subnormals, lost_signs_of_zeros, more
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

MUTANTS = (
    Mutant("zeros", (("to[start + i] = run[i]", "to[start + i] = static_cast<scalar_t>(0.0f)"),)),
    Mutant("runs not sorted", (("place > 0 && before(value, run[place - 1])", "false"),), applies=lambda N: N >= 8),
    Mutant("descending", (("return x < y ||", "return x > y ||"),), applies=lambda N: N >= 8),
    Mutant("halves sorted, not merged", (("< N) ++merges", "< N / 2) ++merges"),), applies=lambda N: N >= 32),
    Mutant("runs not merged", (("take_a ? a[i++] : b[j++]", "from[output]"),), applies=lambda N: N >= 32),
    Mutant("stale output", (("&& output < N; ++output", "&& output < N - 1; ++output"),), applies=lambda N: N > 8),
    Mutant(
        "dropped tail",
        (("if (start >= N) return", "if (start + kRun > N) return"),),
        applies=lambda N: N > 8 and N % 8 > 0,
    ),
    Mutant(
        "bf16 values",
        (("to[start + i] = run[i]", "to[start + i] = static_cast<__nv_bfloat16>(run[i])"),),
        precisions=(Precision.FP32,),
    ),
    flushed_subnormals("x[start + i]", more("N", SURE)),
    lost_signs_of_zeros("x[start + i]", more("N", SURE)),
)
