"""What the device code of a version shows: its PTX, its machine code, and the files that it was made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from msbench.harness import screen
from msbench.harness.gpu_runner import forbidden_work
from msbench.harness.screen import device
from msbench.model import Candidate
from msbench.spec import Precision
from tests.harness.objects import compiled

PTX = """
.extern .func __assertfail
(
	.param .b64 __assertfail_param_0
)
;
.global .align 4 .u32 counter;
.const .align 4 .b8 konst[16];
.const .align 8 .f64 _ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own4halfE = 0d3FE0000000000000;
.global .align 8 .u64 texts[2] = {generic($str), generic($str$1)};
.global .align 4 .b8 _ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own5tableE[16] = {0, 0};
.global .align 1 .b8 $str$1[2] = {97};
.global .align 1 .b8 __unnamed_1[2] = {97};
.global .align 4 .b8 __cudart_i2opi_f[24] = {65};
.visible .entry _Z1kPf(
	.param .u64 .ptr .global .align 1 _Z1kPf_param_0
)
{
	// .global .u32 not_declared;
	ld.global.u32 %r1, [%rd1];
}
"""
DECLARED = """
# 3 "a.cu"
static  __device__  __var_used__ const int counter;
static  __device__  __var_used__ const char *const texts[2];
static  __device__  __var_used__ const float _ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own5tableE[4] = {(1.0F)};
# 9
__global__ __var_used__ extern void _Z1kPf(float *);
"""


def of_the_device(ptx: str, declared: str) -> str | None:
    assert ptx != PTX or declared != DECLARED
    return device.tricks(ptx, declared, "a.cu")


def test_device_variables_are_state_unless_they_are_constant() -> None:
    assert device.tricks(PTX, DECLARED, "a.cu") is None
    state = "keeps state between calls (the device variable {})".format
    assert of_the_device(PTX, DECLARED.replace("const int counter", "int counter")) == state("counter")
    assert of_the_device(PTX, DECLARED.replace("*const texts", "*texts")) == state("texts")
    assert of_the_device(PTX, DECLARED.replace("const float", "float")) == state(
        "_ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own5tableE"
    )
    assert of_the_device(PTX.replace("__unnamed_1", "__unnamed"), DECLARED) == state("__unnamed")
    declared = "static  __device__  __var_used__ int __unnamed_1;\n"
    assert of_the_device(PTX, DECLARED + declared) == state("__unnamed_1")
    assert of_the_device(PTX.replace("counter", "counter, other"), DECLARED) == state("other")


@pytest.mark.parametrize(
    "text",
    [
        "{ .global .u32 $str; }",
        "/* */ .global .u32 $str;",
        "mov.u32 a, b; .global .b8 $str[9];",
        '.pragma "/*"; .global .u32 $str; .pragma "*/";',
        '{ .pragma "a\n"; /* " */ .global .u32 $str; /* " */ }',
        '/* " */ .global .u32 $str; // "',
        "/* /* */ .global .u32 $str; // */",
        "// /*\n.global .u32 $str; // */",
        "// a \\\n.global .u32 $str;",
        "// a\r\n.global .u32 $str;",
        ".align 4 .global .u32 $str;",
        ".align 0x4.global .u32 $str;",
        ".visible.align 4.global.align 4 .u32 $str;",
        '.pragma "nounroll"; .align 4 .global .v2 .u32 $str[2];',
        ".loc 1 1 1 .global .u32 $str;",
        "L1:.global .u32 $str;",
        "ld:.global .u32 $str;",
        ".attribute(.unified(1, 2)) .global .u32 $str;",
        ".pragma\t.global/**/.u32/**/$str;",
        "} .weak\n.global .u32 $str = 7; .func f() {",
        "} .common .global .attribute(.managed) .u32 $str; .func f() {",
    ],
)
def test_device_variables_of_inline_assembly_are_state_under_any_name(text: str) -> None:
    ptx = PTX.replace("ld.global", f"{text}\n\tld.global")
    assert of_the_device(ptx, DECLARED) == "keeps state between calls (the device variable $str)"


@pytest.mark.parametrize(
    "text",
    [
        "// a \r /* \n .global .u32 $str; // */",
        '.pragma "a\\";',
        '# 1 "a"',
        "@@DWARF .u32 x",
        "'",
        "/* open",
        '.pragma "open',
        "mov.u32\x0ca, b;",
        "// \0",
    ],
)
def test_ptx_that_may_be_read_in_two_ways_is_refused(text: str) -> None:
    found = of_the_device(PTX.replace("ld.global", f"{text}\n\tld.global"), DECLARED)
    assert (found or "").startswith("writes PTX that can't be read with certainty (")


def test_a_body_begins_at_its_brace_whatever_stands_before_it() -> None:
    ptx = PTX.replace(")\n{", ')\n.pragma "a";\n{').replace("ld.global", ".global .u32 $str;\n\tld.global")
    assert of_the_device(ptx, DECLARED) == "keeps state between calls (the device variable $str)"


@pytest.mark.parametrize(
    "code",
    [
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b, {c, d}], [e];",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], 16, [c];",
        "@!p1 red.relaxed.gpu.global.add.f32 [a], b; @p1 bra $L__BB0_1;",
        "{cvta.to.global.u64 a, b; atom.add.release.sys.global.u32 c, [a], 1;}",
        "tensormap.replace.tile.global_address.global.b1024.b64 [a], b;",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {a, b}, [c];",
        "prefetch.global.L2::evict_last [a]; fence.proxy.async.global; isspacep.global p, a;",
        '// it\'s # not "code" \\\n/* nor @@ this " \'#\\ */ .pragma "nounroll";',
    ],
)
def test_instructions_on_global_memory_declare_nothing(code: str) -> None:
    assert of_the_device(PTX.replace("ld.global", f"{code}\n\tld.global"), DECLARED) is None


@pytest.mark.parametrize(
    ("types", "constant"),
    [
        ("typedef const int T;", True),
        ("typedef const int R;\ntypedef R T[2];", True),
        ("typedef int *const T;", True),
        ("typedef int (*const T)(int);", True),
        ("typedef int T;", False),
        ("typedef const int *T;", False),
        ("typedef const int *R;\ntypedef R T[2];", False),
        ("typedef int (*T)(const int);", False),
        ("typedef const int T;\ntypedef int T;", False),
        ("typedef T T;", False),
        ("typedef const int OtherT;", False),
        ("", False),
    ],
)
def test_a_types_name_may_say_that_it_is_constant(types: str, constant: bool) -> None:
    declared = f"{types}\n{DECLARED}".replace("const int counter", "T counter")
    assert (of_the_device(PTX, declared) is None) == constant
    assert of_the_device(PTX, declared.replace("T counter", "T *counter")) is not None


CUBIN = """
#define IN(name) __attribute__((section(name), used))
__attribute__((used)) static const int code = 1;
IN(".nv.global") int counter;
IN(".nv.global.init") static char text[2] __asm__("$str$1") = {97, 0};
IN(".nv.shared.reserved.0") int reserved;
"""


@pytest.mark.parametrize(
    ("added", "trick"),
    [
        ("", None),
        ('IN(".nv.global") int kept;', "keeps state between calls (the device variable kept)"),
        ('IN(".nv.global") static int kept __asm__("$str");', "keeps state between calls (the device variable $str)"),
        ('IN(".nv.other") int kept = 1;', "keeps state between calls (the device variable kept)"),
        ("int kept __attribute__((common));", "keeps state between calls (the device variable kept)"),
        (
            'asm(".pushsection .nv.other,\\"aw\\"; .zero 8; .popsection");',
            "keeps state between calls (the device variable without a name in .nv.other)",
        ),
        ('extern "C" int vprintf(int); int f() { return vprintf(1); }', "prints from the device (vprintf)"),
        # PTX needs no ".extern" before a function that it only declares
        ('extern "C" void* malloc(); void* f() { return malloc(); }', "allocates memory from the device (malloc)"),
    ],
)
def test_machine_code_holds_no_variable_that_its_ptx_does_not_declare(
    tmp_path: Path, added: str, trick: str | None
) -> None:
    cubin = compiled(tmp_path, CUBIN + added)
    assert device.tricks_of_machine_code(cubin, PTX) == trick
    of_another_size = PTX.replace(".u32 counter", ".u64 counter")
    state = "keeps state between calls (the device variable counter)"
    assert device.tricks_of_machine_code(compiled(tmp_path, CUBIN), of_another_size) == state


def test_what_stays_in_the_devices_memory_has_names(tmp_path: Path) -> None:
    in_constant_memory = 'IN(".nv.constant3") extern const float konst = 1; IN(".nv.constant0") extern const int x = 1;'
    cubin = compiled(tmp_path, CUBIN + in_constant_memory)
    assert sorted(symbol.name for symbol in device.kept(cubin)) == ["$str$1", "counter", "konst"]


def test_tables_on_the_device_are_small(tmp_path: Path) -> None:
    cubin = compiled(tmp_path, CUBIN + 'IN(".nv.constant3") extern const char konst[1 << 20] = {1};')
    assert device.tricks_of_machine_code(cubin, PTX) == (
        "declares 1048582 bytes of tables in the device's memory, of which 1048576 are the most"
    )


def test_a_version_whose_machine_code_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.ptx").write_text(PTX, encoding="utf-8")
    (tmp_path / "x.cudafe1.gpu").write_text(DECLARED.replace("a.cu", "x.cu"), encoding="utf-8")
    candidate = Candidate("x", Precision.FP32, "int f();")
    failure = screen.look_at_device_code(candidate, tmp_path, "x")
    assert failure is not None
    assert "leaves no machine code" in failure.message
    compiled(tmp_path, CUBIN)
    (tmp_path / "x.o").rename(tmp_path / "x.cubin")
    assert screen.look_at_device_code(candidate, tmp_path, "x") is None


def test_a_librarys_kernel_is_one_that_another_file_defines() -> None:
    headers = '# 9 "/usr/local/cuda/include/cccl/{}" 3'.format
    for path in ("cub/device/dispatch/kernels/reduce.cuh", "cub/util_device.cuh"):
        trick = of_the_device(PTX, DECLARED.replace("# 9", headers(path)))
        assert (trick is None) == path.endswith("util_device.cuh")
        assert trick is None or "calls a library's own kernels (_Z1kPf)" in trick
    assert "library's own kernels" in (of_the_device(PTX, DECLARED.replace("_Z1kPf(", "_Z1jPf(")) or "")
    text = '# 2 "a.cu"\nconst char *text = "__global__ __var_used__ void _Z1kPf(";\n'
    hidden = DECLARED.replace("# 9", headers("cub/device/dispatch/kernels/reduce.cuh")) + text
    assert "library's own kernels" in (of_the_device(PTX, hidden) or "")


def test_constants_have_names_and_sizes() -> None:
    assert device.constants(PTX) == {"konst": 16, "_ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own4halfE": 8}


def test_the_host_code_of_the_file_itself_is_told_from_the_rest() -> None:
    code = '# 1 "/usr/include/x.h"\n__asm__("pause");\n# 3 "k.cu"\n#if 0\n__asm__ volatile("bar.sync 0;");\n#endif\nint x;\n'
    assert device.host_trick(code, "k.cu") is None
    assert device.host_trick(code + "# 9\n(__cudaPushCallConfiguration(1, 2)) ? (void)0 : k(x);\n", "k.cu") is None
    assert device.host_trick(code + '# 9\nasm("nop");\n', "k.cu") == "holds assembly for the host"
    lambda_before = '# 5 "k.cu"\n{\n#if 0\n{\n#if 0\n{ return 1; }\n#endif\nasm("membar.gl;");\n}\n#endif\n}\n'
    assert device.host_trick(lambda_before, "k.cu") is None
    assert device.host_trick(lambda_before + '# 9\nasm("nop");\n', "k.cu") == "holds assembly for the host"
    registers = device.host_trick(code + "# 9\n__cudaRegisterFatBinary(&x);\n", "k.cu")
    assert registers == "reaches into what the compilers add to it (__cudaRegisterFatBinary)"


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


def test_what_a_recorded_call_may_hold(tmp_path: Path) -> None:
    binary = tmp_path / "kernel.so"
    binary.write_bytes(b"\0_Z3addPf\0")
    assert forbidden_work(["memset", "kernel _Z3addPf", "copy"], binary) is None
    assert "put nothing into its stream" in (forbidden_work([], binary) or "")
    assert "does not hold: sgemm" in (forbidden_work(["kernel _Z3addPf", "kernel sgemm"], binary) or "")
    assert "copies through the host" in (forbidden_work(["host copy"], binary) or "")
    for node in ("host function", "allocation", "node of type 4"):
        assert node in (forbidden_work([node], binary) or "")
