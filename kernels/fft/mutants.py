"""Wrong kernels that the check must reject."""

from msbench.operators.mutants import Mutant
from msbench.spec import Precision

TWIDDLE = "sincospif(-2.0f * p / (N / stride), &sine, &cosine);"
KERNEL = "template <typename From, typename To>\n__global__"
BF16 = "__device__ float bf16(float a) { return static_cast<float>(static_cast<__nv_bfloat16>(a)); }\n\n" + KERNEL
TF32 = "__device__ float tf32(float a) { return __int_as_float(__float_as_int(a) & ~0x1fff); }\n\n" + KERNEL


def at_least(least):
    return lambda N: least <= N


MUTANTS = (
    Mutant("zeros", (("static_cast<To>(a_re + b_re)", "static_cast<To>(0.0f)"),), at_least(2)),
    Mutant("inverse transform", ((TWIDDLE, TWIDDLE.replace("-2.0f", "2.0f")),), at_least(4)),
    Mutant("no twiddle factors", ((TWIDDLE, "sine = 0; cosine = 1;"),), at_least(4)),
    Mutant("half the passes", (("stride < N / 2; stride *= 2", "stride < N / 4; stride *= 2"),), at_least(8)),
    Mutant("wrong order", (("int64_t at = q + 2 * stride * p;", "int64_t at = i; stride = N / 2;"),), at_least(4)),
    Mutant("halved sums", (("a_re + b_re", "(a_re + b_re) / 2"),), at_least(2)),
    Mutant("real input only", (("b_im = static_cast<float>(im[i + N / 2])", "b_im = 0"),), at_least(2)),
    Mutant(
        "bf16 accumulation",
        (
            ("static_cast<To>(a_re + b_re)", "static_cast<To>(bf16(a_re + b_re))"),
            ("static_cast<To>(a_im + b_im)", "static_cast<To>(bf16(a_im + b_im))"),
            (KERNEL, BF16),
        ),
        at_least(64),
    ),
    Mutant(
        "bf16 twiddle factors",
        ((TWIDDLE, TWIDDLE + " sine = bf16(sine); cosine = bf16(cosine);"), (KERNEL, BF16)),
        at_least(64),
    ),
    Mutant(
        "TF32 inputs",
        (("float a_re = static_cast<float>(re[i])", "float a_re = tf32(re[i])"), (KERNEL, TF32)),
        at_least(16),
        (Precision.FP32,),
    ),
    Mutant("stale output", (("if (i >= N / 2) return", "if (i >= N / 2 - 1) return"),), at_least(2)),
)
