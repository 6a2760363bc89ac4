"""The rewriter: the same program with the same lines, or a clear refusal, whatever the file looks like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench.emulator.lexer import tokens
from msbench.emulator.rewrite import rewrite
from msbench.errors import BuildError, UnsupportedError


def body(source: str, include_dirs: tuple[Path, ...] = ()) -> str:
    """The rewritten file without the line marker in front."""
    marker, _, text = rewrite(source, "k.cu", include_dirs).source.partition("\n")
    assert marker == '#line 1 "k.cu"'
    assert text.count("\n") == source.count("\n")
    return text


def flat(text: str) -> str:
    return " ".join(text.split())


# ------------------------------------------------------------------ launches

DECLARATIONS = """
__global__ void plain(int* p);
static __global__ __launch_bounds__(256, 2) void bounded(int* p) {}
template <typename T, int n = 4> __global__ void typed(T* p) {}
template <typename... T> __global__ void packed(T*... p) {}
__global__ void twice(int* p) {}
__global__ void twice(float* p) {}
"""


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("plain<<<1, 2>>>(p);", '::msbench_cpu::bind<&plain>("plain", ::msbench_cpu::Config(1, 2))(p);'),
        (
            "bounded<<<g, b, 0, s>>>(p);",
            '::msbench_cpu::bind<&bounded>("bounded", ::msbench_cpu::Config(g, b, 0, s))(p);',
        ),
        (
            "typed<int, 4><<<1, 2>>>(p);",
            '::msbench_cpu::bind<&typed<int, 4>>("typed", ::msbench_cpu::Config(1, 2))(p);',
        ),
        (
            "a::b::plain <<< dim3(1) , 2 >>> (p);",
            '::msbench_cpu::bind<&a::b::plain >("plain", ::msbench_cpu::Config( dim3(1) , 2 )) (p);',
        ),
    ],
)
def test_a_kernel_with_one_meaning_is_bound_by_its_address(launch: str, expected: str) -> None:
    assert flat(body(DECLARATIONS + launch)).endswith(expected)


@pytest.mark.parametrize(
    "callee",
    [
        "typed<int>",
        "typed",
        "packed<int>",
        "twice",
        "unknown",
        "(plain)",
        "kernels[i]",
        "object.kernel",
        "object->kernel",
        "pick<3>(x)",
    ],
)
def test_other_kernels_are_called_by_a_lambda(callee: str) -> None:
    found = flat(body(f"{DECLARATIONS}{callee}<<<1, 2>>>(p);"))
    assert f"::msbench_cpu::bind_call([=](auto&&... msbench_a) {{ {callee}(msbench_a...); }}," in found


def test_launches_in_macros_keep_their_continuation_lines() -> None:
    source = "#define L(k, ...) \\\n  k<<<1, \\\n  2>>>(__VA_ARGS__)\n#define M(n) run_##n<<<1, 1>>>()\n"
    found = body(source)
    assert [line.endswith("\\") for line in found.splitlines()] == [True, True, False, False]
    assert "{ run_##n(msbench_a...); }" in found


@pytest.mark.parametrize(
    "text",
    [
        "// k<<<1, 1>>>();",
        '"k<<<1, 1>>>();"',
        "/* k<<<1, 1>>>(); */",
        'R"(k<<<1, 1>>>();)"',
        "#if k<<<1, 1>>>()\n#endif",
    ],
)
def test_what_only_looks_like_a_launch_is_left_alone(text: str) -> None:
    assert body(text) == text


@pytest.mark.parametrize(
    "text", ["k<<<1, 1;", "<<<1, 1>>>(p);", "k<<<1, 1>>>;", "k<<<(1, 1>>>(p);", "int x = 1 <<< 2;"]
)
def test_a_launch_that_is_no_launch_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(BuildError, match=r"k\.cu:3: error: a kernel launch with ") as caught:
        body(f"\n\n{text}")
    assert "k.cu:3" in caught.value.log


def test_casts_that_hide_a_kernels_type_go() -> None:
    for cast in (
        "(void*)",
        "(const void*)",
        "(void const *)",
        "reinterpret_cast<void*>",
        "reinterpret_cast<const void *>",
    ):
        assert (
            flat(body(f"cudaLaunchKernel({cast}(k<int>), g, b, a);")).replace(" ", "")
            == "cudaLaunchKernel((k<int>),g,b,a);"
        )


def test_a_kernels_address_is_known_by_its_type_elsewhere() -> None:
    source = "__global__ void k(int*); const void *one = {}k, *other = {}(data);"
    for cast in ("(void*)", "(const void*)", "reinterpret_cast<const void*>"):
        found = flat(body(source.format(cast, cast)))
        assert "::msbench_cpu::Known()->*k" in found and f"{cast}(data)" in found
    number = "__global__ void k(int*); float f(float k) { return static_cast<int>(k); }"
    assert flat(body(number)) == flat(number)


# ------------------------------------------------------------------ shared memory


def in_kernel(declaration: str) -> str:
    return f"__global__ void k() {{ {declaration} }}"


@pytest.mark.parametrize(
    ("declaration", "names"),
    [
        ("__shared__ float a;", ["a"]),
        ("__shared__ float a[2][N + 1], *b, c;", ["a", "b", "c"]),
        ("static __shared__ __align__(16) unsigned long long a[f(x, y)];", ["a"]),
        ("volatile __shared__ int a[32];", ["a"]),
        ("float __shared__ a[32];", ["a"]),
        ("__shared__ typename cub::BlockReduce<float, (A > B), 3>::TempStorage temp, more[2];", ["temp", "more"]),
        ("__shared__ union { float a; int b; } both;", ["both"]),
        ("__shared__ float (*rows)[32];", ["rows"]),
        ("__shared__\n  float\n  a // a comment\n  [3];", ["a"]),
    ],
)
def test_static_shared_variables_become_references(declaration: str, names: list[str]) -> None:
    found = body(in_kernel(declaration))
    assert re.findall(r"auto& (\w+) = msbench_shared\d+\.\1;", found) == names
    assert f'>("{", ".join(names)}")' in found
    assert "__shared__" not in found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("[=](int i) { a[i] = 0; }", "[=, &a](int i)"),
        ("[=, &x] { b = a[x]; }", "[=, &x, &a, &b]"),
        ("[x](int i) { return a[x + i]; }", "[x, &a](int i)"),
        ("[&x, y] { return a[x] + y; }", "[&x, y, &a]"),
        ("[&b, x] { return b + x; }", "[&b, x]"),
        ("n[x](b)", "n[x](b)"),
        ("if (x) [[likely]] { b = 1; }", "[[likely]]"),
        ("f([] { return b; })", "[&b]"),
        ("[=] { return c; }", "[=]"),
        ("[&] { return b; }", "[&]"),
        ("int n[] = {b}", "int n[] ="),
    ],
)
def test_lambdas_refer_to_shared_variables(code: str, expected: str) -> None:
    assert expected in body(in_kernel(f"__shared__ int a[3], b; {code};"))


def test_dynamic_shared_variables_of_the_file_are_pointers_where_they_are_cast() -> None:
    text = "extern __shared__ float s[];\n__global__ void k() {{ {} }}"
    for code, expected in (
        ("float4* v = reinterpret_cast<float4*>(s);", "reinterpret_cast<float4*>(+s)"),
        ("auto v = reinterpret_cast<const int *>(s + 4);", "reinterpret_cast<const int *>(+s + 4)"),
        ("auto v = (float4 *)s;", "(float4 *)+s"),
        ("f(s); s[0] = x.s;", "f(s); s[0] = x.s;"),
    ):
        assert expected in rewrite(text.format(code), "k.cu", ()).source


def test_dynamic_shared_variables_become_pointers() -> None:
    assert "float (*s) = reinterpret_cast<float (*)>(::msbench_cpu::dynamic_shared());" in flat(
        body(in_kernel("extern __shared__ float s[];"))
    )
    aligned = flat(body(in_kernel("extern __shared__ __align__(16) unsigned char\ns[];")))
    assert "unsigned char (*s) = reinterpret_cast<unsigned char (*)>" in aligned
    assert "int (*s)[ 4 ] = " in flat(body(in_kernel("extern __shared__ alignas(8) int s[][4];")))
    assert "static const ::msbench_cpu::DynamicShared<float4> s;" in flat(body("extern __shared__ float4 s[];"))


@pytest.mark.parametrize(
    "source",
    [
        "__shared__ float a[3];",
        "namespace n { struct S { int x; }; __shared__ S s; }",
        in_kernel("extern __shared__ float s;"),
        in_kernel("extern __shared__ float s[], t[];"),
        "extern __shared__ float s[][3];",
        in_kernel("__shared__ float a[3]"),
    ],
)
def test_shared_declarations_of_other_forms_are_refused_with_their_line(source: str) -> None:
    with pytest.raises(UnsupportedError, match=r"k\.cu:2: the cpu executor can't run this __shared__ declaration"):
        body(f"\n{source}")


def test_a_kernel_may_have_the_name_of_a_c_function() -> None:
    found = body("__global__ void select(int a) {}\nvoid f() { select<<<1, 2>>>(3); }")
    assert "bind_call" in found and "bind<&select>" not in found


# ------------------------------------------------------------------ PTX


def test_ptx_is_translated_named_or_left_to_the_host() -> None:
    device = '__device__ void f(float x) { asm volatile("%s" : "=f"(x) : "f"(x)); }'
    assert "exp2f" in body(device % "ex2.approx.f32 %0, %1;")
    assert "msbench_fast::tanh" in body(device % "tanh.approx.f32 %0, %1;")
    assert "inline PTX 'wgmma.fence.sync.aligned' (k.cu:1)" in body(device % "wgmma.fence.sync.aligned;")
    assert "inline PTX 'mul.f32'" in body(
        device % "{ .reg .f32 t; mul.f32 t, %1, %1; }".replace("{ .reg .f32 t; ", "mul.f32 %0, %1, %1; { ")
    )
    host = 'void g() { asm volatile("rdtsc"); }'
    assert body(host) == host


# ------------------------------------------------------------------ headers


def test_local_headers_are_rewritten_too(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.cuh").write_text('#include "deep/b.cuh"\n__device__ void f() { __shared__ int x; }\n')
    (tmp_path / "deep" / "b.cuh").write_text("template <int n> __global__ void k(int* p) {}\n")
    found = rewrite('#include "a.cuh"\n#include <vector>\nvoid g(int* p) { k<3><<<1, 1>>>(p); }\n', "k.cu", (tmp_path,))
    assert set(found.headers) == {"a.cuh", "deep/b.cuh"}
    assert "msbench_shared" in found.headers["a.cuh"]
    assert "bind<&k<3>>" in found.source


# ------------------------------------------------------------------ anything

PIECES = st.sampled_from(
    ["k", "<<<", ">>>", "<", ">", "(", ")", "[", "]", "{", "}", ";", ",", "::", ":", "__shared__ ", "extern ", "static ", "float ", "x", "[3]", "[]",
     "__global__ void ", "template ", "asm", "volatile", '"wgmma.x %0;"', '"=r"', "#define M ", "\\\n", "\n", "// ", "/*", "*/", '"', "'", 'R"(', ')"',
     "cudaLaunchKernel", "(void*)", "reinterpret_cast", "1", " ", "=", "struct ", "namespace ", "__device__ ", "##", "é"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=2)), max_size=40).map("".join))
def test_no_text_breaks_the_rewriter(source: str) -> None:
    try:
        found = rewrite(source, "k.cu").source
    except (BuildError, UnsupportedError) as refusal:
        assert "k.cu:" in str(refusal)
    else:
        assert found.count("\n") == source.count("\n") + 1


FILLER = st.sampled_from([" ", "\n", "\t", "/* <<< */", "/*\n*/", "// >>>\n", " \\\n", ""])


@settings(deadline=None)
@given(st.data())
def test_layout_never_changes_a_launch(data: st.DataObject) -> None:
    parts = [
        "typed",
        "<",
        "int",
        ",",
        "(",
        "4",
        ">",
        "3",
        ")",
        ">",
        "<<<",
        "dim3",
        "(",
        "1",
        ")",
        ",",
        "f",
        "(",
        "a",
        "<",
        "b",
        ",",
        "c",
        ")",
        ">>>",
        "(",
        "p",
        ")",
        ";",
    ]
    spaced = "".join(part + data.draw(FILLER) for part in parts)
    found = body(DECLARATIONS + spaced)
    code = "".join(token.text for token in tokens(found))
    assert code.endswith('::msbench_cpu::bind<&typed<int,(4>3)>>("typed",::msbench_cpu::Config(dim3(1),f(a<b,c)))(p);')


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside.cuh", "a/../../outside.cuh"])
def test_a_file_outside_of_the_folders_is_neither_read_nor_rewritten(tmp_path: Path, name: str) -> None:
    (tmp_path / "include" / "a").mkdir(parents=True)
    (tmp_path / "outside.cuh").write_text("int outside;")
    assert rewrite(f'#include "{name}"\n', "kernel.cu", (tmp_path / "include",)).headers == {}
