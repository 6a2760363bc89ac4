"""matrix_vector_mul: every element of the matrix is read once, so memory decides."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, A, x, M, N):
    return A @ x


def bound(xp, u, out, A, x, M, N):
    return bounds.rounded(xp, u, out["y"], bounds.product(xp, A, x))


def inputs(rng, distribution, M, N):
    """``patchwork``: in eight rows, or a quarter of all, an infinity meets a zero of x, which no kernel may leave out."""
    if distribution == "crossed":
        return {"A": rng.crossed("A", (M, N), 1, 0), "x": rng.crossed("x", (N,), 0, 1)}
    A = rng.floats("A", (M, N), distribution, axis=1, kinds=patchwork.TERMS)
    x = rng.floats("x", (N,), distribution, kinds=patchwork.SMALL)
    # x is one for all rows: by chance alone its zeros meet too few infinities.
    if distribution == "patchwork" and M >= 4:
        place = rng.position("opposed", N)
        x[place] = 0
        A[rng.integers("opposed rows", (min(8, M // 4),), 0, M), place] = float("inf")
    return {"A": A, "x": x}


def case(m, n, split):
    return Case((("M", m), ("N", n)), split)


OPERATOR = Operator(
    name="matrix_vector_mul",
    title="Matrix times vector",
    scenario="Dense algebra",
    definition="yᵢ = Σⱼ Aᵢⱼ·xⱼ",
    dims=(Dim("M", 1, 2**16, "rows of A"), Dim("N", 1, 2**16, "columns of A")),
    arrays=(Array("A", ("M", "N")), Array("x", ("N",)), Array("y", ("M",), output=True)),
    cases=(
        *(case(2048, 2**k, Split.PAPER) for k in (8, 10, 12, 14, 16)),
        case(32768, 32768, Split.LARGE),
        case(1003, 777, Split.ODD),
    ),
    inputs=inputs,
    distributions=("uniform", "spiked", "constant", "sorted", "crossed", *patchwork.NAMES),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, M, N: (M * N + N + M) * itemsize,
    flops=lambda M, N: 2 * M * N,
    valid=lambda M, N: M * N <= 2**30,
    compute="precision",
    bound_note=(
        "A sum of N products in fp32, in any order, errs by 8·2⁻²⁴·√N times its largest partial sum, √t if only t of them "
        "have two large factors (Higham and Mary 2019, theorem 3.1), taken as the largest of eight partial sums plus √Σ(Aᵢⱼxⱼ)², and by up to "
        "2⁻²⁴·N times it where a row of A and x are sorted or all alike, so that terms round alike (Higham 2002, equation "
        "4.4). Inputs rounded to TF32 err by about 2⁻¹²·√Σ(Aᵢⱼxⱼ)² and are rejected; rounding to the element type comes on "
        "top."
    ),
    library_note=(
        "cuBLAS: gemv, batched gemv (the only ones in bf16) and gemm with one column, the fastest; cuBLASLt with every "
        "algorithm that its heuristics propose tried once."
    ),
    paper_name="matrix_vector_mul",
)
