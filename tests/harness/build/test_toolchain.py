"""Finding a compiler: in the places where there may be one, and what is said where there is none."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from pathlib import Path

import pytest

from msbench.errors import ToolchainError
from msbench.harness.build import compile as build
from msbench.harness.build import toolchain
from msbench.model import Candidate
from msbench.spec import Precision
from tests.gpu.fake_gpu import OPERATOR


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.find.cache_clear()
    for name in ("CUDA_HOME", "CUDA_PATH", "NVCC_CCBIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain, "_DEFAULT_HOME", Path("/nonexistent"))


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_wheel_roots", lambda: iter(()))


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def toolkit(root: Path, version: str = "13.0.88") -> Path:
    """A toolkit with as much in it as finding one looks at."""
    release = ".".join(version.split(".")[:2])
    script(root / "bin/nvcc", f'echo "Cuda compilation tools, release {release}, V{version}"')
    (root / "include/crt").mkdir(parents=True)
    (root / "include/crt/host_config.h").write_text("#if __GNUC__ > 99\n#error\n#endif\n")
    (root / "include/cublas_v2.h").touch()
    (root / "lib64").mkdir()
    (root / "lib64/libcudart.so").touch()
    (root / "lib64/libcublas.so.13").touch()
    (root / "lib64/libcublas.so.13.1.0").touch()
    return root


def path_without_nvcc(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """PATH with g++ and nothing of CUDA."""
    folder.mkdir(exist_ok=True)
    script(folder / "g++", "echo 12.2.0")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_cuda_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_wheels: None) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    on_path = toolkit(tmp_path / "cuda-12.9", "12.9.86")
    monkeypatch.setenv("PATH", f"{on_path}/bin{os.pathsep}{os.environ['PATH']}")
    assert toolchain.find().version == "12.9.86"
    toolchain.find.cache_clear()
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "cuda-13.0")))
    found = toolchain.find()
    assert found.id == "nvcc 13.0.88, g++ 12.2.0"
    assert found.release == "13.0"
    assert found.cudart == tmp_path / "cuda-13.0/lib64/libcudart.so"


def test_links_and_wrappers_lead_to_the_compiler_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_wheels: None
) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    root = toolkit(tmp_path / "cuda")
    (tmp_path / "bin/nvcc").symlink_to(root / "bin/nvcc")
    assert toolchain.find().root == root
    toolchain.find.cache_clear()
    (tmp_path / "bin/nvcc").unlink()
    script(tmp_path / "bin/nvcc", f'[ "$1" = --dryrun ] && echo "#$ _HERE_={root}/bin" >&2; exec {root}/bin/nvcc "$@"')
    assert toolchain.find().nvcc == root / "bin/nvcc"


def test_what_a_killed_wrapper_leaves_goes_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_wheels: None
) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    root, temporary = toolkit(tmp_path / "cuda"), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("CUDA_HOME", str(root))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    compiler = (root / "bin/nvcc").read_text()
    script(root / "bin/nvcc", 'touch "$TMPDIR/tmpxft"; kill -9 $PPID; exec sleep 60')
    command = "from msbench.harness.build import toolchain; toolchain.find()"
    killed = subprocess.run([sys.executable, "-c", command], env={**os.environ, "TMPDIR": str(temporary)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [p.name for p in temporary.glob("*/*")] == ["tmpxft"]
    (root / "bin/nvcc").write_text(compiler)
    assert toolchain.find().root == root
    assert list(temporary.iterdir()) == []


def test_wheels_are_found_and_their_numbered_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    packages = tmp_path / "site-packages"
    root = toolkit(packages / "nvidia/cu13")
    (root / "lib64").rename(root / "lib")
    (root / "lib/libcudart.so").rename(root / "lib/libcudart.so.13")
    for folder, file in (("lib", "libcudnn.so.9"), ("include", "cudnn.h")):
        (packages / "nvidia/cudnn" / folder).mkdir(parents=True)
        (packages / "nvidia/cudnn" / folder / file).touch()
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    monkeypatch.setattr("sys.path", [])
    found = toolchain.find()
    assert found.cudart.name == "libcudart.so.13"
    assert found.library("cublas") == toolchain.Library("cublas", root / "lib/libcublas.so.13", None)
    assert found.library("cudnn").include == packages / "nvidia/cudnn/include"


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda root: (root / "bin/nvcc").unlink(), "nvcc is not in CUDA_HOME"),
        (lambda root: (root / "lib64/libcudart.so").unlink(), "libcudart.so, is not"),
        (lambda root: script(root / "bin/nvcc", "exit 1"), "does not run"),
        (lambda root: script(root / "bin/nvcc", "echo V11.8.89"), "needs 12.4 or newer"),
        (lambda root: script(root / "bin/nvcc", "echo hello"), "nothing that looks like a version"),
        (
            lambda root: (root / "include/crt/host_config.h").write_text("#if __GNUC__ > 11\n"),
            "accepts g\\+\\+ up to 11, and .* is 12.2.0: install g\\+\\+-11",
        ),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_wheels: None, break_it, says: str
) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    root = toolkit(tmp_path / "cuda")
    break_it(root)
    monkeypatch.setenv("CUDA_HOME", str(root))
    with pytest.raises(ToolchainError, match=says):
        toolchain.find()


def test_a_compiler_that_hangs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_wheels: None) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    root = toolkit(tmp_path / "cuda")
    script(root / "bin/nvcc", "exec sleep 60")
    monkeypatch.setattr(toolchain, "_ANSWER_S", 0.2)
    monkeypatch.setenv("CUDA_HOME", str(root))
    with pytest.raises(ToolchainError, match=r"does not run: .* timed out after 0.2 seconds"):
        toolchain.find()


def test_libraries_that_are_not_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_wheels: None
) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    root = toolkit(tmp_path / "cuda")
    monkeypatch.setenv("CUDA_HOME", str(root))
    found = toolchain.find()
    assert found.vendor_libraries()["cublas"] == root / "lib64/libcublas.so.13"
    with pytest.raises(ToolchainError, match="'foo' is none of these"):
        found.library("foo")
    (root / "lib64/libcufft.so").touch()
    with pytest.raises(ToolchainError, match=r"header cufft.h is not"):
        found.library("cufft")


def test_tools_run_without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_wheels: None) -> None:
    path_without_nvcc(monkeypatch, tmp_path / "bin")
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "cuda")))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in toolchain.find().environment().values()


@pytest.mark.parametrize(
    ("capability", "arch"), [((7, 5), "sm_75"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a")]
)
def test_architectures(capability: tuple[int, int], arch: str) -> None:
    assert toolchain.architecture(capability) == arch
    assert toolchain.gencode(arch) == f"arch=compute_{arch[3:]},code={arch}"


# ------------------------------------------------------------------ the cuda extra's wheels

BLOCKS = """
#include <cooperative_groups.h>
#include <cub/cub.cuh>
#include <mma.h>
__global__ void sum(const scalar_t* x, scalar_t* y) {
    using Reduce = cub::BlockReduce<float, 128>;
    __shared__ typename Reduce::TempStorage storage;
    cooperative_groups::this_thread_block().sync();
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
    nvcuda::wmma::fill_fragment(c, __bfloat162float(__nv_bfloat16(1.0f)));
    const float total = Reduce(storage).Sum(float(x[threadIdx.x]) + c.x[0]);
    if (threadIdx.x == 0) y[0] = total;
}
extern "C" cudaError_t scale(const scalar_t* x, scalar_t* y, float a, float mode, float spin_us, int64_t n,
                             void*, size_t, cudaStream_t stream) {
    sum<<<1, 128, 0, stream>>>(x, y);
    return cudaGetLastError();
}
"""

LIBRARIES = """
// msbench: link cublas cublasLt cusparse cudnn
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cudnn.h>
#include <cusparse.h>
extern "C" cudaError_t scale(const scalar_t* x, scalar_t* y, float a, float mode, float spin_us, int64_t n,
                             void*, size_t, cudaStream_t stream) {
    cublasHandle_t blas;
    cublasLtHandle_t lt;
    cusparseHandle_t sparse;
    cudnnHandle_t dnn;
    return cublasCreate(&blas) || cublasLtCreate(&lt) || cusparseCreate(&sparse) || cudnnCreate(&dnn)
               ? cudaErrorUnknown : cudaSuccess;
}
"""


@pytest.mark.parametrize("source", [BLOCKS, LIBRARIES], ids=["cub, cooperative groups, mma", "vendor libraries"])
def test_the_wheels_compile_and_link(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = [root for root in toolchain._wheel_roots() if (root / "bin/nvcc").is_file()]
    if not wheels:
        pytest.skip("the wheels of the `cuda` extra are not installed here")
    monkeypatch.setenv("PATH", f"/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path))
    found = toolchain.find()
    assert found.root in wheels
    built = build.build(OPERATOR, Candidate("scale", Precision.BF16, source), found, "sm_90a")
    assert built.failure is None, built.log
    assert found.cuobjdump is not None
    assert bool(built.sass) == (source is BLOCKS)
