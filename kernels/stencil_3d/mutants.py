"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import dropped_last_tile, flushed_subnormals, lost_signs_of_zeros
from msbench.operators.mutants import Mutant

STEP = "static_cast<scalar_t>(centre + r * (neighbours - 6 * centre))"
LAST = "static_cast<float>(u_old[at - 1]) + static_cast<float>(u_old[at + 1]);"


def inner(nx, ny, nz):
    """Whether there are inner points, and enough for one not to come out right by chance."""
    return min(nx, ny, nz) >= 3 and (nx - 2) * (ny - 2) * (nz - 2) >= 16


MUTANTS = (
    Mutant("zeros", ((STEP, "static_cast<scalar_t>(0.0f)"),), inner),
    Mutant("unchanged", ((STEP, "u_old[at]"),), inner),
    Mutant("off by one row", (("u_old[at - nz]", "u_old[at]"),), inner),
    Mutant("missing neighbour", (("static_cast<float>(u_old[at - ny * nz]) +", "0.0f +"),), inner),
    Mutant("wrong scalar", (("centre + r * (", "centre + 1.1f * r * ("),), inner),
    Mutant(
        "bf16 accumulation",
        (
            ("float neighbours = static_cast<float>", "__nv_bfloat16 rounded = static_cast<float>"),
            (LAST, LAST + "\n    float neighbours = static_cast<float>(rounded);"),
        ),
        # In bf16 the final rounding is as large as this one, and few of a hundred results show it.
        lambda nx, ny, nz: min(nx, ny, nz) >= 3 and (nx - 2) * (ny - 2) * (nz - 2) >= 1000,
    ),
    Mutant("boundary not copied", (("u_new[at] = u_old[at];\n        return;", "u_new[at] = 0.0f;\n        return;"),)),
    Mutant("stale boundary", (("u_new[at] = u_old[at];\n        return;", "return;"),)),
    Mutant(
        "dropped tail",
        (("if (j >= ny || k >= nz)", "if (j >= ny || k >= nz / 4 * 4)"),),
        lambda nx, ny, nz: nz % 4 != 0,
    ),
    dropped_last_tile("if (j >= ny || k >= nz) return;", "nz", "nx * ny * nz"),
    flushed_subnormals(
        "u_old[at]",
        lambda nx, ny, nz: nx * ny + ny * nz + nx * nz > 3000 and nx * ny * nz > 16384,
        edit="u_new[at] = {};",
    ),
    lost_signs_of_zeros(
        "u_old[at]",
        lambda nx, ny, nz: nx * ny + ny * nz + nx * nz > 3000 and nx * ny * nz > 16384,
        edit="u_new[at] = {};",
    ),
)
