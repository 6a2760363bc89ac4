"""softmax_attention: two matrix products with a softmax between them, over one head of any width."""

from math import sqrt

from msbench import bounds
from msbench.arrays import count
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split

SLAB = 2**24
"""Scores that are worked on together: float64 temporaries of 128 MiB each."""
ROUNDINGS = 4.0
"""Roundings of weights to bf16 are independent and at most u each: a weighted sum of them stays below this times the root
of the sum of squares, which is seven standard deviations or more (each is u/√3 or less)."""

DRIFTS = 4.0
"""As ROUNDINGS, for errors of one sign: their standard deviation is half of the largest at most, so it is eight of them."""
AT_ONCE = 8
"""Products that tensor cores add to a sum in a step, or more: the least depth of a bf16 mma in PTX (wgmma: 16)."""

SIZE = 8.0
"""What few_keys multiplies the elements of K with, besides √d."""
DEEP = (2.0**9, 2.0**14, 2.0**17)
"""Scores of some queries in patches are about minus one of these: exp of them is zero in fp32, and the last two are below what a
kernel may take for minus infinity."""
RISE = 64.0
"""exp of this is finite in fp32, and not its product with a large value. A weight of exp(-RISE) keeps 2³² above what fp32 flushes to
zero, which a kernel may use to scale weights by less than their row's maximum; and a zero would make NaN of an infinite value."""
CLIMB = 128.0
KEYS = ("uniform", "few", "zeros", "tiny")
QUERIES = (*KEYS, "ties", "infinities", "nan")
FAR = 32.0
"""Scores that are the square of this apart have weights of zero, also in float64."""


