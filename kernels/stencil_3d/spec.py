"""stencil_3d: one explicit step of the heat equation on a 3-D grid; a plane lies between a point and two neighbours."""

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split

SLAB = 2**24


def slabs(nx, ny, nz):
    """Ranges of inner planes with about SLAB elements each: 768³ points have to fit with their float64 temporaries."""
    step = max(1, SLAB // (ny * nz))
    return (slice(start, min(start + step, nx - 1)) for start in range(1, nx - 1, step))


def neighbours(grid, planes):
    before, behind = slice(planes.start - 1, planes.stop - 1), slice(planes.start + 1, planes.stop + 1)
    around = grid[before, 1:-1, 1:-1] + grid[behind, 1:-1, 1:-1]
    around += grid[planes, :-2, 1:-1] + grid[planes, 2:, 1:-1]
    around += grid[planes, 1:-1, :-2] + grid[planes, 1:-1, 2:]
    return around


def reference(xp, u_old, r, nx, ny, nz):
    u_new = u_old.copy()
    for planes in slabs(nx, ny, nz):
        u_new[planes, 1:-1, 1:-1] += r * (neighbours(u_old, planes) - 6 * u_old[planes, 1:-1, 1:-1])
    return u_new


def bound(xp, u, out, u_old, r, nx, ny, nz):
    limit = xp.zeros((nx, ny, nz))  # the boundary is copied
    for planes in slabs(nx, ny, nz):
        size = xp.abs(u_old[planes.start - 1 : planes.stop + 1])
        inner = slice(1, 1 + planes.stop - planes.start)
        terms = (1 + 6 * abs(r)) * size[inner, 1:-1, 1:-1] + abs(r) * neighbours(size, inner)
        exact = out["u_new"][planes, 1:-1, 1:-1]
        limit[planes, 1:-1, 1:-1] = bounds.rounded(xp, u, exact, 12 * bounds.FP32_ROUNDOFF * terms)
    return limit


def case(nx, ny, nz, split):
    return Case((("nx", nx), ("ny", ny), ("nz", nz)), split)


OPERATOR = Operator(
    name="stencil_3d",
    title="Heat step on a 3-D grid",
    scenario="Scientific",
    definition="u'ᵢⱼₖ = uᵢⱼₖ + r·(the sum of its six neighbours - 6uᵢⱼₖ) inside, u'ᵢⱼₖ = uᵢⱼₖ on the boundary",
    dims=(
        Dim("nx", 1, 2**10, "planes of the grid"),
        Dim("ny", 1, 2**10, "rows of a plane"),
        Dim("nz", 1, 2**10, "columns of a plane"),
    ),
    arrays=(Array("u_old", ("nx", "ny", "nz")), Array("u_new", ("nx", "ny", "nz"), output=True)),
    # These are exact in bf16, and so is 1 - 6r: cuDNN keeps a filter in the type of the data.
    scalars=(Scalar("r", "float", 0.125, low=2**-5, high=2**-2, step=2**-8),),
    cases=(
        *(case(2**i, 2**j, 2**k, Split.PAPER) for i in (6, 7, 8) for j in (6, 7, 8) for k in (6, 7, 8)),
        case(768, 768, 768, Split.LARGE),
        case(67, 51, 131, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, nx, ny, nz: 2 * nx * ny * nz * itemsize,
    flops=lambda nx, ny, nz: 9 * max(0, nx - 2) * max(0, ny - 2) * max(0, nz - 2),
    # Nothing that is not finite: as a convolution the stencil has corners of weight zero, and 0·∞ is NaN there.
    kinds=(*patchwork.FINITE, "deep", "subnormal"),
    deterministic=True,
    bound_note=(
        "Inside there are at most twelve fp32 roundings, each of at most 2⁻²⁴ times the sum of the terms' sizes "
        "(Higham 2002, equation 4.4), and one to the element type. The boundary has to be copied exactly. "
        "Inputs are finite: of an infinite point (1 - 6r)·u makes an infinity, and u + r·(… - 6u) NaN."
    ),
    library_note="cuDNN's 3×3×3 convolution with one channel, and a copy of the boundary.",
    paper_name="stencil_3d",
)
