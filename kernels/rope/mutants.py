"""Wrong kernels that the check must reject."""

from msbench.operators.mistakes import aligned_packets, dropped_last_tile
from msbench.operators.mutants import Mutant

FIRST, SECOND = "static_cast<float>(x[2 * index]);", "static_cast<float>(x[2 * index + 1]);"


def turns(M, D):
    """Row 0 is not turned at all, so one row alone does not tell angles apart."""
    return M >= 2


def powers(M, D):
    """Two columns are one pair, whose power is 1 whatever the base; the angles of a few more are small in the first rows."""
    return M >= 4 and D >= 8


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(first * cosine - second * sine)", "static_cast<scalar_t>(0.0f)"),)),
    Mutant("no rotation", (("sincosf(angle,", "sincosf(0 * angle,"),), applies=turns),
    Mutant("rotation the other way", (("sincosf(angle,", "sincosf(-angle,"),), applies=turns),
    Mutant("off by one row", (("angle = row *", "angle = (row + 1) *"),)),
    Mutant("wrong scalar", (("powf(base,", "powf(100.0f,"),), applies=powers),
    Mutant("half the exponent", (("-2.0f * pair / D", "-1.0f * pair / D"),), applies=powers),
    Mutant(
        "pairs half a row apart",
        (
            (FIRST, "static_cast<float>(x[row * D + pair]);"),
            (SECOND, "static_cast<float>(x[row * D + pair + pairs]);"),
            ("y[2 * index] =", "y[row * D + pair] ="),
            ("y[2 * index + 1] =", "y[row * D + pair + pairs] ="),
        ),
        applies=lambda M, D: M >= 2 and D >= 4,
    ),
    Mutant("stale output", (("y[2 * index + 1] =", "if (pair < pairs - 1) y[2 * index + 1] ="),)),
    dropped_last_tile("if (index >= M * pairs) return;", "M * pairs", pairs="D / 2"),
    aligned_packets("rope_kernel", "x", "2 * index", "M * D"),
)
