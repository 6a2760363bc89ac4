"""The kernel that adds up triangle_attention's weights on a GPU does what the arrays say: compiled for the processor here."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from math import sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from msbench import operators
from msbench.harness.inputs import generate
from msbench.spec import Precision, Split, Task

OP = operators.load("triangle_attention")
SPEC: Any = SimpleNamespace(**OP.reference.__globals__)
ODD = next(case for case in OP.cases if case.split is Split.ODD)


class Library:
    """In place of CuPy: takes the kernel's text."""

    body = ""

    def ElementwiseKernel(self, _inputs: str, _outputs: str, body: str, _name: str) -> None:
        self.body = body


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    xp, folder = Library(), tmp_path_factory.mktemp("kernel")
    SPEC._kernel.__wrapped__(xp)
    given = "".join(f"const double* {name}, " for name in ("q", "k", "v", "mask"))
    made = "".join(f", double* {name}_" for name in SPEC.Sums._fields)
    element = "".join(f"double& {name} = {name}_[i];\n" for name in SPEC.Sums._fields)
    (folder / "sums.cpp").write_text(
        "#include <algorithm>\n#include <cmath>\nusing namespace std;\n"
        f'extern "C" void sums({given}long long H, long long S, long long D, long long rows, long long size{made})\n'
        f"{{ for (long long i = 0; i < size; ++i) {{ {element}{xp.body} }} }}\n",
        encoding="utf-8",
    )
    library = folder / "sums.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", str(folder / "sums.cpp"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library)).sums


@pytest.mark.parametrize("distribution", OP.distributions)
def test_the_kernel_s_sums_are_those_of_arrays_of_all_pairs(kernel: Any, distribution: str) -> None:
    case = replace(ODD, distribution=distribution)
    inputs = {n: a.astype(np.float64) for n, a in generate(Task(OP, Precision.FP32).at(case), 3, np).items()}
    sizes = dict(case.dims)
    with np.errstate(all="ignore"):
        expected = SPEC.sums(np, **inputs, **sizes)
    arrays = [inputs["q"] / sqrt(sizes["D"]), inputs["k"], inputs["v"], inputs["mask"]]
    found = [np.empty_like(inputs["q"]) for _ in SPEC.Sums._fields]
    numbers = (sizes["H"], sizes["S"], sizes["D"], SPEC.block_rows(**sizes), inputs["q"].size)
    kernel(
        *(ctypes.c_void_p(array.ctypes.data) for array in arrays),
        *(ctypes.c_longlong(number) for number in numbers),
        *(ctypes.c_void_p(array.ctypes.data) for array in found),
    )
    finite = np.isfinite(expected.terms)
    assert finite.mean() > 0.5 and (np.isfinite(found[2]) == finite).all()
    for name, one, other in zip(SPEC.Sums._fields, expected, found, strict=True):
        np.testing.assert_allclose(other[finite], one[finite], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("distribution", OP.distributions)
def test_a_gpu_gives_the_same(distribution: str) -> None:
    cupy = pytest.importorskip("cupy")
    case = replace(ODD, distribution=distribution)
    inputs = {n: a.astype(np.float64) for n, a in generate(Task(OP, Precision.FP32).at(case), 3, np).items()}
    with np.errstate(all="ignore"):
        expected = SPEC.sums(np, **inputs, **dict(case.dims))
    found = SPEC.sums(cupy, **{n: cupy.asarray(a) for n, a in inputs.items()}, **dict(case.dims))
    finite = np.isfinite(expected.terms)
    for name, one, other in zip(SPEC.Sums._fields, expected, found, strict=True):
        np.testing.assert_allclose(other.get()[finite], one[finite], rtol=1e-9, atol=1e-12, err_msg=name)
