"""reverse_array: a copy whose two sides run in opposite directions."""

from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, N):
    return x[::-1]


def bound(xp, u, out, x, N):
    return xp.zeros(1)  # for every element: exact


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="reverse_array",
    title="Array reversal",
    scenario="Arrays",
    definition="yᵢ = x_{N-1-i}",
    dims=(Dim("N", 1, 2**30, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (10, 12, 14, 16, 18)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: 0,
    deterministic=True,
    bound_note="Elements are moved and not computed with. They have to come out exactly as they went in.",
    library_note="thrust::reverse_copy on the stream, without synchronisation.",
    paper_name="reverse_array",
)
