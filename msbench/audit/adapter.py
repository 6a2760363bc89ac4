"""Generates the C++ through which a worker calls a function of a published convention.

It stands behind the file's last line, in the same translation unit: nothing comes before the file, which so has to build
alone, and the compiler compares the function's parameters with the convention's. All names begin with ``msbench``, since
the file may define any other as a macro.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msbench.audit.abi import Parameter, Symbol
from msbench.model import Entry
from msbench.operators import header, prototype
from msbench.spec import Array, Operator, Precision, Task

_REDZONE = 4096  # at least so much of the arena lies before the first array and behind the last

_SETUP = """
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#define MSBENCH_ADAPTER extern "C" __attribute__((used, visibility("default")))
#define MSBENCH_ARGUMENTS \\
    [[maybe_unused]] void* const* msbench_arrays, [[maybe_unused]] const double* msbench_scalars, \\
        [[maybe_unused]] const int64_t* msbench_dims
"""

_TYPES = """
// A function's parameter types, without what makes no difference to a call: the width of integers and floats, and const
// but for what is written to, since const there tells that the parameters are in another order.
template <class MsbenchT> struct MsbenchPlain { using type = MsbenchT; };
template <class MsbenchT> struct MsbenchPlain<const MsbenchT*> { using type = MsbenchT*; };
template <> struct MsbenchPlain<unsigned> { using type = int; };
template <> struct MsbenchPlain<long> { using type = int; };
template <> struct MsbenchPlain<unsigned long> { using type = int; };
template <> struct MsbenchPlain<long long> { using type = int; };
template <> struct MsbenchPlain<unsigned long long> { using type = int; };
template <> struct MsbenchPlain<double> { using type = float; };
template <class... MsbenchT> struct MsbenchTypes {};
template <class MsbenchR, class... MsbenchT> MsbenchTypes<MsbenchT...> msbench_taken(MsbenchR (*)(MsbenchT...));
template <class MsbenchT> constexpr bool msbench_only_read = false;
template <class MsbenchT> constexpr bool msbench_only_read<const MsbenchT*> = true;
template <class MsbenchA, class MsbenchB> constexpr bool msbench_same = false;
template <class MsbenchA> constexpr bool msbench_same<MsbenchA, MsbenchA> = true;
template <class MsbenchA, class MsbenchB>
constexpr bool msbench_suits = (msbench_only_read<MsbenchA> || !msbench_only_read<MsbenchB>) &&
    msbench_same<typename MsbenchPlain<MsbenchA>::type, typename MsbenchPlain<MsbenchB>::type>;
template <class MsbenchA, class MsbenchB> struct MsbenchAlike { static constexpr bool value = false; };
template <> struct MsbenchAlike<MsbenchTypes<>, MsbenchTypes<>> { static constexpr bool value = true; };
template <class MsbenchA, class... MsbenchAs, class MsbenchB, class... MsbenchBs>
struct MsbenchAlike<MsbenchTypes<MsbenchA, MsbenchAs...>, MsbenchTypes<MsbenchB, MsbenchBs...>> {
    static constexpr bool value =
        msbench_suits<MsbenchA, MsbenchB> && MsbenchAlike<MsbenchTypes<MsbenchAs...>, MsbenchTypes<MsbenchBs...>>::value;
};
"""

_MIRROR = f"""
// All arrays of a case as they lie in the arena, redzones included, in host memory.
static char* msbench_mirror = nullptr;
static size_t msbench_mirror_bytes = 0;
static char* msbench_mirrored = nullptr;  // where they lie on the device

