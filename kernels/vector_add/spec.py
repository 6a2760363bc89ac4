"""vector_add: the plainest operator; only bandwidth counts."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, A, B, N):
    return A + B


def bound(xp, u, out, A, B, N):
    return bounds.rounded(xp, u, out["C"])


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="vector_add",
    title="Vector addition",
    scenario="Dense algebra",
    definition="Cᵢ = Aᵢ + Bᵢ",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("A", ("N",)), Array("B", ("N",)), Array("C", ("N",), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 3 * N * itemsize,
    flops=lambda N: N,
    deterministic=True,
    bound_note=(
        "One addition rounded once to the element type errs by at most u·|C| (Higham 2002, theorem 2.2). "
        "The sum of two bf16 numbers in fp32 adds at most 2⁻²⁴·|C| before that rounding."
    ),
    library_note="cub::DeviceTransform, which picks vector widths and bytes in flight for the GPU at hand.",
    paper_name="vector_add",
)
