"""matrix_mul: the operator that is bound by arithmetic."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split

PARTIAL_SUMS = 8


def reference(xp, A, B, M, N, K):
    return A @ B


def bound(xp, u, out, A, B, M, N, K):
    partial = xp.zeros((M, N))
    largest = xp.zeros((M, N))
    step = -(-K // PARTIAL_SUMS)
    for start in range(0, K, step):
        partial += A[:, start : start + step] @ B[start : start + step]
        xp.maximum(largest, xp.abs(partial), out=largest)
    squares = xp.sqrt((A * A) @ (B * B))
    return bounds.rounded(xp, u, out["C"], bounds.probabilistic(K) * (largest + squares))


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
    bound_note=(
        "A sum of K products in fp32, in any order, errs by 8·2⁻²⁴·√K times its largest partial sum "
        "(Higham and Mary 2019, theorem 3.1), taken as the largest of eight partial sums plus √Σ(AᵢₖBₖⱼ)². Inputs "
        "rounded to TF32 err by about 2⁻¹²·√Σ(AᵢₖBₖⱼ)², which is more, and are rejected."
    ),
    library_note=(
        "cuBLASLt, with every algorithm that its heuristics propose tried once; fp32 without TF32, bf16 with fp32 sums. "
        "cublaslt_emulated: the same with fp32 emulated on bf16 matrix units, where the GPU has that (Blackwell; Hopper's "
        "cuBLAS has no faster mode that meets the fp32 bound)."
    ),
    paper_name="matrix_mul",
)