static int msbench_reflect(void* const* msbench_arrays, const size_t* msbench_bytes, int msbench_count) {{
    char *msbench_first = nullptr, *msbench_last = nullptr;
    for (int msbench_i = 0; msbench_i < msbench_count; ++msbench_i) {{
        char* msbench_start = static_cast<char*>(msbench_arrays[msbench_i]);
        char* msbench_end = msbench_start + msbench_bytes[msbench_i];
        if (!msbench_first || msbench_start < msbench_first) msbench_first = msbench_start;
        if (!msbench_last || msbench_end > msbench_last) msbench_last = msbench_end;
    }}
    msbench_mirrored = msbench_first - {_REDZONE};
    const size_t msbench_size = size_t(msbench_last - msbench_first) + 2 * {_REDZONE};
    if (msbench_size != msbench_mirror_bytes) {{
        free(msbench_mirror);
        msbench_mirror = static_cast<char*>(aligned_alloc(256, (msbench_size + 255) / 256 * 256));
        msbench_mirror_bytes = msbench_mirror ? msbench_size : 0;
        if (!msbench_mirror) return cudaErrorMemoryAllocation;
    }}
    return cudaMemcpy(msbench_mirror, msbench_mirrored, msbench_size, cudaMemcpyDeviceToHost);
}}
static void* msbench_on_host(void* msbench_array) {{
    return msbench_mirror + (static_cast<char*>(msbench_array) - msbench_mirrored);
}}
"""

_REFLECT_BACK = "cudaMemcpy(msbench_mirrored, msbench_mirror, msbench_mirror_bytes, cudaMemcpyHostToDevice)"

_LAUNCH = """
MSBENCH_ADAPTER int msbench_launch(MSBENCH_ARGUMENTS, void*, size_t, void*) {
    if (int msbench_code = msbench_prepare(msbench_arrays, msbench_scalars, msbench_dims)) return msbench_code;
    msbench_call(msbench_arrays, msbench_scalars, msbench_dims, nullptr, 0, nullptr);
    cudaError_t msbench_code = cudaGetLastError();
    if (!msbench_code) msbench_code = cudaDeviceSynchronize();
    return msbench_code ? int(msbench_code) : msbench_finish(msbench_arrays, msbench_scalars, msbench_dims);
}

MSBENCH_ADAPTER size_t msbench_workspace(const double*, const int64_t*) { return 0; }

#ifdef MSBENCH_CPU
MSBENCH_ADAPTER int64_t msbench_live_bytes() { return msbench_cpu::live_bytes; }
#endif
"""


def entry(symbol: Symbol, op: Operator, count: int, link: tuple[str, ...]) -> Entry:
    """How a worker reaches a file's function ``symbol``, which takes ``count`` parameters; ``link``: vendor libraries."""
    parts = [
        '#line 1 "msbench_adapter"',
        _SETUP,
        _TYPES,
        _signature(symbol, op, count),
        _MIRROR if symbol.host_pointers else "",
        _function("prepare", _prepared(symbol, op)),
        _called(symbol, op, count),
        _function("finish", [_REFLECT_BACK] if symbol.host_pointers else []),
        _LAUNCH,
    ]
    return Entry(
        before="",
        after="\n" + "\n".join(parts),
        function=symbol.name,
        prototype=symbol.prototype(),
        link=link,
        counts_memory=True,
    )


def staged(task: Task) -> Entry:
    """Our launcher behind host pointers, so that it is timed at the same task: inputs in, the launch, outputs out."""
    op = task.operator
    arrays = [*op.inputs_, *op.outputs]
    ins = [(i, "arrays[{0}], on_host(arrays[{0}])", "HostToDevice") for i, a in enumerate(arrays) if not a.output]
    outs = [(i, "on_host(arrays[{0}]), arrays[{0}]", "DeviceToHost") for i, a in enumerate(arrays) if a.output]

    def copy(i: int, pointers: str, kind: str) -> str:
        places = re.sub(r"\b(arrays|on_host)\b", r"msbench_\1", pointers.format(i))
        return f"cudaMemcpyAsync({places}, {_bytes(task, arrays[i])}, cudaMemcpy{kind}, {stream})"

    stream = "static_cast<cudaStream_t>(msbench_stream)"
    launch = (
        "msbench_launch(msbench_arrays, msbench_scalars, msbench_dims, msbench_space, msbench_bytes, msbench_stream)"
    )
    steps = [*(copy(*one) for one in ins), launch, *(copy(*one) for one in outs)]
    arguments = "MSBENCH_ARGUMENTS, void* msbench_space, size_t msbench_bytes, void* msbench_stream"
    parts = [
        _SETUP,
        _MIRROR,
        _function("prepare", [_reflected(task)]),
        _function("call", steps, arguments),
        _function("finish", [_REFLECT_BACK]),
    ]
    return Entry(before=header(task), after="\n" + "\n".join(parts), function=op.name, prototype=prototype(op))


