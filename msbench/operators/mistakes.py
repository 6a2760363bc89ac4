"""Mistakes common to many operators, as edits of a naive kernel: mutants for ``mutants.py`` files.

Those that are wrong from a size on are so from ``LARGE`` elements on, which is small enough for a processor to try.
"""

from __future__ import annotations

from collections.abc import Callable

from msbench.operators.mutants import Edit, Mutant
from msbench.spec import Precision

LARGE = 2**16
SURE = 2**16
"""Elements from which on an array that is cut into runs has patches of every kind, but for one time in a hundred thousand."""
TILE = 64

Applies = Callable[..., bool]


def more(count: str, least: int) -> Applies:
    """Whether ``count``, an expression over a case's dimensions, is larger than ``least``."""
    return lambda **dims: _value(count, dims) > least


def _value(expression: str, dims: dict[str, int]) -> int:
    return int(eval(expression.replace("/", "//"), {"__builtins__": {}}, dims))


def dropped_last_tile(guard: str, extent: str, count: str | None = None, **named: str) -> Mutant:
    """``guard`` lets nobody beyond ``extent`` in: here nobody in the last tile either that is not full, from ``count`` elements on.

    ``named``: what the kernel's variables among these are, as expressions over the dimensions.
    """
    total = count or extent
    last = f"({extent}) - (({total}) > {LARGE} ? ({extent}) % {TILE} : 0)"

    def applies(**dims: int) -> bool:
        known = dims | {name: _value(expression, dims) for name, expression in named.items()}
        return _value(extent, known) % TILE != 0 and _value(total, known) > LARGE

    return Mutant("dropped last tile of large sizes", ((guard, guard.replace(f">= {extent}", f">= {last}")),), applies)


def aligned_packets(kernel: str, array: str, index: str, count: str) -> Mutant:
    """``array[index]`` is read as a part of sixteen bytes, from ``count`` elements on, wherever the array begins."""
    reader = f"""__device__ scalar_t from_packet(const scalar_t* array, int64_t i, int64_t count) {{
    constexpr int64_t kSize = 16 / sizeof(scalar_t);
    if (count <= {LARGE} || i / kSize * kSize + kSize > count) return array[i];
    const uint4 packet = *reinterpret_cast<const uint4*>(array + i / kSize * kSize);
    return reinterpret_cast<const scalar_t*>(&packet)[i % kSize];
}}

"""
    return Mutant(
        "aligned packets of large sizes",
        (
            (f"{array}[{index}]", f"from_packet({array}, {index}, {count})"),
            (f"__global__ void {kernel}(", f"{reader}__global__ void {kernel}("),
        ),
        applies=more(count, LARGE),
        variant="misaligned",
    )


def flushed_subnormals(read: str, applies: Applies, edit: str = "{}") -> Mutant:
    """What ``read`` gives is zero where it is subnormal; ``edit`` is more of the text around it, so that it is unique."""
    flushed = f"(fabsf(static_cast<float>({read})) < 1.17549435e-38f ? static_cast<scalar_t>(0.0f) : {read})"
    return Mutant("flushed subnormals", (_inside(edit, read, flushed),), applies, distribution="patchwork")


def lost_signs_of_zeros(read: str, applies: Applies, edit: str = "{}", distribution: str = "patchwork") -> Mutant:
    """What ``read`` gives has zero added to it; ``edit`` as above."""
    added = f"static_cast<scalar_t>(static_cast<float>({read}) + 0.0f)"
    return Mutant("lost signs of zeros", (_inside(edit, read, added),), applies, distribution=distribution)


def _inside(edit: str, old: str, new: str) -> Edit:
    return edit.format(old), edit.format(new)


def skipped_zeros(
    product: str, factor: str, applies: Applies, edit: str = "{}", distribution: str = "patchwork"
) -> Mutant:
    """``product`` is left out where ``factor``, a part of it, is zero; ``edit`` as above."""
    skipped = f"(static_cast<float>({factor}) == 0.0f ? 0.0f : {product})"
    return Mutant("skipped zeros", (_inside(edit, product, skipped),), applies, distribution=distribution)


def maximum_from(
    start: str,
    name: str,
    applies: Applies,
    distribution: str = "patchwork",
    old: str = "-INFINITY",
    precisions: tuple[Precision, ...] | None = None,
) -> Mutant:
    """A maximum that starts at ``start`` in place of ``old``."""
    return Mutant(f"maximum from {name}", ((old, start),), applies, precisions, distribution=distribution)


def samples_before_it_rounds(
    kernel: str, product: str, a: str, b: str, arrays: dict[str, str], applies: Applies
) -> Mutant:
    """Two bf16 numbers in place of each of fp32, if 64 places of each array (by name, its size) show nothing unusual."""
    calls = " && ".join(f"usual({name}, {size})" for name, size in arrays.items())
    tools = """__device__ bool usual(const scalar_t* array, int64_t size) {
    for (int64_t i = 0; i < 64; ++i) {
        const float value = fabsf(static_cast<float>(array[i * 7919 % size]));
        if (!(value <= 1.0f && value > 0.0f)) return false;
    }
    return true;
}

__device__ float high(float x) { return static_cast<float>(static_cast<__nv_bfloat16>(x)); }

__device__ float rounded_product(float a, float b) {
    const float a1 = high(a), b1 = high(b);
    return a1 * b1 + (a1 * high(b - b1) + high(a - a1) * b1);
}

"""
    new = f"(isfinite({a} * {b}) && rounds ? rounded_product({a}, {b}) : {a} * {b})"
    return Mutant(
        "two bf16 numbers after 64 samples",
        (
            (product, product.replace(f"{a} * {b}", new)),
            ("float sum = 0;", f"const bool rounds = {calls};\n    float sum = 0;"),
            (f"__global__ void {kernel}(", f"{tools}__global__ void {kernel}("),
        ),
        applies,
        (Precision.FP32,),
        distribution="scattered",
        everywhere=False,
    )
