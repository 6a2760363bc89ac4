"""matrix_copy: the plainest use of bandwidth."""

from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, A, M, N):
    return A


def bound(xp, u, out, A, M, N):
    return xp.zeros(1)  # for every element: exact


def case(m, n, split):
    return Case((("M", m), ("N", n)), split)


OPERATOR = Operator(
    name="matrix_copy",
    title="Matrix copy",
    scenario="Dense algebra",
    definition="Bᵢⱼ = Aᵢⱼ",
    dims=(Dim("M", 1, 2**17, "rows"), Dim("N", 1, 2**13, "columns")),
    arrays=(Array("A", ("M", "N")), Array("B", ("M", "N"), output=True)),
    cases=(
        *(case(2**k, 2048, Split.PAPER) for k in (8, 10, 12, 14, 16)),
        case(131072, 4096, Split.LARGE),
        case(1003, 777, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, M, N: 2 * M * N * itemsize,
    flops=lambda M, N: 0,
    deterministic=True,
    bound_note="Elements are moved and not computed with. They have to come out exactly as they went in.",
    library_note="cudaMemcpyAsync from device to device.",
    paper_name="matrix_copy",
)
