"""max_pooling_2d: windows that overlap, at edges with fewer elements; exact, so that only traffic matters."""

from itertools import product

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split


def pooled(size, k, stride, padding):
    """How many windows there are along a side of `size` elements."""
    return max((size + 2 * padding - k) // stride + 1, 0)


def covered(size, tap, k, stride, padding):
    """Windows whose element number `tap` is not padding, and these elements: two slices of equal length."""
    first = max(0, -(-(padding - tap) // stride))
    last = min(pooled(size, k, stride, padding) - 1, (size - 1 + padding - tap) // stride)
    count = max(last - first + 1, 0)
    start = first * stride - padding + tap
    return slice(first, first + count), slice(start, start + count * stride, stride) if count else slice(0, 0)


def reference(xp, x, N, C, H, W, k, stride, padding):
    y = xp.full((N, C, pooled(H, k, stride, padding), pooled(W, k, stride, padding)), -xp.inf)
    for a, b in product(range(k), range(k)):
        rows, from_rows = covered(H, a, k, stride, padding)
        columns, from_columns = covered(W, b, k, stride, padding)
        part = y[:, :, rows, columns]
        xp.maximum(part, x[:, :, from_rows, from_columns], out=part)  # NaN if either is
    return y


def bound(xp, u, out, x, N, C, H, W, k, stride, padding):
    return xp.full((1, 1, 1, 1), bounds.EITHER_ZERO)  # for every element: exact, as a maximum is


def case(sizes, k, stride, padding, split):
    return Case((*zip("NCHW", sizes, strict=True), ("k", k), ("stride", stride), ("padding", padding)), split)


def nbytes(itemsize, N, C, H, W, k, stride, padding):
    return N * C * (H * W + pooled(H, k, stride, padding) * pooled(W, k, stride, padding)) * itemsize


def flops(N, C, H, W, k, stride, padding):
    return (k * k - 1) * N * C * pooled(H, k, stride, padding) * pooled(W, k, stride, padding)


EXTENT = "max(({} + 2 * padding - k) // stride + 1, 0)"
PAPER_SIZES = ((8, 3, 512, 512), (4, 3, 224, 224), (16, 3, 608, 608), (4, 1, 2048, 196))

OPERATOR = Operator(
    name="max_pooling_2d",
    title="Max pooling",
    scenario="LLM",
    definition=(
        "y[n,c,i,j] = max x[n,c,i·stride-padding+a,j·stride-padding+b] over a, b < k inside the image; NaN if one is NaN"
    ),
    dims=(
        Dim("N", 1, 2**12, "images"),
        Dim("C", 1, 2**12, "channels"),
        Dim("H", 1, 2**12, "rows of an image"),
        Dim("W", 1, 2**12, "columns of an image"),
        Dim("k", 1, 16, "rows and columns of a window"),
        Dim("stride", 1, 16, "rows and columns from one window to the next"),
        Dim("padding", 0, 8, "rows and columns around an image, which are ignored; at most k / 2"),
    ),
    arrays=(
        Array("x", ("N", "C", "H", "W")),
        Array("y", ("N", "C", EXTENT.format("H"), EXTENT.format("W")), output=True),
    ),
    cases=(
        *(
            case(sizes, k, stride, padding, Split.PAPER)
            for sizes in PAPER_SIZES
            for k, stride in ((2, 1), (3, 1), (4, 2))
            for padding in (0, 1)
        ),
        case((64, 64, 224, 224), 3, 2, 1, Split.LARGE),
        case((3, 5, 97, 131), 3, 2, 1, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=nbytes,
    flops=flops,
    kinds=patchwork.ORDERED,
    # Every window then has an element of the image.
    valid=lambda N, C, H, W, k, stride, padding: 2 * padding <= k <= min(H, W) + 2 * padding,
    deterministic=True,
    bound_note=(
        "The largest element has to come out exactly: nothing is rounded. A window with a NaN gives NaN, and padding "
        "never counts, as if it were -∞. A zero may have either sign."
    ),
    library_note="cudnnPoolingForward in its deterministic form that propagates NaN, with the faster of its tensor layouts.",
    flops_note=(
        "A comparison counts as one operation, and is no addition or multiplication to a profiler; cuDNN's kernel "
        "has some of those of its own, among them scaling by its α."
    ),
    paper_name="max_pooling_2d",
)
