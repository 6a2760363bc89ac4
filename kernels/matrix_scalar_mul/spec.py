"""matrix_scalar_mul: a map over a matrix; only bandwidth counts."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split

SLAB = 2**24  # elements: 2^29 of them have to fit with few float64 temporaries


def reference(xp, A, a, M, N):
    return a * A


def bound(xp, u, out, A, a, M, N):
    limit = xp.empty((M, N))
    step = max(1, SLAB // N)
    for start in range(0, M, step):
        B = out["B"][start : start + step]
        # The error is that of the scalar as a float.
        limit[start : start + step] = bounds.rounded(xp, u, B, bounds.FP32_ROUNDOFF * xp.abs(B))
    return limit


def case(m, n, split, scalars=()):
    return Case((("M", m), ("N", n)), split, scalars=scalars)


OPERATOR = Operator(
    name="matrix_scalar_mul",
    title="Matrix times a scalar",
    scenario="Dense algebra",
    definition="Bᵢⱼ = a·Aᵢⱼ",
    dims=(Dim("M", 1, 2**17, "rows"), Dim("N", 1, 2**13, "columns")),
    arrays=(Array("A", ("M", "N")), Array("B", ("M", "N"), output=True)),
    # Far from any bf16 number, so that a kernel that rounds the scalar is found out.
    scalars=(Scalar("a", "float", 1.3, low=-4.0, high=-0.25),),
    cases=(
        *(case(2**k, 2048, Split.PAPER) for k in (8, 10, 12, 14, 16)),
        case(131072, 4096, Split.LARGE),
        case(1003, 777, Split.ODD),
        case(1003, 777, Split.ODD, (("a", -0.7),)),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, M, N: 2 * M * N * itemsize,
    flops=lambda M, N: M * N,
    deterministic=True,
    bound_note=(
        "One product is rounded once to the element type, at most u·|B| (Higham 2002, theorem 2.2). The scalar that "
        "is multiplied was itself rounded to fp32, which adds 2⁻²⁴·|B|."
    ),
    library_note=(
        "cuBLAS geam out of place (fp32; there is no bf16 form), cublasLtMatrixTransform without a transposition and "
        "cub::DeviceTransform (both precisions); the fastest is the bar. cublasScalEx works in place and would need a "
        "copy first."
    ),
    paper_name="matrix_scalar_mul",
)
