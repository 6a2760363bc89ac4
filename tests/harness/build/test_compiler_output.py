"""Reading what compilers print: real output of nvcc 13.0 and its parts, shortened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.harness.build import compiler_output
from msbench.model import Fault

PROTOTYPE = 'extern "C" cudaError_t scale(const scalar_t* x, int64_t n);'

FAILURES = [
    ('scale.cu(12): error: identifier "b" is undefined\n      y = b;\n1 error detected', Fault.COMPILE, "scale.cu line 12: identifier \"b\" is undefined."),
    ("scale.cu:1:10: fatal error: nothere.h: No such file or directory", Fault.COMPILE, "scale.cu line 1: nothere.h: No such file or directory."),
    ('In file included from x\nscale.cu(3): error #20: identifier "q" is undefined', Fault.COMPILE, 'scale.cu line 3: identifier "q" is undefined.'),
    ('At end of source: error: expected a "}"', Fault.COMPILE, 'At the end of the file: expected a "}".'),
    ("scale.cu(2): warning #177-D: variable was declared but never referenced\nscale.cu(9): error: bad", Fault.COMPILE, "scale.cu line 9: bad."),
    ("ptxas /tmp/tmpxft_0001_00-6_scale.ptx, line 36; error   : Unknown modifier '.bar'", Fault.COMPILE, "In the PTX, most likely of an asm statement: Unknown modifier '.bar'."),
    ("ptxas error   : Entry function 'k' uses too much shared data (0x61a80 bytes, 0x38c00 max)", Fault.COMPILE, "ptxas: Entry function 'k' uses too much shared data (0x61a80 bytes, 0x38c00 max)."),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_999'", Fault.COMPILE, "nvcc: Unsupported gpu architecture 'compute_999'."),
    ('scale.cu(2): error: more than one instance of overloaded function "scale" has "C" linkage', Fault.SIGNATURE, PROTOTYPE),
    ("scale.cu(2): error: cannot overload functions distinguished by return type alone", Fault.SIGNATURE, PROTOTYPE),
    ("/usr/bin/ld: /tmp/x.o: in function `msbench_launch':\ntmpxft.cpp:(.text+0x1): undefined reference to `scale'", Fault.SIGNATURE, PROTOTYPE),
    ("/usr/bin/ld: x.o: undefined reference to `other()'", Fault.LINK, "The kernel uses other(), which nothing defines."),
    ("/usr/bin/ld: cannot find -lfoo: No such file", Fault.LINK, "The linker can't find -lfoo"),
    ("something else went wrong", Fault.COMPILE, "The compiler failed: something else went wrong"),
    ("", Fault.COMPILE, "it says nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("log", "fault", "says"), FAILURES)
def test_the_first_error_becomes_one_sentence(log: str, fault: Fault, says: str) -> None:
    failure = compiler_output.classify_failure(log, "scale", PROTOTYPE)
    assert failure.fault is fault
    assert says in failure.message
    assert "\n" not in failure.message


def test_an_overload_of_something_else_is_no_wrong_signature() -> None:
    log = 'scale.cu(4): error: no instance of overloaded function "atomicAdd" matches the argument list'
    assert compiler_output.classify_failure(log, "scale", PROTOTYPE).fault is Fault.COMPILE


@given(st.text())
def test_any_log_gives_a_sentence(log: str) -> None:
    assert compiler_output.classify_failure(log, "scale", PROTOTYPE).message
    compiler_output.kernels(log)
    compiler_output.sass_mix(log)


PTXAS = """\
ptxas info    : 39 bytes gmem
ptxas info    : Compiling entry function '_ZN3cub17CUB_300001_SM_9006detail11EmptyKernelIvEEvv' for 'sm_90a'
ptxas info    : Function properties for _ZN3cub17CUB_300001_SM_9006detail11EmptyKernelIvEEvv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers
ptxas info    : Compile time = 11.226 ms
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'
ptxas info    : Function properties for _Z1kPf
    48 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size, 2064 bytes smem
ptxas info    : Compile time = 4.104 ms
"""


def test_resources_of_each_kernel() -> None:
    assert compiler_output.kernels(PTXAS) == [
        {
            "name": "_Z1kPf",
            "registers": 255,
            "shared_bytes": 2064,
            "spill_store_bytes": 16,
            "spill_load_bytes": 24,
            "stack_bytes": 48,
        }
    ]


def test_a_log_is_the_same_from_run_to_run() -> None:
    one = PTXAS + "ptxas /tmp/tmpxft_00000a1b_00000000-6_scale.ptx, line 3; warning : x\n"
    two = PTXAS.replace("4.104", "5.2") + "ptxas /tmp/tmpxft_0000ffff_00000000-6_scale.ptx, line 3; warning : x\n"
    assert compiler_output.clean_log(one) == compiler_output.clean_log(two)


SASS = """\
        Function : _Z1kPf
        /*0000*/                   LDC R1, c[0x0][0x28] ;                        /* 0x00000a00ff017b82 */
                                                                                 /* 0x000fe20000000800 */
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;     /* 0x0000000402047981 */
        /*0020*/                   LDG.E.U16 R4, desc[UR4][R2.64] ;              /* 0x0000000402047981 */
        /*0030*/             @UP0  UMOV UR4, 0x1 ;                               /* 0x0000000402047981 */
        /*0040*/                   STG.E desc[UR4][R2.64], R5 ;                  /* 0x0000000402047981 */
        /*0050*/                   STS.64 [R2], R4 ;                             /* 0x0000000402047981 */
        /*0060*/                   MUFU.EX2 R4, R4 ;                             /* 0x0000000402047981 */
        /*0070*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ; /* 0x0 */
        /*0080*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ; /* 0x0 */
        /*0090*/                   NOP ;                                         /* 0x0000000402047981 */
"""


def test_the_instruction_mix() -> None:
    assert compiler_output.sass_mix(SASS) == {
        "HGMMA": 2,
        "LDC": 1,
        "LDG.128": 1,
        "LDG.16": 1,
        "UMOV": 1,
        "STG.32": 1,
        "STS.64": 1,
        "MUFU.EX2": 1,
    }