def slabs(q, kv):
    step = max(1, SLAB // kv)
    return (slice(start, min(start + step, q)) for start in range(0, q, step))


def weights(xp, Q, K, rows, d):
    """Scores, their distances from the row's maximum, and the softmax."""
    scores = Q[rows] @ K.T / sqrt(d)
    distance = xp.max(scores, axis=1, keepdims=True) - scores
    P = xp.exp(-distance)
    return scores, distance, P / xp.sum(P, axis=1, keepdims=True)


def reference(xp, Q, K, V, q, kv, d, dv):
    Y = xp.empty((q, dv))
    for rows in slabs(q, kv):
        Y[rows] = weights(xp, Q, K, rows, d)[2] @ V
    return Y


def drift(xp, left, right):
    """What tensor cores may lose of each sum in ``left @ right`` on average, in units of v: no matter of chance, it has one sign.

    A step truncates the sum where other arithmetic rounds (Fasi, Higham, Mikaitis and Pranesh 2021, "Numerical behavior of
    NVIDIA tensor cores", PeerJ Computer Science 7:e330). That takes 0 to 2v of it, v on average, always towards zero; how much a
    step differs from the average is as random as a rounding. A step whose products are all negligible, as in
    ``bounds.product``, takes nothing.
    """
    terms = left.shape[1]
    length = -(-terms // bounds.PARTIAL_SUMS)
    partial = largest = 0.0
    for start in range(0, terms, length):
        part = slice(start, start + length)
        partial = partial + left[:, part] @ right[part]
        largest = xp.maximum(largest, xp.abs(partial))
    largest = xp.maximum(largest, xp.sqrt((left * left) @ (right * right)))
    steps = (felt(xp, left, 1) @ felt(xp, right, 0)).astype("float64")
    return xp.minimum(steps, -(-terms // AT_ONCE)) * largest


def felt(xp, values, axis):
    """1 for values that are not negligible beside the largest along an axis, else 0: in float32, exact up to 2²⁴ terms."""
    sizes = xp.abs(values)
    return (sizes > bounds.NEGLIGIBLE * xp.max(sizes, axis=axis, keepdims=True)).astype("float32")


def scattered(xp, spread, V, square, Y):
    """√Σ(spreadⱼ(vⱼ - Y))²: how far errors of weights that know nothing of values move Y, since ∂Y/∂sⱼ = pⱼ(vⱼ - Y)."""
    spread = spread * spread
    error = spread @ square - 2 * Y * (spread @ V) + Y * Y * xp.sum(spread, axis=1, keepdims=True)
    return xp.sqrt(xp.maximum(error, 0.0))


def bound(xp, u, out, Q, K, V, q, kv, d, dv):
    limit = xp.empty((q, dv))
    size, square = xp.abs(V), V * V
    for rows in slabs(q, kv):
        Y = out["Y"][rows]
        scores, distance, P = weights(xp, Q, K, rows, d)
        # Scores err independently of each other by the error of their sum.
        # Weights of zero belong to scores that may be -inf, and must not make 0·∞.
        spread = xp.where(P > 0, P * bounds.product(xp, Q[rows], K.T) / sqrt(d), 0.0)
        error = scattered(xp, spread, V, square, Y)
        # What may be the same for all: the scale and its product, the exponential's argument, the exponential itself, and
        # what both sums lose of keys with little weight.
        common = xp.where(P > 0, P * (4 * xp.abs(scores) + 3 * distance + 8), 0.0) + bounds.absorbed(xp, P)
        counted = count(P != 0, xp, 1)[:, None]
        total = xp.sum(common, axis=1, keepdims=True) + 2 * bounds.growth(xp, counted)
        error += bounds.FP32_ROUNDOFF * (common @ size + total * xp.abs(Y))
        error += sqrt(2) * bounds.product(xp, P, V)  # √2: a running maximum rescales the sum as often as it adds
        if u > bounds.FP32_ROUNDOFF:
            rounding = xp.minimum(P @ size, ROUNDINGS * xp.sqrt((P * P) @ square))
            error += u * (rounding + xp.abs(Y))
            # Scores that drift by bⱼ move Y by Σpⱼvⱼ(bⱼ - b̄), b̄ = Σpb. Keys of a kind share their b, so that b̄ does not average
            # out as independent errors do, and a few values, of few keys, have all of it.
            drifts = xp.where(P > 0, bounds.FP32_ROUNDOFF * drift(xp, Q[rows], K.T) / sqrt(d), 0.0)
            drifts = P * (drifts + xp.sum(P * drifts, axis=1, keepdims=True))
            error += xp.minimum(drifts @ size, DRIFTS * scattered(xp, drifts, V, square, Y))
        limit[rows] = bounds.rounded(xp, u, Y, error)
    return limit


def inputs(rng, distribution, q, kv, d, dv):
    """``few_keys``: sums with no room for inexact products, both that of a score and that of an output.

    A key has few elements that are not zero, which make scores of a few units; and the first columns of Q and K put the
    scores of all but a few keys so low that their weights are zero. ``patchwork`` has queries all of whose scores are far below 0.
    """
    if distribution in patchwork.NAMES:
        return patches(rng, distribution, q, kv, d, dv)
    few = distribution == "few_keys"
    drawn = "uniform" if few else distribution
    Q, V = rng.floats("Q", (q, d), drawn), rng.floats("V", (kv, dv), drawn)
    K = SIZE * sqrt(d) * rng.few("K", d, kv).T if few else rng.floats("K", (kv, d), drawn)
    if few:
        Q[:, 0] = FAR * sqrt(d)
        K[:, 0] = rng.xp.where(rng.few("keys", kv, 1)[:, 0] == 0, -FAR, 0)
    return {"Q": Q, "K": K, "V": V}


def patches(rng, distribution, q, kv, d, dv):
    """Kinds of queries, keys, and columns of V. What is not finite is in a query or a column, and leaves the others alone.

    In ``patchwork`` the scores of some queries are anywhere between 0 and RISE, or rise to CLIMB from key to key: a maximum that
    lags behind lets weights overflow. Then values are finite, since weights are zero in fp32 alone.
    """
    Q = rng.floats("Q", (q, d), distribution, axis=1, kinds=QUERIES)
    K = rng.floats("K", (kv, d), distribution, axis=1, kinds=KEYS)
    which = rng.integers("deep", (q,), 0, 8 * len(DEEP))
    for number, depth in enumerate(DEEP):
        Q[:, 0] = rng.xp.where(which == number, rng.xp.float32(-depth * sqrt(d)), Q[:, 0])
    K[:, 0] = 1
    kinds = patchwork.TERMS
    if d > 1 and distribution == "patchwork":
        climbs = rng.position("climbs", 2)
        height = rng.xp.float32((CLIMB if climbs else RISE) * sqrt(d))
        Q[:, 1] = rng.xp.where(rng.integers("rises", (q,), 0, 8) == 0, height, Q[:, 1])
        K[:, 1] = rng.xp.arange(kv) / kv if climbs else rng.uniform("steps", (kv,))
        kinds = patchwork.FINITE if climbs else kinds
    return {"Q": Q, "K": K, "V": rng.floats("V", (kv, dv), distribution, axis=0, kinds=kinds)}


def case(q, kv, d, dv, split):
    return Case((("q", q), ("kv", kv), ("d", d), ("dv", dv)), split)


PAPER = (
    (128, 256, 512, 512),
    (256, 512, 1024, 1024),
    (512, 1024, 2048, 2048),
    (1024, 2048, 4096, 4096),
    (256, 1024, 2048, 1024),
    (512, 512, 1024, 2048),
    (1024, 1024, 4096, 2048),
    (128, 2048, 512, 4096),
)

OPERATOR = Operator(
    name="softmax_attention",
    title="Softmax attention",
    scenario="LLM",
    definition="Y = softmax(Q·Kᵀ/√d)·V, the softmax over each row",
    dims=(
        Dim("q", 1, 2**14, "queries: rows of Q and Y"),
        Dim("kv", 1, 2**14, "keys and values: rows of K and V"),
        Dim("d", 1, 4096, "columns of Q and K"),
        Dim("dv", 1, 4096, "columns of V and Y"),
    ),
    arrays=(
        Array("Q", ("q", "d")),
        Array("K", ("kv", "d")),
        Array("V", ("kv", "dv")),
        Array("Y", ("q", "dv"), output=True),
    ),
    cases=(
        *(case(*sizes, Split.PAPER) for sizes in PAPER),
        case(8192, 8192, 128, 128, Split.LARGE),
        case(77, 203, 96, 80, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, q, kv, d, dv: (q * d + kv * d + kv * dv + q * dv) * itemsize,
    flops=lambda q, kv, d, dv: 2 * q * kv * (d + dv) + 5 * q * kv,
    compute="precision",
    inputs=inputs,
    # No "large": scores of 2⁸⁰ are known to 2⁵⁶, and which of them is the largest is anybody's guess. No "sorted": its
    # weights change so slowly that their roundings to bf16 are all alike.
    distributions=("uniform", "spiked", "constant", "few_keys", *patchwork.NAMES),
    bound_note=(
        "Scores err by 8·2⁻²⁴·√d times their largest partial sum (Higham and Mary 2019, theorem 3.1), which reaches Y "
        "through ∂Y/∂sⱼ = pⱼ(vⱼ - Y); scale, exponentials, the weights' sum and the second product add errors as in "
        "softmax and matrix_mul, and both sums may lose weights below 2⁻¹⁹, up to 2⁻²⁴ each. Terms of zero do not count, so that "
        "two bf16 numbers in place of one of fp32 are rejected (distribution few_keys). In bf16 the weights pⱼ may be "
        "rounded to bf16 before the second product, as flash attention does: 4u·√Σ(pⱼvⱼ)², and u·|Y| for weights that are "
        "all alike. In bf16 tensor cores may also truncate scores, by 2⁻²⁴ times their "
        "largest partial sum for each 8 products, towards zero: b, which reaches Y as Σpⱼ|vⱼ|(bⱼ + Σpb) or, if less, "
        "4·√Σ(pⱼ(bⱼ + Σpb)(vⱼ - Y))²."
    ),
    library_note=(
        "cuDNN's fused attention (bf16, d and dv up to 256 and multiples of 8), and for all sizes two cuBLASLt products, "
        "with every algorithm that its heuristics propose tried once, around a softmax kernel; scores stay in fp32."
    ),
    paper_name="softmax_attention",
)
