"""softmax over the rows of a matrix: two reductions and a map."""

from msbench import bounds
from msbench.arrays import count
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def reference(xp, x, N, C):
    exponential = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return exponential / xp.sum(exponential, axis=1, keepdims=True)


def bound(xp, u, out, x, N, C):
    y = out["y"]
    # Beyond a distance of 1000 from the row's maximum y is zero; the limit keeps -inf from making 0·∞.
    distance = xp.minimum(xp.max(x, axis=1, keepdims=True) - x, 1000.0)
    mean_distance = xp.sum(y * distance, axis=1, keepdims=True)
    # Relative errors, in units of v: an exponential with argument -d has 3d from rounding its argument and 4 from exp
    # itself; the sum inherits the mean of that, loses what is small, and adds its own growth, twice if it follows a
    # running maximum. In sorted rows neighbours are alike, and so are the sum's roundings.
    lost = xp.sum(bounds.absorbed(xp, y), axis=1, keepdims=True)
    # Equal ones are alike whatever lies between them.
    equal = count((y[:, 1:] == y[:, :-1]) & (y[:, 1:] > 0), xp, 1) / C
    growth = bounds.growth(xp, C, xp.maximum(bounds.alike(xp, y, axis=1), equal))[:, None]
    relative = 3 * (distance + mean_distance) + lost + 2 * growth + 64
    # A second rounding to the element type is allowed: cuDNN's bf16 softmax is not within one.
    return bounds.rounded(xp, u, y, (relative * bounds.FP32_ROUNDOFF + u) * y)


def inputs(rng, distribution, N, C):
    return {"x": rng.floats("x", (N, C), distribution, axis=1, kinds=patchwork.ORDERED)}


def case(n, c, split):
    return Case((("N", n), ("C", c)), split)


OPERATOR = Operator(
    name="softmax",
    title="Softmax",
    scenario="LLM",
    definition="yᵢⱼ = exp(xᵢⱼ - maxₖxᵢₖ) / Σₗexp(xᵢₗ - maxₖxᵢₖ)",
    dims=(Dim("N", 1, 2**16, "rows"), Dim("C", 1, 2**14, "columns")),
    arrays=(Array("x", ("N", "C")), Array("y", ("N", "C"), output=True)),
    cases=(
        *(case(n, 2**k, Split.PAPER) for n in (16, 32, 64, 128) for k in (8, 10, 12, 14)),
        case(8192, 8192, Split.LARGE),
        case(37, 1003, Split.ODD),
    ),
    inputs=inputs,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N, C: 2 * N * C * itemsize,
    flops=lambda N, C: 5 * N * C,
    bound_note=(
        "Rounding the argument of an exponential at distance d from the row's maximum changes it by 3d·2⁻²⁴ of "
        "itself, and a sum of C positive terms errs by min(C', 8√C')·2⁻²⁴ of itself in any order, C' = min(C, 4096) "
        "(Higham and Mary 2019, theorem 3.1), or by C'·2⁻²⁴ where a row is sorted or all alike, so that terms round alike "
        "(Higham 2002, equation 4.4), counted twice for a running maximum; terms below 2⁻¹⁹ of the sum may get "
        "lost in it, up to 2⁻²⁴ of the sum each. The bound is relative to each "
        "output, so small outputs count like large ones, and allows two roundings to the element type, as the "
        "vendor's library needs in bf16."
    ),
    library_note=(
        "cudnnSoftmaxForward in its accurate (max-subtracted) form, by the fastest of three ways to describe the matrix to it. "
        "cuDNN's graph API has a softmax only as a part of attention."
    ),
    bytes_note="The naive kernel reads each row three times, for its maximum, its sum and the results, and rows do not stay in L2.",
    flops_note=(
        "An exponential and a maximum count as one operation each; computed, an exponential is several "
        "multiplications and additions, and a maximum is neither."
    ),
    paper_name="softmax",
)
