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
        applies=lambda rows, cols, nnz, K: nnz >= 2 * rows and rows >= 8,
    ),
    Mutant(
        "off by one element",
        (("int32_t k = row_offsets[row];", "int32_t k = row_offsets[row] + 1;"),),
        applies=lambda rows, cols, nnz, K: nnz <= 64 * rows and rows >= 8,
    ),
    Mutant(
        "off by one row",
        (("int64_t row = i / K;", "int64_t row = (i / K + 1) % rows;"),),
        applies=lambda rows, cols, nnz, K: rows >= 8,
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                "sum += static_cast<float>(values[k])",
                "sum = __bfloat162float(__float2bfloat16(sum + static_cast<float>(values[k])",
            ),
            ("X[col_indices[k] * K + j]);", "X[col_indices[k] * K + j])));"),
        ),
        applies=lambda rows, cols, nnz, K: rows >= 8,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 accumulation",
        (
            (
                "sum += static_cast<float>(values[k])",
                "sum = __bfloat162float(__float2bfloat16(sum + static_cast<float>(values[k])",
            ),
            ("X[col_indices[k] * K + j]);", "X[col_indices[k] * K + j])));"),
        ),
        applies=lambda rows, cols, nnz, K: (
            rows * K >= 64 and nnz <= 64 * rows and nnz**2 >= 64 * rows and nnz**2 * K >= 1024 * rows
        ),
        precisions=(Precision.BF16,),
    ),
    Mutant(
        "TF32 inputs",
        (
            ("static_cast<float>(values[k])", "__uint_as_float(__float_as_uint(values[k]) & 0xffffe000u)"),
            (
                "static_cast<float>(X[col_indices[k] * K + j])",
                "__uint_as_float(__float_as_uint(X[col_indices[k] * K + j]) & 0xffffe000u)",
            ),
        ),
        applies=lambda rows, cols, nnz, K: nnz <= 64 * rows and rows >= 8,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "dropped tail",
        (("if (i >= rows * K) return;", "if (i >= rows * K / 4 * 4) return;"),),
        applies=lambda rows, cols, nnz, K: rows * K % 4 != 0,
    ),
    Mutant(
        "skipped empty row",
        (
            (
                "Y[i] = static_cast<scalar_t>(sum);",
                "if (row_offsets[row] < row_offsets[row + 1]) Y[i] = static_cast<scalar_t>(sum);",
            ),
        ),
        applies=lambda rows, cols, nnz, K: nnz < rows,
    ),
    Mutant(
        "transposed index",
        (("X[col_indices[k] * K + j]", "X[j * cols + col_indices[k]]"),),
        applies=lambda rows, cols, nnz, K: cols >= 2 and K >= 2,
    ),
    dropped_last_tile("if (i >= rows * K) return;", "rows * K"),
    skipped_zeros(
        "static_cast<float>(values[k]) * static_cast<float>(X[col_indices[k] * K + j])",
        "values[k]",
        lambda rows, cols, nnz, K: nnz >= 5000 and K >= 60,
    ),
)
