"""sorting: values in ascending order, out of place."""

from msbench import bounds
from msbench.arrays import some
from msbench.operators import keys
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, N):
    return xp.sort(x)  # NaN last, in NumPy and CuPy


def bound(xp, u, out, x, N):
    # Exact for every element. Zeros of both signs are equal, and come in any order: their signs are known if they are all alike.
    zeros = x == 0
    negative = zeros & xp.signbit(x)
    mixed = some(negative, xp) & some(zeros & ~negative, xp)
    return bounds.EITHER_ZERO * mixed.astype("float64").reshape(1)


def inputs(rng, distribution, N):
    return {"x": keys.draw(rng, "x", N, distribution)}


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="sorting",
    title="Sorting",
    scenario="Arrays",
    definition=(
        "y holds the values of x in ascending order; -0 and 0 are equal, in any order; NaNs, which have a clear sign "
        "bit, come last"
    ),
    dims=(Dim("N", 1, 2**28, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (8, 10, 12, 14, 16)),
        case(2**24, Split.LARGE),
        case(100_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: 0,
    inputs=inputs,
    distributions=keys.DISTRIBUTIONS,
    outliers="magnitudes",
    bound_note=(
        "Values are moved and not computed with, so every element has to be exactly the one that belongs there. "
        "Zeros of both signs come in any order among themselves; where all have one sign, they keep it."
    ),
    library_note=(
        "cub::DeviceRadixSort::SortKeys, out of place. Its order is that of the bits, so that NaNs with a set sign "
        "bit would come first: none are drawn."
    ),
    bytes_note=(
        "A radix sort reads the keys once for the digits' counts, and reads and writes them once for each digit."
    ),
    paper_name="sorting",
)
