"""square_matrix_mul: matrix multiplication from sizes that a warp could hold to sizes that fill the GPU."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, A, B, M):
    return A @ B


def bound(xp, u, out, A, B, M):
    return bounds.rounded(xp, u, out["C"], bounds.product(xp, A, B))


def inputs(rng, distribution, M):
    if distribution == "crossed":
        return {"A": rng.crossed("A", (M, M), 1, 0), "B": rng.crossed("B", (M, M), 0, 1)}
    terms = patchwork.TERMS
    return {
        "A": rng.floats("A", (M, M), distribution, axis=1, kinds=terms),
        "B": rng.floats("B", (M, M), distribution, axis=0, kinds=terms),
    }


def case(m, split):
    return Case((("M", m),), split)


OPERATOR = Operator(
    name="square_matrix_mul",
    title="Square matrix multiplication",
    scenario="Dense algebra",
    definition="Cᵢⱼ = Σₖ Aᵢₖ·Bₖⱼ",
    dims=(Dim("M", 1, 2**14, "rows and columns"),),
    arrays=(Array("A", ("M", "M")), Array("B", ("M", "M")), Array("C", ("M", "M"), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (4, 6, 8, 10, 12)),
        case(8192, Split.LARGE),
        case(777, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, M: 3 * M * M * itemsize,
    flops=lambda M: 2 * M**3,
    compute="precision",
    inputs=inputs,
    distributions=("uniform", "spiked", "constant", "sorted", "crossed", *patchwork.NAMES),
    bound_note=(
        "A sum of M products in fp32, in any order, errs by 8·2⁻²⁴·√M times its largest partial sum, √t if only t "
        "of them have two large factors (Higham and Mary 2019, theorem 3.1); that is taken as the largest of eight "
        "partial sums plus √Σ(AᵢₖBₖⱼ)². It is 2⁻²⁴·M times that at most, where rows of A and columns of B are sorted or all "
        "alike, so that terms round alike (Higham 2002, equation 4.4). Inputs rounded to TF32 err by about "
        "2⁻¹²·√Σ(AᵢₖBₖⱼ)², which is more, and are rejected; so are two bf16 numbers in place of one of fp32 (distribution "
        "crossed)."
    ),
    library_note=(
        "cuBLASLt, with every algorithm that its heuristics propose tried once; fp32 without TF32, bf16 with fp32 sums. "
        "cublaslt_emulated: the same with fp32 emulated on bf16 matrix units, where the GPU has that (Blackwell; Hopper's "
        "cuBLAS has no faster mode that meets the fp32 bound)."
    ),
    paper_name="square_matrix_mul",
)
