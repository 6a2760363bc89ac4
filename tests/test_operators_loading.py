"""Operators are found, validated and described: what a user with a folder of operators relies on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench import operators, resources
from msbench.errors import SpecError, UnknownNameError
from msbench.model import Candidate, Origin
from msbench.spec import Array, Operator, Precision, Split, Task

EIGHT = (
    "matrix_mul",
    "matrix_transpose",
    "prefix_sum",
    "rms_norm",
    "softmax",
    "spmv_csr",
    "stencil_2d",
    "vector_add",
)

SPEC = """
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split

fields = dict(
    name="double_it",
    title="Double",
    scenario="Dense algebra",
    definition="y = 2x",
    dims=(Dim("N", 1, 4096),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    scalars=(Scalar("a", "float", 2.0), Scalar("k", "int64_t", 3)),
    cases=(Case((("N", 8),), Split.PAPER), Case((("N", 7),), Split.ODD)),
    reference=lambda xp, x, a, k, N: 2 * x,
    bound=lambda xp, u, out, x, a, k, N: u * abs(out["y"]),
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: N,
)
"""


def write(root: Path, change: str = "", name: str = "double_it") -> Path:
    """A folder of operators with one spec, in which ``change`` alters ``fields``."""
    (root / name).mkdir(parents=True)
    (root / name / "spec.py").write_text(f"{SPEC}\n{change}\nOPERATOR = Operator(**fields)\n", encoding="utf-8")
    return root


def test_the_eight_operators_are_there_and_valid() -> None:
    assert set(EIGHT) <= set(operators.names())
    for name, op in operators.load_all().items():
        assert op.name == name
        assert Path(op.folder, "spec.py").is_file()
        assert {case.split for case in op.cases} >= {Split.PAPER, Split.LARGE, Split.ODD}
        assert op.bound_note and op.library_note


@pytest.mark.parametrize("name", EIGHT)
def test_every_task_has_a_naive_kernel_and_a_library_baseline(name: str) -> None:
    op = operators.load(name)
    for precision in Precision:
        first, *others = operators.versions(Task(op, precision))
        assert (first.origin, first.label) == (Origin.NAIVE, "naive")
        assert Origin.LIBRARY in {v.origin for v in others}
        for version in (first, *others):
            assert f"cudaError_t {name}(" in version.source


def test_geam_is_a_baseline_of_fp32_only() -> None:
    op = operators.load("matrix_transpose")
    labels = {p: {v.label for v in operators.versions(Task(op, p))} for p in Precision}
    assert "cublas" in labels[Precision.FP32]
    assert "cublas" not in labels[Precision.BF16]
    assert "cublaslt" in labels[Precision.BF16]


def test_a_folder_of_ones_own_is_there_beside_the_built_in_one(tmp_path: Path) -> None:
    write(tmp_path)
    assert "double_it" in operators.names(tmp_path)
    assert "double_it" not in operators.names()
    assert operators.load("softmax", tmp_path).folder == operators.load("softmax").folder


@pytest.mark.parametrize("name", operators.names())
def test_a_built_in_name_is_refused_since_results_are_stored_by_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match=rf"msbench has an operator '{name}' of its own.*such as 'my_{name}'"):
        operators.scaffold(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
    write(tmp_path, f"fields.update(name='{name}')", name)
    for use in (lambda: operators.names(tmp_path), lambda: operators.load(name, tmp_path), lambda: operators.load_all(tmp_path)):  # fmt: skip
        with pytest.raises(SpecError, match=rf"{name}/spec.py: msbench has an operator '{name}' .* Rename the folder"):
            use()


def test_the_built_in_folder_may_be_given_as_ones_own(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(resources.kernels_dir())
    assert operators.names(tmp_path / "linked") == operators.names()


def test_for_an_operator_s_own_folder_its_parent_is_asked_for(tmp_path: Path) -> None:
    folder = write(tmp_path / "my ops") / "double_it"
    with pytest.raises(SpecError, match=f"double_it is an operator's own folder.*--ops-dir '{folder.parent}'$"):
        operators.names(folder)


def test_loading_leaves_no_trace_beside_the_spec(tmp_path: Path) -> None:
    operators.load("double_it", write(tmp_path))
    assert [path.name for path in (tmp_path / "double_it").iterdir()] == ["spec.py"]


def test_an_edited_spec_is_read_again(tmp_path: Path) -> None:
    write(tmp_path)
    spec = tmp_path / "double_it" / "spec.py"
    before = spec.stat()
    operators.load("double_it", tmp_path)
    spec.write_text(spec.read_text().replace('"Double"', '"Twice!"'))
    assert spec.stat().st_size == before.st_size
    assert operators.load("double_it", tmp_path).title == "Twice!"


def test_an_unknown_operator_says_what_was_meant_or_else_what_there_is() -> None:
    with pytest.raises(
        UnknownNameError, match=r"'softmaks'\. Did you mean 'softmax'\? `msbench ops` lists them\. If it"
    ):
        operators.load("softmaks")
    with pytest.raises(UnknownNameError, match=r"'xyz'\. Known: batch_norm, .*, vector_add\. If it"):
        operators.load("xyz")


def test_an_unknown_case_says_what_was_meant_or_else_the_range() -> None:
    op = operators.load("vector_add")
    with pytest.raises(UnknownNameError, match="Did you mean 'paper'"):
        operators.select_cases(op, "papr")
    with pytest.raises(UnknownNameError) as caught:
        operators.select_cases(op, "N=0")
    assert "Did you mean" not in str(caught.value) and str(caught.value).endswith(", N from 1 to 1073741824.")


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=4))
def test_an_unknown_name_lists_what_is_known_unless_one_is_near(name: str, known: list[str]) -> None:
    plain, listing = (
        str(UnknownNameError("thing", name, known)),
        str(UnknownNameError("thing", name, known, "", "See.")),
    )
    assert f"Known: {', '.join(known) or 'none'}." in plain
    assert listing == plain or ("Did you mean" in plain and listing.endswith("? See."))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere is no folder.*new-op"):
        operators.names(tmp_path / "nowhere")


# ------------------------------------------------------------------ wrong specs


def test_a_right_spec_passes(tmp_path: Path) -> None:
    assert operators.load("double_it", write(tmp_path)).dims[0].name == "N"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("fields.update(name='other')", "OPERATOR.name: 'other' is in a folder named 'double_it'"),
        ("fields.update(title='')", "OPERATOR.title"),
        ("fields.update(scenario=None)", "OPERATOR.scenario"),
        ("fields.update(definition=3)", "OPERATOR.definition"),
        ("fields.update(compute='int8')", "OPERATOR.compute: 'int8' is none of"),
        ("fields.update(precisions=('fp32',))", "OPERATOR.precisions: 'fp32' is no Precision"),
        ("fields.update(precisions=())", "OPERATOR.precisions"),
        ("fields.update(dims=())", "OPERATOR.dims: there is none"),
        ("fields.update(dims=(Dim('N', -1, 4),))", "OPERATOR.dims: N: -1 to 4"),
        ("fields.update(dims=(Dim('N', 9, 4),))", "OPERATOR.dims: N: 9 to 4"),
        ("fields.update(dims=(Dim('N', 1, 2**31),))", "OPERATOR.dims: N"),
        ("fields.update(dims=(Dim('N', 1.0, 4),))", "OPERATOR.dims: N: 1.0 to 4"),
        ("fields.update(dims=Dim('N', 1, 4))", r"OPERATOR.dims: .* is no tuple. \(One element needs a comma"),
        ("fields.update(dims=(('N', 1, 4),))", "OPERATOR.dims: .* is no Dim"),
        ("fields.update(dims=(Dim('double', 1, 4),))", "'double' is a word of CUDA"),
        ("fields.update(dims=(Dim('lambda', 1, 4),))", "'lambda' is a word of Python"),
        ("fields.update(dims=(Dim('2N', 1, 4),))", "'2N' is no C identifier"),
        ("fields.update(dims=(Dim('Größe', 1, 4),))", "'Größe' is no C identifier"),
        ("fields.update(dims=(Dim('stream', 1, 4),))", "'stream' is a parameter of every launcher"),
        ("fields.update(dims=(Dim('xp', 1, 4),))", "'xp' is an argument of reference"),
        ("fields.update(dims=(Dim('double_it', 1, 4),))", "'double_it' is the operator's own name"),
        ("fields.update(dims=(Dim('msbench_n', 1, 4),))", "names that start with msbench_"),
        ("fields.update(dims=(Dim('x', 1, 4),))", "the name 'x' is used 2 times"),
        ("fields.update(arrays=(Array('x', ('N',)),))", "OPERATOR.arrays: no array is an output"),
        ("fields.update(arrays=(Array('y', 'N', output=True),))", "OPERATOR.arrays: y: shape 'N' is no tuple"),
        ("fields.update(arrays=(Array('y', ('N',), 'f64', output=True),))", "dtype 'f64' is none of T, f32, i32"),
        ("fields.update(arrays=(Array('y', ('N +',), output=True),))", "'N \\+' is not an expression"),
        ("fields.update(arrays=(Array('y', ('M',), output=True),))", "'M' is no dimension"),
        ("fields.update(arrays=(Array('y', ('N - 9',), output=True),))", "'N - 9' is -1"),
        ("fields.update(arrays=(Array('y', ('N // (N - 8)',), output=True),))", "divides by zero"),
        ("fields.update(arrays=(Array('y', ('open(0)',), output=True),))", r"'open\(0\)' is not allowed"),
        (
            "fields.update(arrays=(Array('i', ('N',), 'i32'), *fields['arrays']))",
            r"OPERATOR.inputs: is needed.*\['i'\]",
        ),
        ("fields.update(scalars=(Scalar('a', 'double', 1.0),))", "ctype 'double' is none of float, int64_t"),
        ("fields.update(scalars=(Scalar('a', 'float', 'one'),))", "OPERATOR.scalars: a: 'one' is no finite number"),
        ("fields.update(scalars=(Scalar('a', 'float', float('nan')),))", "is no finite number"),
        ("fields.update(scalars=(Scalar('k', 'int64_t', 1.5),))", "k: 1.5 is no integer"),
        ("fields.update(scalars=(Scalar('k', 'int64_t', 2**60),))", "is no integer that a double holds"),
        (
            "fields.update(scalars=(Scalar('a', 'float', 1.0, low=0.5),))",
            "a: low and high are given together or not at all",
        ),
        ("fields.update(scalars=(Scalar('a', 'float', 1.0, step=0.5),))", "and step with them only"),
        (
            "fields.update(scalars=(Scalar('a', 'float', 1.0, 'no', 2.0),))",
            "OPERATOR.scalars: a: 'no' is no finite number",
        ),
        ("fields.update(scalars=(Scalar('k', 'int64_t', 1, 2, 5.5),))", "k: 5.5 is no integer"),
        ("fields.update(scalars=(Scalar('a', 'float', 1.0, 3.0, 3.0),))", "a: 3.0 to 3.0 is no range"),
        (
            "fields.update(scalars=(Scalar('a', 'float', 1.0, 0.99, 1.01),))",
            "no value from 0.99 to 1.01 differs from 1.0",
        ),
        ("fields.update(scalars=(Scalar('a', 'float', 1.0, 2.0, 3.0, 0.0),))", "a: the step 0.0 is not positive"),
        ("fields.update(scalars=(Scalar('a', 'float', 1.0, 2.0, 3.0, 'x'),))", "a: 'x' is no finite number"),
        ("fields.update(scalars=(Scalar('a', 'float', 1.0, 2.0, 3.0, 0.75),))", "are no multiples of the step 0.75"),
        ("fields.update(reference=None)", "OPERATOR.reference: None is not callable"),
        ("fields.update(bound='u')", "OPERATOR.bound: 'u' is not callable"),
        ("fields.update(inputs=3)", "OPERATOR.inputs: 3 is neither callable nor None"),
        ("fields.update(nbytes=lambda N: N)", "OPERATOR.nbytes: called with .*TypeError"),
        ("fields.update(flops=lambda N: N / 2)", "OPERATOR.flops: gave 3.5"),
        ("fields.update(valid=lambda N: N)", "OPERATOR.valid: gave 7"),
        ("fields.update(distributions=('spiked',))", "'uniform' is missing"),
        ("fields.update(distributions=('uniform', 'odd one'))", "'odd one' is no lower-case word"),
        ("fields.update(distributions=('uniform', 'gaussian'))", "'gaussian' is none of .*no `inputs`"),
        ("fields.update(cases=())", "OPERATOR.cases: there is none"),
        ("fields.update(cases=(Case((('M', 8),), Split.PAPER),))", r"has the dimensions \['M'\], not \['N'\]"),
        ("fields.update(cases=(Case((), Split.PAPER),))", r"has the dimensions \[\], not \['N'\]"),
        ("fields.update(cases=(Case({'N': 8}, Split.PAPER),))", "OPERATOR.cases: dims .* is not written as"),
        ("fields.update(cases=(Case((('N', 5000),), Split.PAPER),))", "N is no integer of its range 1 to 4096"),
        ("fields.update(cases=(Case((('N', True),), Split.PAPER),))", "N is no integer of its range"),
        ("fields.update(cases=(Case((('N', 8),), 'paper'),))", "split 'paper' is no msbench.spec.Split"),
        ("fields.update(cases=(Case((('N', 8),), Split.PAPER, 'best'),))", "distribution 'best' is none of"),
        ("fields.update(cases=2 * (Case((('N', 8),), Split.PAPER),))", "'N=8' given more than once"),
        ("fields.update(cases=(Case((('N', 8),), Split.PAPER, scalars=(('b', 1),)),))", "there is no scalar 'b'"),
        ("raise RuntimeError('no luck')", "spec.py:19: RuntimeError: no luck"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", r"spec.py:19: SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("Operator = lambda **fields: None", "OPERATOR is NoneType"),
    ],
)
def test_a_wrong_spec_names_its_file_and_field(tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        operators.load("double_it", write(tmp_path, change))
    assert str(tmp_path / "double_it" / "spec.py") in str(caught.value)


def test_a_spec_without_an_operator_is_told_what_to_declare(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "spec.py").write_text("")
    with pytest.raises(SpecError, match=r"there is no OPERATOR\. Declare one"):
        operators.load("empty", tmp_path)


def test_an_operator_without_a_naive_kernel_is_refused(tmp_path: Path) -> None:
    op = operators.load("double_it", write(tmp_path))
    with pytest.raises(SpecError, match=r"naive\.cu is missing"):
        operators.versions(Task(op, Precision.FP32))


def test_a_directive_with_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    op = operators.load("double_it", write(tmp_path))
    (tmp_path / "double_it" / "naive.cu").write_text("// msbench: precisions fp64\n")
    with pytest.raises(SpecError, match=r"naive: directive 'precisions': 'fp64'.*Known: fp32, bf16"):
        operators.versions(Task(op, Precision.FP32))


def test_the_best_version_of_a_precision_is_found(tmp_path: Path) -> None:
    op = operators.load("double_it", write(tmp_path))
    folder = tmp_path / "double_it"
    (folder / "naive.cu").write_text("// plain")
    (folder / "best").mkdir()
    (folder / "best" / "bf16.cu").write_text("// fast")
    assert [v.label for v in operators.versions(Task(op, Precision.FP32))] == ["naive"]
    assert [(v.label, v.origin) for v in operators.versions(Task(op, Precision.BF16))][1:] == [("best", Origin.EXPERT)]
    (folder / "best.cu").write_text("// for both")
    sources = {p: [v.source for v in operators.versions(Task(op, p)) if v.label == "best"] for p in Precision}
    assert sources[Precision.FP32] == ["// for both\n"]
    assert sources[Precision.BF16] != ["// for both\n"]


# ------------------------------------------------------------------ shapes


def test_shapes_follow_the_dimensions() -> None:
    op = operators.load("spmv_csr")
    dims = {"rows": 5, "cols": 7, "nnz": 11}
    assert operators.shapes(op, dims) == {
        "values": (11,),
        "col_indices": (11,),
        "row_offsets": (6,),
        "x": (7,),
        "y": (5,),
    }
    assert operators.elements(op, dims) == 11 + 11 + 6 + 7 + 5


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("2 * N", 14), ("(N + 1) // 2", 4), ("max(N - K + 1, 0)", 5), ("min(N, K) - 1", 2), (" N ", 7), ("12", 12)],
)
def test_shape_expressions(expression: str, expected: int) -> None:
    assert operators.shape(Array("x", (expression,)), {"N": 7, "K": 3}) == (expected,)


@pytest.mark.parametrize("expression", ["N / 2", "N ** 2", "N.real", "[N]", "True", "'N'", "max(N)", "N if N else 1"])
def test_other_expressions_are_refused(expression: str) -> None:
    with pytest.raises(SpecError, match="is not allowed"):
        operators.shape(Array("x", (expression,)), {"N": 7})


# ------------------------------------------------------------------ the header


def test_the_prototype_is_the_contract() -> None:
    assert operators.prototype(operators.load("rms_norm")) == (
        'extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, '
        "float epsilon, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream);"
    )
    assert operators.workspace_prototype(operators.load("rms_norm")) == (
        'extern "C" size_t rms_norm_workspace(float epsilon, int64_t N);'
    )


def test_the_contract_s_page_is_up_to_date() -> None:
    page = " ".join((Path(__file__).parents[1] / "docs" / "contract.md").read_text(encoding="utf-8").split())
    op = operators.load("rms_norm")
    assert operators.prototype(op) in page
    assert operators.workspace_prototype(op) in page
    for distribution in {name for each in operators.load_all().values() for name in each.distributions}:
        assert f"`{distribution}`" in page


def test_index_arrays_are_int32_in_both_precisions() -> None:
    text = operators.prototype(operators.load("spmv_csr"))
    assert "const int32_t* col_indices, const int32_t* row_offsets, const scalar_t* x, scalar_t* y" in text


def test_the_header_spells_the_precision() -> None:
    op = operators.load("vector_add")
    fp32, bf16 = (operators.header(Task(op, p)) for p in Precision)
    assert "typedef float scalar_t;" in fp32 and "#define MSBENCH_FP32 1" in fp32
    assert "typedef __nv_bfloat16 scalar_t;" in bf16 and "#define MSBENCH_BF16 1" in bf16


@pytest.mark.parametrize(
    ("precision", "source", "included"),
    [
        (Precision.FP32, "float x;", False),
        (Precision.FP32, "// 4 us in fp32 and bf16\nfloat x;", False),
        (Precision.FP32, "// split\n__nv_bfloat16 high;", True),
        (Precision.FP32, '#include "cuda_bf16.h"', True),
        (Precision.BF16, "float x;", True),
    ],
)
def test_what_takes_long_to_compile_is_included_where_it_is_used(
    precision: Precision, source: str, included: bool
) -> None:
    op = operators.load("vector_add")
    text = operators.entry(op, Candidate(op.name, precision, source)).before
    assert ("#include <cuda_bf16.h>" in text) is included
    assert ("#define MSBENCH_WITHOUT_BF16" in text) is not included


def test_inputs_come_before_outputs_whatever_the_declaration_says(tmp_path: Path) -> None:
    swapped = "fields.update(arrays=(Array('y', ('N',), output=True), Array('x', ('N',))))"
    op = operators.load("double_it", write(tmp_path, swapped))
    assert "double_it(const scalar_t* x, scalar_t* y, float a, int64_t k, int64_t N" in operators.prototype(op)


# ------------------------------------------------------------------ new operators


def test_a_new_operator_loads_and_has_a_kernel(tmp_path: Path) -> None:
    written = operators.scaffold("my_first", tmp_path)
    assert [path.name for path in written] == ["spec.py", "naive.cu"]
    op = operators.load("my_first", tmp_path)
    [naive] = operators.versions(Task(op, Precision.BF16))
    assert "cudaError_t my_first(" in naive.source
    assert operators.heldout(op, 1)


def test_a_new_operator_overwrites_nothing(tmp_path: Path) -> None:
    operators.scaffold("my_first", tmp_path)
    spec = tmp_path / "my_first" / "spec.py"
    spec.write_text("mine")
    with pytest.raises(SpecError, match="exists and is left as it is"):
        operators.scaffold("my_first", tmp_path)
    assert spec.read_text() == "mine"


@pytest.mark.parametrize("name", ["", "two words", "a-b", "float", "cudaMalloc", "../up", "x_workspace", "stream"])
def test_a_new_operator_needs_a_name_that_c_takes(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match=r"OPERATOR.name"):
        operators.scaffold(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "my_first").write_text("")
    with pytest.raises(SpecError, match="my_first can't be written"):
        operators.scaffold("my_first", tmp_path)


def test_a_task_that_matrix_units_can_do_is_bound_by_its_own_type() -> None:
    matrix_mul, softmax = operators.load("matrix_mul"), operators.load("softmax")
    assert [matrix_mul.compute_in(p) for p in Precision] == ["fp32", "bf16"]
    assert [softmax.compute_in(p) for p in Precision] == ["fp32", "fp32"]


def test_operators_compare_by_content_and_not_by_place(tmp_path: Path) -> None:
    op = operators.load("vector_add")
    assert isinstance(op, Operator)
    assert dataclasses.replace(op, folder=str(tmp_path)) == op
