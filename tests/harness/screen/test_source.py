"""Which files a version's text takes in. The exploit corpus has a whole kernel for most of these."""

from __future__ import annotations

import pytest

from msbench.harness import screen
from msbench.harness.screen import source
from msbench.model import Candidate, Fault
from msbench.spec import Precision


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('#include "/etc/passwd"', "from outside: /etc/passwd"),
        ("#include <../x.h>", "from outside"),
        ('#/**/include "/x"', "from outside: /x"),
        ('#inc\\\nlude "/x"', "from outside: /x"),
        ("#define F <x>\n#include F", "whose name a macro makes"),
        ("#include_next <x.h>", "takes in another file (#include_next)"),
        ('\f#include "/x"', "from outside: /x"),
        ('#\v\0include\f"/x"', "from outside: /x"),
        ('asm(".inc" /* */ "bin \\"x\\"");', "takes in another file (.incbin"),
        ('asm(R"(\n .incbin "x"\n)");', "takes in another file (.incbin"),
    ],
)
def test_what_a_text_takes_in(text: str, says: str) -> None:
    trick = source.tricks(text)
    assert trick is not None
    assert says in trick


@pytest.mark.parametrize(
    "text",
    [
        '/* #include "/etc/passwd" */',
        'const char* s = "#include </x>";',
        "#include <cuda_bf16.h>\n#include <msbench.cuh>",
        'asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));',
        "static int calls = time(0); auto f = &cudaMalloc; std::thread t;",
    ],
)
def test_what_only_looks_like_it(text: str) -> None:
    assert source.tricks(text) is None


def test_a_refusal_is_a_failed_build() -> None:
    failure = screen.look_at_source(Candidate("x", Precision.FP32, '#include "/x.h"'))
    assert failure is not None
    assert failure.fault is Fault.FORBIDDEN
    assert failure.message == "Refused before it ran: the file includes a file from outside: /x.h."
