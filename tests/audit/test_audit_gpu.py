"""An audit on a real GPU: `pytest -m gpu tests/audit`. The samples are right and wrong as on the processor, and timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from msbench.audit import abi, files
from msbench.audit.run import Settings, audit
from msbench.audit.verdict import Verdict
from msbench.executors import Options
from msbench.executors.cuda import CudaExecutor, create

pytestmark = pytest.mark.gpu

KERNELS = Path(__file__).with_name("kernels")
ABI = abi.load("mskernelbench")

OURS = """#include <cuda_runtime.h>
{device}
extern "C" void vector_add(const float* A, const float* B, float* C, int N) {{
    const int64_t blocks = (N + 255) / 256;
    add<<<blocks, 256>>>(A, B, C, N);
    {more}
}}
"""
DEVICE = """__global__ void add(const float* A, const float* B, float* C, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) C[i] = A[i] + B[i];
}"""


class Silence:
    def started(self, text: str) -> None: ...

    def advanced(self, done: int, total: int, text: str) -> None: ...


@pytest.fixture(scope="module")
def executor() -> Iterator[CudaExecutor]:
    with create(Options()) as executor:
        yield executor


@pytest.fixture(scope="module")
def verdicts(executor: CudaExecutor) -> Mapping[str, Verdict]:
    """Of every sample, on a small size of each operator, an odd one and hidden ones."""
    found = files.find(KERNELS, ABI)
    return {v.file: v for v in audit(executor, found, Settings("smallest+odd+heldout", budget_s=0.1), Silence())}


@pytest.mark.parametrize("path", sorted((KERNELS / "good").glob("*.cu")), ids=lambda path: path.stem)
def test_a_good_file_is_right_and_timed(verdicts: Mapping[str, Verdict], path: Path) -> None:
    verdict = verdicts[f"good/{path.name}"]
    assert verdict.held, verdict
    assert verdict.untimed == ""
    assert verdict.ours is not None and verdict.ours.low <= verdict.ours.ratio <= verdict.ours.high
    assert verdict.times[0].hot_ns["file"] is not None
    assert not any("leak" in remark for remark in verdict.remarks)


def test_bad_files_are_bad_in_their_own_ways(verdicts: Mapping[str, Verdict]) -> None:
    assert (
        verdicts["bad/vector_add_optimized.cu"].paper.right and not verdicts["bad/vector_add_optimized.cu"].unseen.right
    )
    assert not verdicts["bad/MSE_loss_bf16.cu"].paper.right
    assert "gelu_of" in verdicts["bad/gelu_bf16.cu"].message
    assert "takes other parameters" in verdicts["bad/rms_norm.cu"].problem
    assert any("was not tried further after it hung" in r for r in verdicts["bad/prefix_sum.cu"].remarks)
    assert any("in 3 processes" in r for r in verdicts["bad/row_tanh_optimized.cu"].remarks)
    assert any("outside its arrays" in why for why in verdicts["bad/sigmoid_optimized.cu"].paper.wrong.values())
    assert verdicts["bad/helpers.cu"].symbol is None


def test_a_leak_is_counted_to_the_byte(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/reverse_array.cu"]
    assert verdict.held and "leaks 4096 bytes a call at N=1024" in verdict.remarks


def test_waiting_at_the_end_makes_no_difference_to_a_whole_call(executor: CudaExecutor) -> None:
    """The same kernel with and without a wait of its own: the time of either ends when the device is idle."""
    waits = "cudaDeviceSynchronize();"
    pair = [
        files.identify(n, OURS.format(device=DEVICE, more=m).encode(), ABI) for n, m in (("a.cu", ""), ("b.cu", waits))
    ]
    plain, waiting = audit(executor, pair, Settings("N=262144", budget_s=1.0), Silence())
    assert plain.ours is not None and waiting.ours is not None
    assert waiting.ours.ratio == pytest.approx(plain.ours.ratio, rel=0.15)


def test_work_on_a_stream_of_its_own_and_copies_through_the_host_are_in_the_time(executor: CudaExecutor) -> None:
    """A call whose kernel spins for a millisecond on a stream that waits for nobody takes that millisecond."""
    spins = """__global__ void add(const float* A, const float* B, float* C, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const long long start = clock64();
    while (clock64() - start < 2000000) {
    }
    if (i < N) C[i] = A[i] + B[i];
}"""
    elsewhere = OURS.replace("add<<<blocks, 256>>>", "static cudaStream_t own;\n    if (!own) cudaStreamCreateWithFlags(&own, "
                             "cudaStreamNonBlocking);\n    add<<<blocks, 256, 0, own>>>")  # fmt: skip
    found = files.identify("a.cu", elsewhere.format(device=spins, more="").encode(), ABI)
    (verdict,) = audit(executor, [found], Settings("N=1024", budget_s=0.1), Silence())
    assert verdict.paper.right, verdict
    assert min(t for t in verdict.times[0].cold_ns["file"] if t is not None) > 5e5
