"""matrix_transpose: nothing but memory access, half of it against the grain."""

from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, A, M, N):
    return A.T


def bound(xp, u, out, A, M, N):
    return xp.zeros(1)  # for every element: exact


def case(m, n, split):
    return Case((("M", m), ("N", n)), split)


OPERATOR = Operator(
    name="matrix_transpose",
    title="Matrix transposition",
    scenario="Dense algebra",
    definition="Bⱼᵢ = Aᵢⱼ",
    dims=(Dim("M", 1, 2**15, "rows of A"), Dim("N", 1, 2**15, "columns of A")),
    arrays=(Array("A", ("M", "N")), Array("B", ("N", "M"), output=True)),
    cases=(
        *(case(2**m, 2**n, Split.PAPER) for m in range(10, 15) for n in range(10, 15)),
        case(32768, 16384, Split.LARGE),
        case(1003, 777, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, M, N: 2 * M * N * itemsize,
    flops=lambda M, N: 0,
    deterministic=True,
    bound_note="Elements are moved and not computed with. They have to come out exactly as they went in.",
    library_note="cuBLAS geam (fp32) and cublasLtMatrixTransform (both precisions); the faster of the two is the bar.",
    bytes_note="The naive kernel writes down columns, parts of sectors at a time, and some leave L2 before they are whole.",
    flops_note="cuBLAS's geam multiplies each element with its α on the way.",
    paper_name="matrix_transpose",
)
