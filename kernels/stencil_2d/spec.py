"""stencil_2d: one explicit step of the heat equation on a grid; neighbours are read again from cache, or not."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split

SLAB = 2**24


def slabs(nx, ny):
    """Ranges of inner rows with about SLAB elements each: 32768² points have to fit with their float64 temporaries."""
    step = max(1, SLAB // ny)
    return (slice(start, min(start + step, nx - 1)) for start in range(1, nx - 1, step))


def neighbours(grid, rows):
    above, below = slice(rows.start - 1, rows.stop - 1), slice(rows.start + 1, rows.stop + 1)
    return grid[above, 1:-1] + grid[below, 1:-1] + grid[rows, :-2] + grid[rows, 2:]


def reference(xp, u_old, r, nx, ny):
    u_new = u_old.copy()
    for rows in slabs(nx, ny):
        centre = u_old[rows, 1:-1]
        u_new[rows, 1:-1] += r * (neighbours(u_old, rows) - 4 * centre)
    return u_new


def bound(xp, u, out, u_old, r, nx, ny):
    limit = xp.zeros((nx, ny))  # the boundary is copied
    for rows in slabs(nx, ny):
        size = xp.abs(u_old[rows.start - 1 : rows.stop + 1])
        terms = (1 + 4 * abs(r)) * size[1:-1, 1:-1] + abs(r) * neighbours(size, slice(1, 1 + rows.stop - rows.start))
        limit[rows, 1:-1] = bounds.rounded(xp, u, out["u_new"][rows, 1:-1], 10 * bounds.FP32_ROUNDOFF * terms)
    return limit


def case(nx, ny, split):
    return Case((("nx", nx), ("ny", ny)), split)


OPERATOR = Operator(
    name="stencil_2d",
    title="Heat step on a 2-D grid",
    scenario="Scientific",
    definition="u'ᵢⱼ = uᵢⱼ + r·(uᵢ₋₁ⱼ + uᵢ₊₁ⱼ + uᵢⱼ₋₁ + uᵢⱼ₊₁ - 4uᵢⱼ) inside, u'ᵢⱼ = uᵢⱼ on the boundary",
    dims=(Dim("nx", 1, 2**15, "rows of the grid"), Dim("ny", 1, 2**15, "columns of the grid")),
    arrays=(Array("u_old", ("nx", "ny")), Array("u_new", ("nx", "ny"), output=True)),
    # These are exact in bf16, and so is 1 - 4r: cuDNN keeps a filter in the type of the data.
    scalars=(Scalar("r", "float", 0.125, low=2**-5, high=2**-2, step=2**-8),),
    cases=(
        *(case(2**i, 2**j, Split.PAPER) for i in (10, 12, 14) for j in (10, 12, 14)),
        case(32768, 32768, Split.LARGE),
        case(1003, 777, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, nx, ny: 2 * nx * ny * itemsize,
    flops=lambda nx, ny: 7 * max(0, nx - 2) * max(0, ny - 2),
    # Nothing that is not finite: as a convolution the stencil has corners of weight zero, and 0·∞ is NaN there.
    kinds=(*patchwork.FINITE, "deep", "subnormal"),
    deterministic=True,
    bound_note=(
        "Inside there are at most ten fp32 roundings, each of at most 2⁻²⁴ times the sum of the terms' sizes "
        "(Higham 2002, equation 4.4), and one to the element type. The boundary has to be copied exactly. "
        "Inputs are finite: of an infinite point (1 - 4r)·u makes an infinity, and u + r·(… - 4u) NaN."
    ),
    library_note="cuDNN's 3×3 convolution with one channel, and a copy of the boundary.",
    paper_name="stencil_2d",
)
