"""top_k: the k largest values and where they were; a selection that need not sort everything."""

from msbench.arrays import some
from msbench.operators import keys
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, N, k):
    # Stable in NumPy and CuPy, so that of equal values the lower index comes first. NaNs tie with +∞ in the first sort, and
    # the second puts them before it.
    nan = xp.isnan(x)
    order = xp.argsort(xp.where(nan, -xp.inf, -x), kind="stable")
    if bool(some(nan, xp)):
        order = order[xp.argsort(~nan[order], kind="stable")]
    order = order[:k]
    return {"values": x[order], "indices": order}


def bound(xp, u, out, x, N, k):
    return {"values": xp.zeros(1), "indices": xp.zeros(1)}  # for every element: exact


def inputs(rng, distribution, N, k):
    return {"x": keys.draw(rng, "x", N, distribution)}


def case(n, k, split):
    return Case((("N", n), ("k", k)), split)


OPERATOR = Operator(
    name="top_k",
    title="The k largest values",
    scenario="Arrays",
    definition=(
        "values are the k largest of x in descending order, valuesᵢ = x[indicesᵢ]; of equal values (-0 and 0 are equal) "
        "the lower index comes first; NaNs, which have a clear sign bit, are equal and larger than +∞"
    ),
    dims=(Dim("N", 1, 2**28, "elements"), Dim("k", 1, 128, "values to find, at most N")),
    arrays=(
        Array("x", ("N",)),
        Array("values", ("k",), output=True),
        Array("indices", ("k",), "i32", output=True),
    ),
    cases=(
        *(case(2**n, k, Split.PAPER) for n in (8, 10, 12, 14, 16) for k in (32, 64, 128)),
        case(2**24, 128, Split.LARGE),
        case(100_003, 50, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N, k: N * itemsize + k * (itemsize + 4),
    flops=lambda N, k: 0,
    inputs=inputs,
    distributions=keys.DISTRIBUTIONS,
    outliers="magnitudes",
    valid=lambda N, k: k <= N,
    bound_note=(
        "Values are moved and not computed with, and ties have a rule, so every value and every index has to be "
        "exactly the one that belongs there, with its sign if it is zero."
    ),
    library_note=(
        "cub::DeviceRadixSort::SortPairsDescending, which is stable and so follows the rule for ties, then the first k. "
        "cub::DeviceTopK is no rival: it is not in the CCCL 3.0 of CUDA 13.0, and that of CCCL 3.2 returns the k values in no order "
        "and any of those that tie for the last place."
    ),
    bytes_note=(
        "CUB sorts: it reads the values once for the digits' counts, and reads and writes values and indices once for each digit."
    ),
    paper_name="top_k",
)
