"""Wrong kernels that the check must reject."""

from msbench.operators.mutants import Mutant

SUM = "sum += partial[row][threadIdx.x];"


def several(N, C):
    """A column's scale may be little beside its shift, and its rows about the same."""
    return N >= 2 and C >= 8


MUTANTS = (
    Mutant("zeros", (("static_cast<scalar_t>(scale * value + shift)", "static_cast<scalar_t>(0.0f)"),)),
    Mutant(
        "half the reduction",
        (
            ("row < N; row += kRows) own", "row < N / 2; row += kRows) own"),
            ("column_sum(own) / N", "column_sum(own) / (N / 2)"),
        ),
        applies=several,
    ),
    # In more columns some last row is far enough from zero to be missed.
    Mutant(
        "last row left out of the mean",
        (("row < N; row += kRows) own", "row < N - 1; row += kRows) own"),),
        applies=lambda N, C: N >= 2 and C >= 16,
    ),
    Mutant(
        "off by one row",
        (
            (
                "(static_cast<float>(x[row * C + column]) - mean) /",
                "(static_cast<float>(x[(row + 1) % N * C + column]) - mean) /",
            ),
        ),
        applies=several,
    ),
    # Fewer rows are not added up from enough threads.
    Mutant(
        "bf16 accumulation",
        ((SUM, SUM + "\n        sum = __uint_as_float(__float_as_uint(sum) & 0xffff0000u);"),),
        applies=lambda N, C: N >= 64 and C >= 8,
    ),
    # Beyond 2^12 rows the difference of 1/2N comes near what fp32 arithmetic may err by.
    Mutant(
        "unbiased variance",
        (("column_sum(squares) / N", "column_sum(squares) / (N - 1)"),),
        applies=lambda N, C: C >= 8 and N <= 2**12,
    ),
    Mutant("wrong scalar", (("+ epsilon", "+ 0.1f"),), applies=several),
    Mutant("stale output", (("bool outside = column >= C;", "bool outside = column >= C - 1;"),)),
    Mutant("transposed index", (("y[row * C + column]", "y[column * N + row]"),), applies=several),
)
