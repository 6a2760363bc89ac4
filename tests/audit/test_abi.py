"""The convention's table against our operators: names, types, and C++ that both compilers take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from msbench import emulator, operators
from msbench.audit import abi, adapter
from msbench.audit.abi import Parameter, Symbol
from msbench.errors import UnknownNameError
from msbench.spec import Array, Precision, Task
from tests.gpu.fake_gpu import tools

ABI = abi.load("mskernelbench")
SYMBOLS = ABI.symbols()

NOT_PASSED = {
    "sorting": {"x"},  # in place
    "spmv_csr": {"cols", "nnz"},
    "spmv_coo": {"cols"},
    "spmv_csc": {"nnz"},
    "spmv_ell": {"cols"},
    "spmm_csr": {"cols", "nnz"},
    "spmm_coo": {"cols"},
    "spmm_csc": {"nnz"},
    "spmm_ell": {"cols"},
}
"""What a function is not told: extents of inputs that it reaches by index only."""


def test_there_is_a_function_for_each_operator_in_each_precision() -> None:
    assert {f.operator: f.name for f in ABI.functions} == {
        name: operators.load(name).paper_name for name in operators.names()
    }
    assert len(ABI.functions) == 50
    assert len({s.name for s in SYMBOLS.values() if not s.optimized}) == 100
    assert len(SYMBOLS) == 200


@pytest.mark.parametrize("function", ABI.functions, ids=lambda f: f.name)
def test_parameters_are_the_operators_arrays_scalars_and_dimensions(function: abi.Function) -> None:
    op = operators.load(function.operator)
    arrays = {a.name: a for a in op.arrays}
    scalars = {s.name: s for s in op.scalars}
    dims = {d.name for d in op.dims}
    for parameter in function.parameters:
        if parameter.pointer:
            assert parameter.ctype == _ctype(arrays.pop(parameter.name))
        elif parameter.name in scalars:
            scalar = scalars.pop(parameter.name)
            assert parameter.ctype in ("T", scalar.ctype)
            assert parameter.default in (None, scalar.value)
        else:
            assert parameter.ctype == "int"
            dims.remove(parameter.name)
    assert {*arrays, *scalars, *dims} == NOT_PASSED.get(function.operator, set())
    outputs = {a.name for a in op.outputs}
    assert all(not p.const for p in function.parameters if p.name in outputs)
    assert set(function.in_place) <= outputs


def _ctype(array: Array) -> str:
    return {"T": "T", "f32": "float", "i32": "int"}[array.dtype]


def _stub(symbol: Symbol, parameters: tuple[Parameter, ...]) -> str:
    declared = ", ".join(p.declared(symbol.precision) for p in parameters)
    return f'extern "C" void {symbol.name}({declared}) {{}}\n'


@pytest.fixture(scope="module")
def every_adapter() -> str:
    """All functions, optimized ones without what they may leave out, and their adapters, each in a namespace of its own."""
    parts = ["#include <cuda_bf16.h>\n#include <cuda_runtime.h>\n#include <cstdint>\n#include <cstdlib>\n"]
    for number, symbol in enumerate(SYMBOLS.values()):
        parameters = symbol.function.parameters
        if symbol.optimized:
            parameters = tuple(p for p in parameters if p.default is None)
        entry = adapter.entry(symbol, operators.load(symbol.function.operator), len(parameters), ())
        code = re.sub(
            r"\bmsbench_(launch|call|prepare|finish|workspace|live_bytes)\b", rf"msbench_\1_{number}", entry.after
        )
        code = code.replace(f"msbench_cpu::msbench_live_bytes_{number}", "msbench_cpu::live_bytes")
        parts += [_stub(symbol, parameters), f"namespace adapter_{number} {{\n{code}\n}}\n"]
    return "".join(parts)


def test_every_adapter_compiles_under_nvcc(every_adapter: str, tmp_path: Path) -> None:
    (tmp_path / "all.cu").write_text(every_adapter, encoding="utf-8")
    command = [
        tools().nvcc,
        "-std=c++17",
        "-arch=sm_90a",
        "-c",
        "-O0",
        "-Werror",
        "all-warnings",
        "-o",
        "all.o",
        "all.cu",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


def test_every_adapter_compiles_for_the_processor(every_adapter: str) -> None:
    emulator.build(every_adapter, "all.cu")


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("name", sorted({f.operator for f in ABI.functions if f.host_pointers}))
def test_our_versions_compile_behind_host_pointers(name: str, precision: Precision) -> None:
    op = operators.load(name)
    entry = adapter.staged(Task(op, precision))
    emulator.build(f"{_launcher(op)}{entry.after}", "ours.cu", preinclude=entry.before)


def _launcher(op: object) -> str:
    return operators.prototype(op).replace(";", " { return cudaSuccess; }\n")  # type: ignore[arg-type]


def test_an_unknown_convention_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"no calling convention 'other'.*Known: mskernelbench"):
        abi.load("other")


def test_what_has_a_default_may_be_left_out_from_the_end() -> None:
    selu = SYMBOLS["selu"].function
    assert [len(selu.taken(n)) for n in (3, 4, 5)] == [3, 4, 5]
    assert selu.taken(2) == selu.taken(6) == selu.parameters
    assert SYMBOLS["selu_bf16_optimized"].prototype() == (
        'extern "C" void selu_bf16_optimized(__nv_bfloat16* y, const __nv_bfloat16* x, int N, '
        "float alpha = 1.67, float scale = 1)"
    )
