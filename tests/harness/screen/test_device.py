"""What the device code of a version shows: its machine code, and the files that it was made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from msbench.harness import screen
from msbench.harness.screen import device
from msbench.model import Candidate
from msbench.spec import Precision
from tests.harness.screen.objects import compiled

DECLARED = """
# 3 "a.cu"
# 9
__global__ __var_used__ extern void _Z1kPf(float *);
"""
CUBIN = """
#define IN(name) __attribute__((section(name), used))
IN(".nv.info._Z1kPf") extern const int info = 1;
IN(".nv.global") int counter;
IN(".nv.global.init") static char text[2] __asm__("$str$1") = {97, 0};
IN(".nv.shared.reserved.0") int reserved;
"""


@pytest.mark.parametrize(
    ("added", "trick"),
    [
        ("", None),
        ('extern "C" int vprintf(int); int f() { return vprintf(1); }', None),
        ('extern "C" void* malloc(); void* f() { return malloc(); }', "allocates memory from the device (malloc)"),
        (
            'extern "C" int cudaLaunchDeviceV2(); int f() { return cudaLaunchDeviceV2(); }',
            "launches or copies from the device",
        ),
        (
            'asm(".pushsection .nv.other,\\"aw\\"; .zero 8; .popsection");',
            "something without a name in the device's memory",
        ),
        ('IN(".nv.constant3") extern const char konst[1 << 20] = {1};', "declares 1048582 bytes of variables"),
    ],
)
def test_what_machine_code_shows(tmp_path: Path, added: str, trick: str | None) -> None:
    found = device.tricks([compiled(tmp_path, CUBIN + added)], DECLARED, "a.cu")
    assert found == trick if trick is None else trick in str(found)


def test_what_stays_in_the_devices_memory_has_names(tmp_path: Path) -> None:
    in_constant_memory = 'IN(".nv.constant3") extern const float konst = 1; IN(".nv.constant0") extern const int x = 1;'
    common = "int kept __attribute__((common));"
    cubin = compiled(tmp_path, CUBIN + in_constant_memory + common)
    assert sorted(symbol.name for symbol in device.kept(cubin)) == ["$str$1", "counter", "kept", "konst"]


def test_a_version_whose_machine_code_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.cudafe1.gpu").write_text(DECLARED.replace("a.cu", "x.cu"), encoding="utf-8")
    candidate = Candidate("x", Precision.FP32, "int f();")
    failure = screen.look_at_device_code(candidate, tmp_path, "x")
    assert failure is not None
    assert "leaves no machine code" in failure.message
    compiled(tmp_path, CUBIN)
    (tmp_path / "x.o").rename(tmp_path / "x.cubin")
    assert screen.look_at_device_code(candidate, tmp_path, "x") is None
    assert screen.device_variables(candidate, tmp_path, "x") == ["$str$1", "counter"]


def test_a_librarys_kernel_is_one_that_another_file_defines(tmp_path: Path) -> None:
    headers = '# 9 "/usr/local/cuda/include/cccl/{}" 3'.format
    cubin = compiled(tmp_path, CUBIN)
    for path in ("cub/device/dispatch/kernels/reduce.cuh", "cub/util_device.cuh"):
        trick = device.tricks([cubin], DECLARED.replace("# 9", headers(path)), "a.cu")
        assert (trick is None) == path.endswith("util_device.cuh")
        assert trick is None or "calls a library's own kernels (_Z1kPf)" in trick
    shared = DECLARED.replace("# 9", '# 9 "/opt/kernels/include/msbench_packets.cuh"')
    assert device.tricks([cubin], shared, "a.cu") is None
    text = '# 2 "a.cu"\nconst char *text = "__global__ __var_used__ void _Z1kPf(";\n'
    hidden = DECLARED.replace("# 9", headers("cub/device/dispatch/kernels/reduce.cuh")) + text
    assert "library's own kernels" in (device.tricks([cubin], hidden, "a.cu") or "")


@pytest.mark.parametrize(
    ("marker", "outside"),
    [
        ('"k.h" 1', False),
        ('"/own/include/msbench.cuh" 1', False),
        ('"/cuda/bin/../include/vector_types.h" 1', False),
        ('"/usr/include/stdio.h" 1 3 4', False),
        ('"/usr/include/stdio.h" 2 3 4', False),
        ('"/etc/passwd" 1', True),
        ('"../k.cu" 1', True),
        ('"/etc/passwd" 1 3 4', True),
        ('"/cuda/include/cooperative_groups/details/../../cooperative_groups.h" 1 3', False),
        ('"/usr/include/../../etc/passwd" 1 3 4', True),
        ('"/usr/include/../../tmp/include/best.cu" 1 3 4', True),
        ('"/usr/include/../include2/best.cu" 1 3 4', True),
        ('"/own/include/../secret/best.cu" 1', True),
    ],
)
def test_included_files_are_those_that_the_compiler_names(marker: str, outside: bool) -> None:
    text = f'# 1 "k.cu"\n# 1 "<command-line>" 1\n# 1 "/cuda/bin/../include/cuda_runtime.h" 1\n# 1 {marker}\nint x;\n# 2 "k.cu" 2\n'
    assert (device.includes(text, "/own/include") is not None) == outside
