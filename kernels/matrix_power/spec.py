"""matrix_power: a chain of matrix products, each of which has to wait for the one before."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split

ROUNDINGS = 4.0
"""Roundings of an intermediate power's elements to the element type are independent and at most u each; a weighted sum of
them stays below this times the root of the sum of squares, which is seven standard deviations or more (each is u/√3 or
less)."""
AT_ONCE = 2**24
"""Elements of matrices that are worked on together."""
SPIKED_SIZE = 32.0
"""What the spiked distribution is divided by besides: √(256²/64), the size of its rows next to uniform ones'."""


def left_to_right(P):
    """The products of binary powering from the highest bit of P down: {power: its two factors' powers}."""
    chain, n = {}, P
    while n > 1:
        chain[n] = (n // 2, n // 2) if n % 2 == 0 else (n - 1, 1)
        n = chain[n][0]
    return chain


def right_to_left(P):
    """The products of binary powering from the lowest bit of P up."""
    bits = [2**k for k in range(P.bit_length()) if P >> k & 1]
    chain = {2**k: (2 ** (k - 1), 2 ** (k - 1)) for k in range(1, P.bit_length())}
    total = bits[0]
    for bit in bits[1:]:
        chain[total + bit] = (total, bit)
        total += bit
    return chain


def chains(P):
    """The orders of the products that right kernels are expected to take, each once."""
    one_by_one = ({n: (n - 1, 1) for n in range(2, P + 1)}, {n: (1, n - 1) for n in range(2, P + 1)})
    every = []
    for chain in (left_to_right(P), right_to_left(P), *one_by_one):
        if chain not in every:
            every.append(chain)
    return every


def occurrences(chain, P):
    """{power q: [i, …]}: where A^P = A^i·A^q·A^(P-q-i) has the intermediate result A^q in it."""
    found, todo = {}, [(P, 0)]
    while todo:
        power, before = todo.pop()
        if power > 1:
            if power < P:
                found.setdefault(power, []).append(before)
            left, right = chain[power]
            todo += [(left, before), (right, before + left)]
    return found


def powers(xp, A, P):
    """A⁰ to Aᴾ, [P + 1, N, N]."""
    every = xp.empty((P + 1, *A.shape))
    every[0], every[1] = xp.eye(A.shape[0]), A
    for n in range(2, P + 1):
        xp.matmul(every[n // 2], every[n - n // 2], out=every[n])
    return every


def reference(xp, A, N, P):
    power = powers(xp, A, P)
    return {"B": power[P].copy(), "powers": power}  # a view would keep all powers as long as B


def bound(xp, u, out, A, N, P):
    if P == 1:
        return xp.full(1, bounds.EITHER_ZERO)
    power = out["powers"]
    every = chains(P)
    error = errors(xp, power, sorted({factors for chain in every for factors in chain.values()}))
    largest = 0.0
    for chain in every:
        largest = xp.maximum(largest, chain_error(xp, u, power, chain, P, error))
    return bounds.rounded(xp, u, out["B"], largest)


def parts(power, some):
    """``some`` a few at a time: each step on many small matrices takes a GPU as long as on one."""
    step = max(1, AT_ONCE // power[1].size)
    return (some[start : start + step] for start in range(0, len(some), step))


def errors(xp, power, products):
    """The own error of each product A^i·A^j, by (i, j)."""
    found = {}
    for some in parts(power, products):
        left, right = (power[list(side)] for side in zip(*some, strict=True))
        found.update(zip(some, bounds.product(xp, left, right), strict=True))
    return found


def chain_error(xp, u, power, chain, P, error):
    """The error of A^P by one chain: the last product's own, and what the errors of the other products grow to.

    ``error`` has the own error of each product A^i·A^j, by (i, j).

    An error E of A^q becomes Σᵢ A^i·E·A^(P-q-i). Elements of E are independent, so the squares add up: their weights are
    the squares of that map's coefficients, written out as pairs of positions i and k.
    """
    grown = {}
    for q, positions in occurrences(chain, P).items():
        for index, i in enumerate(positions):
            for k in positions[index:]:
                sides = (i, k), (P - q - i, P - q - k)
                grown.setdefault(tuple(0 in side for side in sides), []).append((q, *sides))
    squares = xp.zeros(power[P].shape)
    for alike in grown.values():
        for some in parts(power, alike):
            which, before, after = (list(column) for column in zip(*some, strict=True))
            own = xp.stack([error[chain[q]] for q in which]) + ROUNDINGS * u * xp.abs(power[which])
            own *= own
            own *= xp.asarray([1.0 if i == k else 2.0 for i, k in before])[:, None, None]
            left, right = weights(power, before), weights(power, after)
            own = left[:, :, None] * own if left.ndim == 2 else left @ own
            own = own * right[:, None] if right.ndim == 2 else own @ right
            squares += xp.sum(own, axis=0)
    return error[chain[P]] + xp.sqrt(xp.maximum(squares, 0.0))


def weights(power, pairs):
    """For each of ``pairs`` (i, k) the elements of A^i times those of A^k; the diagonal alone where one of them is the identity in all."""
    some, others = (list(side) for side in zip(*pairs, strict=True))
    if 0 in pairs[0]:
        return power.diagonal(axis1=1, axis2=2)[[max(pair) for pair in pairs]]
    return power[some] * power[others]


def inputs(rng, distribution, N, P):
    if distribution in ("permutation", "scaled_permutation"):
        # One ±1 in each row and column: powers are exact, and never symmetric by accident. Scaled by 1/2 to 1, they are
        # products of P numbers, in which there is no room for inexact ones.
        order = rng.xp.argsort(rng.uniform("order", (N,)))
        values = (1 - 2 * rng.integers("signs", (N,), 0, 2)).astype("float32")
        if distribution == "scaled_permutation":
            values *= (1 + rng.uniform("sizes", (N,))) / 2
        matrix = rng.xp.zeros((N, N), dtype="float32")
        matrix[rng.xp.arange(N), order] = values
        return {"A": matrix}
    if distribution == "nan":
        # Half of it zeros, whose products with a NaN no kernel may leave out.
        matrix = rng.floats("A", (N, N), "uniform") * rng.integers("zeros", (N, N), 0, 2).astype("float32")
        matrix.reshape(-1)[rng.position("nan", N * N)] = float("nan")
    else:
        matrix = rng.floats("A", (N, N), distribution, axis=1, kinds=("uniform", "few", "zeros", "tiny"))
    size = (N / 3) ** 0.5 * (SPIKED_SIZE if distribution == "spiked" else 1.0)
    return {"A": matrix / rng.xp.float32(size)}


def products(P):
    """The fewest products that give a P-th power, for P up to 16: binary powering's but for 15 = 3·5."""
    return P.bit_length() + P.bit_count() - 2 - (P == 15)


def case(n, p, split):
    return Case((("N", n), ("P", p)), split)


OPERATOR = Operator(
    name="matrix_power",
    title="Matrix power",
    scenario="Dense algebra",
    definition="B = Aᴾ = A·A·…·A",
    dims=(Dim("N", 1, 4096, "rows and columns"), Dim("P", 1, 16, "the power")),
    arrays=(Array("A", ("N", "N")), Array("B", ("N", "N"), output=True)),
    cases=(
        *(case(2**k, p, Split.PAPER) for k in (8, 9, 10) for p in (2, 5, 8, 11, 16)),
        case(4096, 16, Split.LARGE),
        case(333, 7, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N, P: 2 * N * N * itemsize,
    flops=lambda N, P: 2 * N**3 * products(P),
    compute="precision",
    inputs=inputs,
    # No "large" and "constant": powers of them overflow or round the same way each time. No infinities: what they become
    # depends on the order of the products. A NaN reaches the same elements in every order.
    distributions=("uniform", "integers", "spiked", "permutation", "scaled_permutation", "nan", *patchwork.NAMES),
    bound_note=(
        "Every intermediate power may be rounded to the element type, also in bf16: its elements' errors, 8·2⁻²⁴·√N times "
        "the largest partial sum (Higham and Mary 2019, theorem 3.1; √t where a row or a column is zero but for t elements) "
        "and 4u of the element, are independent, and what they add up to in Aᴾ is the root of the sum of their squares, "
        "weighted by the map E → ΣᵢAⁱ·E·Aᴾ⁻ᑫ⁻ⁱ (Higham 2008, Functions of Matrices, section 3.1), the largest for binary "
        "powering and for one factor at a time. The last product and its rounding count in full; for P = 1 the copy has to "
        "be exact."
    ),
    library_note=(
        "cuBLASLt products by binary powering, each with every algorithm that its heuristics propose tried once; "
        "intermediate powers are in the element type."
    ),
    paper_name="matrix_power",
)
