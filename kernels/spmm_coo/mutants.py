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
        (("Y[i] = static_cast<scalar_t>(sums[i]);", "Y[i] = static_cast<scalar_t>(0.0f);"),),
    ),
    Mutant(
        "half the reduction",
        (("if (i >= nnz * K) return;", "if (i >= nnz / 2 * K) return;"),),
        applies=lambda rows, cols, nnz, K: rows >= 8,
    ),
    Mutant(
        "off by one element",
        (("Y[i] = static_cast<scalar_t>(sums[i]);", "Y[i] = static_cast<scalar_t>(sums[(i + 1) % size]);"),),
        applies=lambda rows, cols, nnz, K: rows >= 8,
    ),
    Mutant(
        "stores instead of adding",
        (("atomicAdd(&sums[row_indices[k] * K + j], product);", "sums[row_indices[k] * K + j] = product;"),),
        applies=lambda rows, cols, nnz, K: nnz >= 2 * rows and rows >= 8,
    ),
    Mutant(
        "bf16 products",
        (("product);", "__bfloat162float(__float2bfloat16(product)));"),),
        applies=lambda rows, cols, nnz, K: nnz <= 64 * rows and rows >= 8,
        precisions=(Precision.FP32,),
    ),
    Mutant(
        "bf16 products",
        (("product);", "__bfloat162float(__float2bfloat16(product)));"),),
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
        (("if (i >= nnz * K) return;", "if (i >= nnz / 256 * 256 * K) return;"),),
        applies=lambda rows, cols, nnz, K: nnz % 256 >= 32 and nnz <= 64 * rows and rows >= 8,
    ),
    Mutant(
        "stale output",
        (("if (i >= size) return;", "if (i >= size / 2) return;"),),
    ),
    Mutant(
        "skipped empty row",
        (("Y[i] = static_cast<scalar_t>(sums[i]);", "if (sums[i] != 0.0f) Y[i] = static_cast<scalar_t>(sums[i]);"),),
        applies=lambda rows, cols, nnz, K: nnz < rows,
    ),
    dropped_last_tile("if (i >= size) return;", "size", size="rows * K"),
    skipped_zeros(
        "static_cast<float>(values[k]) * static_cast<float>(X[col_indices[k] * K + j])",
        "values[k]",
        lambda rows, cols, nnz, K: nnz >= 5000 and K >= 60,
    ),
)
