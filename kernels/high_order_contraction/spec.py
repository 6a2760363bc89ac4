"""high_order_contraction: a matrix multiplication in disguise, whose summed indices lie apart in memory."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def matrices(xp, A, B, a, b, c, x, y):
    """A as [a·b, x·y] and B as [x·y, c]: the contraction is their product."""
    left = A.transpose(0, 2, 1, 3).reshape(a * b, x * y)
    return left, B.transpose(0, 2, 1).reshape(x * y, c)


def reference(xp, A, B, a, b, c, x, y):
    left, right = matrices(xp, A, B, a, b, c, x, y)
    return (left @ right).reshape(a, b, c)


def bound(xp, u, out, A, B, a, b, c, x, y):
    error = bounds.product(xp, *matrices(xp, A, B, a, b, c, x, y))
    return bounds.rounded(xp, u, out["C"], error.reshape(a, b, c))


def inputs(rng, distribution, a, b, c, x, y):
    if distribution not in ("crossed", *patchwork.NAMES):
        return {"A": rng.floats("A", (a, x, b, y), distribution), "B": rng.floats("B", (x, c, y), distribution)}
    if distribution == "crossed":
        left, right = rng.crossed("A", (a, b, x * y), 2, 0), rng.crossed("B", (x * y, c), 0, 1)
    else:
        left = rng.floats("A", (a, b, x * y), distribution, axis=2, kinds=patchwork.TERMS)
        right = rng.floats("B", (x * y, c), distribution, axis=0, kinds=patchwork.TERMS)
    return {"A": left.reshape(a, b, x, y).transpose(0, 2, 1, 3), "B": right.reshape(x, y, c).transpose(0, 2, 1)}


def case(a, b, c, x, y, split):
    return Case((("a", a), ("b", b), ("c", c), ("x", x), ("y", y)), split)


PAPER = ((32, 32, 32), (64, 32, 48), (128, 128, 64), (256, 256, 128))

OPERATOR = Operator(
    name="high_order_contraction",
    title="Tensor contraction over two indices",
    scenario="Dense algebra",
    definition="C[a,b,c] = Σₓᵧ A[a,x,b,y]·B[x,c,y]",
    dims=(
        Dim("a", 1, 1024, "first index of A and C"),
        Dim("b", 1, 1024, "third index of A, second of C"),
        Dim("c", 1, 1024, "second index of B, third of C"),
        Dim("x", 1, 64, "second index of A, first of B: summed over"),
        Dim("y", 1, 64, "last index of A and B: summed over"),
    ),
    arrays=(
        Array("A", ("a", "x", "b", "y")),
        Array("B", ("x", "c", "y")),
        Array("C", ("a", "b", "c"), output=True),
    ),
    cases=(
        *(case(*abc, xy, xy, Split.PAPER) for abc in PAPER for xy in (8, 16)),
        case(512, 256, 256, 16, 32, Split.LARGE),
        case(33, 47, 61, 7, 13, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, a, b, c, x, y: (a * x * b * y + x * c * y + a * b * c) * itemsize,
    flops=lambda a, b, c, x, y: 2 * a * b * c * x * y,
    valid=lambda a, b, c, x, y: a * b * x * y <= 2**28 and a * b * c <= 2**28,
    compute="precision",
    inputs=inputs,
    distributions=("uniform", "spiked", "constant", "sorted", "crossed", *patchwork.NAMES),
    bound_note=(
        "A sum of x·y products in fp32, in any order, errs by 8·2⁻²⁴·√(x·y) times its largest partial sum, √t if only t "
        "of them have two large factors (Higham and Mary 2019, theorem 3.1); that is taken as the largest of eight partial "
        "sums plus √Σ(products²). It is 2⁻²⁴·x·y times that at most, where both factors are sorted or all alike, so that terms "
        "round alike (Higham 2002, equation 4.4). Inputs rounded to TF32 err by about 2⁻¹²·√Σ(products²), which is more, and "
        "are rejected; so are two bf16 numbers in place of one of fp32 (distribution crossed)."
    ),
    library_note=(
        "A and B permuted so that the summed indices are adjacent, then one cuBLASLt product, with every algorithm that "
        "its heuristics propose tried once; the time includes the permutation."
    ),
    paper_name="high_order_contraction",
)
