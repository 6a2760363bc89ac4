"""matrix_mul: the operator that is bound by arithmetic."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, A, B, M, N, K):
    return A @ B


def bound(xp, u, out, A, B, M, N, K):
    return bounds.rounded(xp, u, out["C"], bounds.product(xp, A, B))


def inputs(rng, distribution, M, N, K):
    if distribution == "crossed":
        return {"A": rng.crossed("A", (M, K), 1, 0), "B": rng.crossed("B", (K, N), 0, 1)}
    terms = patchwork.TERMS
    return {
        "A": rng.floats("A", (M, K), distribution, axis=1, kinds=terms),
        "B": rng.floats("B", (K, N), distribution, axis=0, kinds=terms),
    }


def case(m, n, k, split):
    return Case((("M", m), ("N", n), ("K", k)), split)


OPERATOR = Operator(
    name="matrix_mul",
    title="Matrix multiplication",
    scenario="Dense algebra",
    definition="Cᵢⱼ = Σₖ Aᵢₖ·Bₖⱼ",
    dims=(
        Dim("M", 1, 2**14, "rows of A and C"),
        Dim("N", 1, 2**14, "columns of B and C"),
        Dim("K", 1, 2**14, "columns of A, rows of B"),
    ),
    arrays=(Array("A", ("M", "K")), Array("B", ("K", "N")), Array("C", ("M", "N"), output=True)),
    cases=(
        *(case(2**k, 2048, 4096, Split.PAPER) for k in (6, 8, 10, 12, 14)),
        case(8192, 8192, 8192, Split.LARGE),
        case(777, 1003, 515, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, M, N, K: (M * K + K * N + M * N) * itemsize,
    flops=lambda M, N, K: 2 * M * N * K,
    compute="precision",
    inputs=inputs,
    distributions=("uniform", "spiked", "constant", "sorted", "crossed", *patchwork.NAMES),
    bound_note=(
        "A sum of K products in fp32, in any order, errs by 8·2⁻²⁴·√K times its largest partial sum, √t if only t "
        "of them have two large factors (Higham and Mary 2019, theorem 3.1); that is taken as the largest of eight "
        "partial sums plus √Σ(AᵢₖBₖⱼ)². It is 2⁻²⁴·K times that at most, where rows of A and columns of B are sorted or all "
        "alike, so that terms round alike (Higham 2002, equation 4.4). Inputs rounded to TF32 err by about "
        "2⁻¹²·√Σ(AᵢₖBₖⱼ)², which is more, and are rejected; so are two bf16 numbers in place of one of fp32 (distribution "
        "crossed)."
    ),
    library_note=(
        "cuBLASLt, with every algorithm that its heuristics propose tried once; fp32 without TF32, bf16 with fp32 sums. "
        "cublaslt_emulated: the same with fp32 emulated on bf16 matrix units, where the GPU has that (Blackwell; Hopper's "
        "cuBLAS has no faster mode that meets the fp32 bound)."
    ),
    paper_name="matrix_mul",
)
