"""What makes a file a kernel of the convention, and what is said of one that is none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.audit import abi
from msbench.audit.files import find, identify
from msbench.errors import MsbenchError

ABI = abi.load("mskernelbench")
RELU = "float* output, const float* input, int N"


@pytest.mark.parametrize(
    ("source", "symbol", "count"),
    [
        (f'extern "C" void RELU({RELU}) {{ }}', "RELU", 3),
        (f'extern "C" {{ void RELU({RELU}) {{ }} }}', "RELU", 3),
        (f'extern "C" void RELU({RELU});\nvoid RELU({RELU}) {{ }}', "RELU", 3),
        (f'extern "C" void RELU({RELU}) noexcept {{ }}', "RELU", 3),
        ('extern "C" void elu_bf16_optimized(__nv_bfloat16* o, const __nv_bfloat16* i, const int N) { }',
         "elu_bf16_optimized", 3),
        # helpers and kernels of a known name are no functions of the convention
        (f'__device__ float sigmoid(float x) {{ return x; }}\n__global__ void gelu({RELU}) {{ }}\n'
         f'extern "C" void RELU({RELU}) {{ sigmoid(1); }}', "RELU", 3),
        # an optimized file may have the original beside it
        (f'extern "C" void RELU({RELU}) {{ }} extern "C" void RELU_optimized({RELU}) {{ }}', "RELU_optimized", 3),
        (f'// extern "C" void gelu({RELU}) {{ }}\nextern "C" void RELU({RELU}) {{ }}', "RELU", 3),
    ],
)  # fmt: skip
def test_the_function_is_found_in_the_text(source: str, symbol: str, count: int) -> None:
    found = identify("a.cu", source.encode(), ABI)
    assert found.symbol is not None and not found.problem
    assert (found.symbol.name, found.count) == (symbol, count)
    assert found.sha256 == hashlib.sha256(source.encode()).hexdigest()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "defines no function of the convention mskernelbench: `msbench show OPERATOR --abi mskernelbench` prints"),
        ("int main() { RELU(3); }", "defines no function of the convention"),
        # the one that a helper's or a misspelt name tells of
        ("__global__ void rms_norm_bf16_kernel(int n) { }", 'such as extern "C" void rms_norm_bf16(__nv_bfloat16* y, '),
        ('extern "C" void rmsnorm(float* y) { }', 'such as extern "C" void rms_norm(float* y, '),
        (f"void RELU({RELU}) {{ }}", 'does not define it as extern "C" void RELU(float* y, const float* x, int N)'),
        (f'extern "C" void RELU({RELU});', "It has RELU, but does not define it"),
        (
            f'extern "C" void RELU({RELU}) {{ }} extern "C" void gelu({RELU}) {{ }}',
            "It defines RELU, gelu: which of them",
        ),
        ('}}) extern "C" void RELU(float* a', "It is no C++: it has an unbalanced bracket"),
    ],
)
def test_one_sentence_says_why_a_file_is_no_kernel(source: str, says: str) -> None:
    found = identify("a.cu", source.encode(), ABI)
    assert found.symbol is None
    assert says in found.problem
    assert "\n" not in found.problem


@pytest.mark.parametrize(("name", "meant"), [("softmax.cu", "softmax"), ("deep/SoftMax_v2.cu", "softmax"),
                                             ("conv2d.cu", "conv_2d"), ("conv_2d_bf16.cu", "conv_2d_bf16")])  # fmt: skip
def test_a_file_of_nothing_known_is_told_what_its_name_suggests(name: str, meant: str) -> None:
    found = identify(name, b"__global__ void k(int n) { }", ABI)
    assert found.problem.endswith(f", such as {ABI.symbols()[meant].prototype()}.")


@given(st.text(alphabet='RELUgelu(){}"C;<>,* \n#externvoidint/', max_size=80) | st.binary(max_size=60))
def test_no_text_is_too_strange(source: str | bytes) -> None:
    raw = source if isinstance(source, bytes) else source.encode()
    found = identify("a.cu", raw, ABI)
    assert (found.symbol is None) == bool(found.problem)


def test_calls_that_a_launcher_must_not_make_are_listed_once() -> None:
    body = "cudaMalloc(&p, 4); cudaMemcpy(p, q, 4, cudaMemcpyHostToDevice); cudaFree(p); cudaFree(p); // cudaEventSynchronize(e)"
    found = identify("a.cu", f'extern "C" void RELU({RELU}) {{ {body} }}'.encode(), ABI)
    assert found.calls == ("cudaFree", "cudaMalloc", "cudaMemcpy")


def test_all_files_below_a_folder_are_found_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "some name.cu").write_bytes(
        f'extern "C" void RELU({RELU}) {{ }} // \xff'.encode("latin-1")
    )
    (tmp_path / "a.cu").write_text("nothing")
    (tmp_path / "a.py").write_text("nothing")
    assert [(f.name, f.symbol and f.symbol.name) for f in find(tmp_path, ABI)] == [
        ("a.cu", None),
        ("deep/er/some name.cu", "RELU"),
    ]


def test_a_folder_that_is_not_there_or_empty_is_told(tmp_path: Path) -> None:
    with pytest.raises(MsbenchError, match="is not a folder"):
        find(tmp_path / "missing", ABI)
    with pytest.raises(MsbenchError, match=r"no \.cu file"):
        find(tmp_path, ABI)
