"""Wrong kernels that the check must reject.

A fault has to show in one element, where it may hide by chance: hence at least eight rows. What changes a few terms, or all
by a little, is within what right kernels lose when they add a long row in the worst order: hence the limits on a row's
mean length. bf16 rounding in between shows in bf16 only where enough rows have two entries, which is where nnz²/2
exceeds the rows.
"""

from msbench.operators.mistakes import dropped_last_tile, skipped_zeros
from msbench.operators.mutants import Mutant
from msbench.spec import Precision

MUTANTS = (
    Mutant(
        "zeros",
        (("static_cast<scalar_t>(sum)", "static_cast<scalar_t>(0.0f)"),),
    ),
    Mutant(
        "half the reduction",
        (("k < row_offsets[row + 1];", "k < (row_offsets[row] + row_offsets[row + 1] + 1) / 2;"),),
        applies=lambda rows, cols, nnz: nnz >= 2 * rows and rows >= 8,
    ),
    Mutant(
        "off by one element",
        (("int32_t k = row_offsets[row];", "int32_t k = row_offsets[row] + 1;"),),
        applies=lambda rows, cols, nnz: nnz <= 64 * rows and rows >= 8,
    ),
    Mutant(
        "off by one row",
        (("y[row] =", "y[(row + 1) % rows] ="),),
        applies=lambda rows, cols, nnz: rows >= 8,
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                "sum += static_cast<float>(values[k])",
                "sum = __bfloat162float(__float2bfloat16(sum + static_cast<float>(values[k])",
            ),
            ("x[col_indices[k]]);", "x[col_indices[k]])));"),
        ),
        applies=lambda rows, cols, nnz: rows >= 8,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                "sum += static_cast<float>(values[k])",
                "sum = __bfloat162float(__float2bfloat16(sum + static_cast<float>(values[k])",
            ),
            ("x[col_indices[k]]);", "x[col_indices[k]])));"),
        ),
        applies=lambda rows, cols, nnz: rows >= 64 and nnz <= 64 * rows and nnz**2 >= 1024 * rows,
        precisions=(Precision.BF16,),
    ),
    Mutant(
        "TF32 inputs",
        (
            ("static_cast<float>(values[k])", "__uint_as_float(__float_as_uint(values[k]) & 0xffffe000u)"),
            (
                "static_cast<float>(x[col_indices[k]])",
                "__uint_as_float(__float_as_uint(x[col_indices[k]]) & 0xffffe000u)",
            ),
        ),
        applies=lambda rows, cols, nnz: nnz <= 64 * rows and rows >= 8,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "dropped tail",
        (("if (row >= rows) return;", "if (row >= rows / 4 * 4) return;"),),
        applies=lambda rows, cols, nnz: rows % 4 != 0,
    ),
    Mutant(
        "skipped empty row",
        (
            (
                "y[row] = static_cast<scalar_t>(sum);",
                "if (row_offsets[row] < row_offsets[row + 1]) y[row] = static_cast<scalar_t>(sum);",
            ),
        ),
        applies=lambda rows, cols, nnz: nnz < rows,
    ),
    dropped_last_tile("if (row >= rows) return;", "rows", "64 * rows"),
    # In longer rows of patches there is a NaN of other terms.
    skipped_zeros(
        "static_cast<float>(values[k]) * static_cast<float>(x[col_indices[k]])",
        "values[k]",
        lambda rows, cols, nnz: cols >= 2000 and 20000 <= nnz <= 256 * rows,
    ),
)