def _signature(symbol: Symbol, op: Operator, count: int) -> str:
    """An error of the compiler where the function takes other parameters."""
    wanted = ", ".join(_wanted(p, symbol.precision, op) for p in symbol.function.taken(count))
    return (
        f"static_assert(MsbenchAlike<MsbenchTypes<{wanted}>, decltype(msbench_taken(&::{symbol.name}))>::value,\n"
        f'              "msbench: {symbol.name} takes other parameters");\n'
    )


def _wanted(parameter: Parameter, precision: Precision, op: Operator) -> str:
    """A parameter's type, const where the operator only reads: some conventions leave that out, and files add it."""
    if not parameter.pointer:
        return parameter.element(precision)
    read = parameter.name not in {a.name for a in op.outputs}
    return f"{'const ' if read else ''}{parameter.element(precision)}*"


def _called(symbol: Symbol, op: Operator, count: int) -> str:
    values = ",\n        ".join(_value(symbol, op, p) for p in symbol.function.taken(count))
    return (
        "MSBENCH_ADAPTER int msbench_call(MSBENCH_ARGUMENTS, void*, size_t, void*) {\n"
        f"    ::{symbol.name}(\n        {values});\n    return 0;\n}}\n"
    )


def _value(symbol: Symbol, op: Operator, parameter: Parameter) -> str:
    """A parameter's value, from what the worker gives."""
    ctype = parameter.element(symbol.precision)
    if parameter.pointer:
        place = f"msbench_arrays[{_position(op, parameter.name)}]"
        return f"static_cast<{ctype}*>({f'msbench_on_host({place})' if symbol.host_pointers else place})"
    scalars = [s.name for s in op.scalars]
    if parameter.name not in scalars:
        return f"static_cast<{ctype}>(msbench_dims[{[d.name for d in op.dims].index(parameter.name)}])"
    value = f"msbench_scalars[{scalars.index(parameter.name)}]"
    if ctype == Precision.BF16.ctype:
        return f"__float2bfloat16(static_cast<float>({value}))"
    return f"static_cast<{ctype}>({value})"


def _prepared(symbol: Symbol, op: Operator) -> list[str]:
    """What the convention asks of the caller, as expressions that are CUDA errors."""
    function, task = symbol.function, Task(op, symbol.precision)
    steps = []
    if function.zeroed:
        steps += [f"cudaMemset(msbench_arrays[{_position(op, a.name)}], 0, {_bytes(task, a)})" for a in op.outputs]
    for output, given in function.in_place.items():
        places = (f"msbench_arrays[{_position(op, name)}]" for name in (output, given))
        array = next(a for a in op.outputs if a.name == output)
        steps.append(f"cudaMemcpy({', '.join(places)}, {_bytes(task, array)}, cudaMemcpyDeviceToDevice)")
    if symbol.host_pointers:
        steps.append(_reflected(task))
    return [*steps, "cudaDeviceSynchronize()"]


def _reflected(task: Task) -> str:
    op = task.operator
    sizes = ", ".join(_bytes(task, a) for a in (*op.inputs_, *op.outputs))
    return f"[&] {{ const size_t msbench_sizes[] = {{{sizes}}}; return msbench_reflect(msbench_arrays, msbench_sizes, {len(op.arrays)}); }}()"


def _function(name: str, steps: Sequence[str], arguments: str = "MSBENCH_ARGUMENTS") -> str:
    """A function that takes its steps up to the first error, which it returns."""
    lines = [f"    if (int msbench_code = int({step})) return msbench_code;" for step in steps]
    return "\n".join([f"MSBENCH_ADAPTER int msbench_{name}({arguments}) {{", *lines, "    return 0;", "}\n"])


def _position(op: Operator, name: str) -> int:
    return [a.name for a in (*op.inputs_, *op.outputs)].index(name)


def _bytes(task: Task, array: Array) -> str:
    """An array's size as C, for shapes that are products of dimensions and numbers."""
    dims = [d.name for d in task.operator.dims]
    extents = [f"msbench_dims[{dims.index(text)}]" if text in dims else str(int(text)) for text in array.shape]
    size = task.precision.itemsize if array.dtype == "T" else 4
    return " * ".join(f"size_t({part})" for part in (*extents, size))
