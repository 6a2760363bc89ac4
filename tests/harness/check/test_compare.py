"""Every element counts; NaN and infinity must be where they belong; overflow is right at a format's limit only."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench import operators
from msbench.bounds import EITHER_ZERO
from msbench.errors import SpecError
from msbench.harness.check import compare as module
from msbench.harness.check.compare import compare, expected, prepare
from msbench.harness.check.wide import wide
from msbench.harness.inputs import Draw, generate
from msbench.spec import Array, Case, Dim, Precision, Split, Task
from tests import factories
from tests.harness.fakes import OPERATOR, case

BF16 = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
F32_MAX = float(np.finfo(np.float32).max)


def one(reference: float, bound: float, got: float, dtype: Any = np.float32) -> bool:
    """Whether a single element is right."""
    with np.errstate(over="ignore"):
        found = compare(np.array([reference]), np.array([bound]), np.array([got], dtype=dtype), np)
    assert (found.wrong == 0) == (found.worst <= 1)
    return found.wrong == 0


@pytest.mark.parametrize(
    ("reference", "bound", "got", "right"),
    [
        (1.0, 0.25, 1.25, True),
        (1.0, 0.25, 1.2500001, False),
        (1.0, 0.0, 1.0, True),
        (1.0, 0.0, 1.0000001, False),
        (0.0, 0.0, -0.0, False),
        (-0.0, 0.0, -0.0, True),
        (-0.0, EITHER_ZERO, 0.0, True),
        (0.0, EITHER_ZERO, 2.0**-149, False),
        (2.0**-149, 0.0, 0.0, False),
        (NAN, 1.0, NAN, True),
        (NAN, NAN, NAN, True),
        (NAN, INF, 0.0, False),
        (NAN, 1.0, INF, False),
        (INF, 0.0, INF, True),
        (INF, NAN, INF, True),
        (INF, 1.0, -INF, False),
        (INF, INF, 3.0, False),
        (INF, 1.0, NAN, False),
        (-INF, 1.0, -INF, True),
        (1.0, 1e30, NAN, False),
        (1.0, 1e30, INF, False),
        (1.0, INF, -5.0, True),
        (1.0, INF, NAN, False),
    ],
)
def test_finite_and_not(reference: float, bound: float, got: float, right: bool) -> None:
    assert one(reference, bound, got) is right


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_overflow(dtype: Any) -> None:
    """Rounding to nearest gives infinity from half a unit in the last place above the largest finite number."""
    largest = float(ml_dtypes.finfo(dtype).max)
    limit = largest + (largest - float(np.nextafter(dtype(largest), dtype(0)))) / 2
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(limit).astype(dtype))
        assert not np.isinf(np.float64(limit * (1 - 2.0**-20)).astype(dtype))
    assert one(limit, 0.0, INF, dtype)
    assert one(-limit, 0.0, -INF, dtype)
    assert one(1e300, 0.0, INF, dtype)
    assert not one(limit, 0.0, -INF, dtype)
    assert not one(1e300, 1e290, largest, dtype)  # saturated: no rounding gives that
    assert one(limit, limit * 2.0**-8, largest, dtype)  # within the bound
    assert not one(limit * 0.999, 0.0, INF, dtype)
    assert one(limit * 0.999, limit * 0.002, INF, dtype)  # a right kernel may round up to it
    assert not one(limit * 0.9, limit * 0.01, INF, dtype)


def test_integers_are_compared_exactly() -> None:
    reference = np.array([2**31 - 1, -(2**31), 0])
    good = reference.astype(np.int32)
    assert compare(reference, np.zeros(1), good, np).wrong == 0
    found = compare(reference, np.zeros(1), good + np.array([0, 1, 0], np.int32), np)
    assert (found.wrong, found.index, found.expected, found.got) == (1, (1,), -(2.0**31), -(2.0**31) + 1)


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    chunk=st.integers(1, 100),
    data=st.data(),
)
def test_exactly_the_wrong_elements_are_counted(shape: tuple[int, int], chunk: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    reference = rng.uniform(-1, 1, shape)
    bound = np.full(shape, 0.5)
    got = (reference + rng.uniform(-0.4, 0.4, shape)).astype(np.float32)
    size = got.size
    wrong = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    for number, at in enumerate(wrong):
        got.flat[at] = (NAN, 7.0, INF, -9.0)[number % 4]
    before = module._CHUNK
    module._CHUNK = chunk
    try:
        found = compare(reference, bound, got, np)
    finally:
        module._CHUNK = before
    assert (found.total, found.wrong) == (size, len(wrong))
    if wrong:
        assert found.index == tuple(int(i) for i in np.unravel_index(wrong[0], shape))
        assert found.worst > 1
        assert found.bound == 0.5
    else:
        assert found.index is None
        assert 0 <= found.worst <= 0.8001
        assert found.max_abs_error == pytest.approx(2 * found.worst * 0.25)


def test_one_bound_for_all_and_one_each_agree() -> None:
    reference, got = np.zeros(10), np.linspace(0, 1, 10, dtype=np.float32)
    single = compare(reference, np.array([0.5]), got, np)
    assert single == compare(reference, np.full(10, 0.5), got, np)
    assert single.wrong == 5
    assert single.worst == pytest.approx(2.0)


def test_poisoned_elements_are_counted() -> None:
    got = np.array([1.0, 0, 0, 3.0], dtype=BF16)
    got[1:3].view(np.uint8)[...] = 0xFF
    found = compare(np.ones(4), np.zeros(1), got, np, poison=0xFF)
    assert (found.wrong, found.poisoned, found.index) == (3, 2, (1,))


@pytest.mark.parametrize("bound", [NAN, -1.0])
def test_a_senseless_bound_is_the_specs_fault(bound: float) -> None:
    """And is told with the first place, which need not be the first element."""
    bounds = np.full((2, 3), 0.5)
    bounds[1, 1:] = bound
    with pytest.raises(SpecError, match=rf"mine: it is {bound:.3g} at element \[1, 1\], where the reference is finite"):
        compare(np.ones((2, 3)), bounds, np.ones((2, 3), np.float32), np, bound_place="mine")


def test_empty_arrays_are_right() -> None:
    assert compare(np.zeros((0, 3)), np.zeros(1), np.zeros((0, 3), np.float32), np).wrong == 0


# ------------------------------------------------------------------ expected values


@pytest.mark.parametrize("precision", list(Precision))
def test_references_are_float64_of_the_rounded_inputs(precision: Precision) -> None:
    prepared = prepare(Task(OPERATOR, precision).at(case(50)), 3, np)
    inputs = generate(Task(OPERATOR, precision).at(case(50)), 3, np)
    assert {n: a.tobytes() for n, a in prepared.inputs.items()} == {n: a.tobytes() for n, a in inputs.items()}
    x = inputs["x"].astype(np.float64)
    assert prepared.references["y"].dtype == np.float64
    np.testing.assert_array_equal(prepared.references["y"], 3.0 * x[inputs["index"]])
    assert prepared.bounds["rank"].size == 1
    assert prepared.bounds["y"].max() < 20 * precision.unit_roundoff


def test_a_bound_is_broadcast_to_its_output() -> None:
    rows = replace(OPERATOR, bound=lambda xp, u, out, **_: {"y": xp.ones((1, 50))[0], "rank": 0.0})
    inputs = generate(Task(OPERATOR, Precision.FP32).at(case(50)), 3, np)
    _, bounds = expected(Task(rows, Precision.FP32).at(case(50)), inputs, np)
    assert bounds["y"].shape == (50,)


IDENTITY = factories.operator("identity")  # one output
GIVEN: dict[str, Any] = {
    "nothing": None,
    "a number": 3.0,
    "a word": "x",
    "too short": np.ones(49),
    "too long": np.ones(51),
    "more dimensions": np.ones((2, 50)),
    "ragged": [[1.0], [1.0, 2.0]],
    "float32": np.ones(50, np.float32),
    "bfloat16": np.ones(50, BF16),
    "integers": np.ones(50, np.int64),
    "truths": np.ones(50, bool),
    "complex": np.ones(50, complex),
    "a wrong name": {"z": np.ones(50)},
    "no text for a name": {1: np.ones(50)},
    "a dict too many": {"y": {"y": np.ones(50)}},
    "right": np.ones(50),
    "a list": [1.0] * 50,
    "by name": {"y": np.ones(50)},
}
NO_REFERENCE = GIVEN.keys() - {"right", "a list", "by name"}
NO_BOUND = NO_REFERENCE - {"a number", "float32", "integers"}


def identity(**functions: Any) -> None:
    """Ask for what is expected of an operator with these functions."""
    op = replace(IDENTITY, folder="/ops/identity", **functions)
    expected(Task(op, Precision.FP32).at(case(50)), generate(Task(op, Precision.FP32).at(case(50)), 3, np), np)


@pytest.mark.parametrize("what", ["reference", "bound"])
@pytest.mark.parametrize("given", GIVEN)
def test_what_a_spec_returns_is_taken_or_refused_in_one_sentence(what: str, given: str) -> None:
    refused = given in (NO_REFERENCE if what == "reference" else NO_BOUND)
    with (
        pytest.raises(SpecError, match=rf"^identity: {what} at N=50 \(/ops/identity/spec\.py\): .+; return .+\.$")
        if refused
        else nullcontext()
    ):
        identity(
            **{what: lambda *_, **__: GIVEN[given], **({} if what == "bound" else {"bound": lambda *_, **__: 1.0})}
        )


def test_a_truth_that_was_rounded_is_none() -> None:
    with pytest.raises(SpecError, match=r"y is float32; return float64, as the inputs are\.$"):
        identity(reference=lambda xp, x, factor, N: (factor * x).astype("float32"))


@given(given_shape=st.lists(st.integers(0, 4), max_size=3), shape=st.tuples(st.integers(0, 4), st.integers(0, 4)))
def test_a_bound_is_for_all_elements_or_broadcasts_to_them(given_shape: list[int], shape: tuple[int, int]) -> None:
    op = replace(
        IDENTITY,
        dims=(Dim("M", 0, 9), Dim("N", 0, 9)),
        arrays=(Array("x", ("M", "N")), Array("y", ("M", "N"), output=True)),
        reference=lambda xp, x, **_: x,
        bound=lambda xp, u, out, **_: xp.ones(given_shape),
    )
    here = Case((("M", shape[0]), ("N", shape[1])), Split.HELDOUT)
    inputs = {"x": np.zeros(shape, np.float32)}
    try:
        fits = np.broadcast_to(np.ones(given_shape), shape).shape == shape
    except ValueError:
        fits = False
    if fits or np.ones(given_shape).size == 1:
        _, bounds = expected(Task(op, Precision.FP32).at(here), inputs, np)
        assert bounds["y"].size == 1 or bounds["y"].shape == shape
    else:
        with pytest.raises(SpecError, match="return one bound for all elements"):
            expected(Task(op, Precision.FP32).at(here), inputs, np)


def test_what_a_spec_forgets_is_said() -> None:
    inputs = generate(Task(OPERATOR, Precision.FP32).at(case(50)), 3, np)
    for returned, says in ((np.ones(50), "it returned ndarray; return a dict with y, rank"),
                           ({"y": np.ones(50)}, "it returned a dict with y; return a dict with y, rank"),
                           ({"y": np.ones(50), "rank": np.ones(50, bool)}, "rank is bool; return an array of real numbers"),
                           ({"y": np.ones(50), "rank": np.ones(50, "float32")}, "rank is float32; return float64 or integers")):  # fmt: skip
        forgetful = replace(OPERATOR, reference=lambda xp, returned=returned, **_: returned)
        with pytest.raises(SpecError, match=says):
            expected(Task(forgetful, Precision.FP32).at(case(50)), inputs, np)


def test_a_bound_gets_what_else_the_reference_returned() -> None:
    problem = Task(OPERATOR, Precision.FP32).at(case(50))
    inputs = generate(problem, 3, np)

    def reference(xp: Any, **arguments: Any) -> dict[str, Any]:
        return {**OPERATOR.reference(xp, **arguments), "half a bound": np.full(50, 0.25)}

    def bound(xp: Any, u: float, out: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        return {"y": 2 * out["half a bound"], "rank": 0 * out["rank"]}

    shared = Task(replace(OPERATOR, reference=reference, bound=bound), Precision.FP32).at(case(50))
    references, bounds = expected(shared, inputs, np)
    assert list(references) == ["y", "rank"]
    assert (bounds["y"] == 0.5).all()


@pytest.mark.parametrize(
    ("function", "line", "says"),
    [
        (
            "def reference(xp, x, a, N):\n    y = a * x\n    return y + nothing",
            3,
            "reference at N=8 ({}:{}): NameError",
        ),
        ("def bound(xp, u, out, x, a, N):\n    return bounds.rounded(xp, u, None, 1.0)", 2, "bound at N=8 ({}:{}): "),
        ("def inputs(rng, distribution, a, N):\n    return 1 / 0", 2, "{}:{}: inputs('uniform') of N=8: ZeroDivision"),
    ],
)
def test_the_line_of_the_spec_is_named(tmp_path: Path, function: str, line: int, says: str) -> None:
    """Of the spec, although a function of msbench's own, which it called, may have been the one that raised."""
    operators.scaffold("mine", tmp_path)
    spec = tmp_path / "mine" / "spec.py"
    name = function[4 : function.index("(")]
    before, after = spec.read_text(encoding="utf-8").split("OPERATOR = Operator(")
    after = after if name != "inputs" else f"\n    inputs=inputs,{after}"
    spec.write_text(f"{before}{function}\n\n\nOPERATOR = Operator({after}", encoding="utf-8")
    op = operators.load("mine", tmp_path)
    with pytest.raises(SpecError, match=re.escape(says.format(spec, before.count("\n") + line))):
        prepare(Task(op, Precision.FP32).at(case(8)), 0, np)


@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_a_glance_agrees_with_the_comparison_wherever_nothing_is_wrong(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msbench.harness.check.compare._CHUNK", chunk)
    reference = np.linspace(-3, 5, 11)
    for bound in (np.full(11, 0.25), np.array([0.25])):
        got = (reference + np.linspace(-0.2, 0.24, 11)).astype(np.float32)
        found = compare(reference, bound, got, np)
        within, worst, max_abs_error = module.glance(reference, bound, got, np)
        assert (within, worst, max_abs_error) == (1, found.worst, found.max_abs_error)
        assert found.wrong == 0
        for value in (np.nan, np.inf, 9.0):
            for index in (0, 10):
                other = got.copy()
                other[index] = value
                assert module.glance(reference, bound, other, np)[0] == 0
    assert module.glance(np.full(11, np.nan), np.zeros(1), np.full(11, np.nan, np.float32), np)[0] == 0
    assert module.glance(np.zeros(11), np.zeros(1), np.zeros(11, np.float32), np).tolist() == [1, 0, 0]
    assert module.glance(np.zeros(0), np.zeros(1), np.zeros(0, np.float32), np).tolist() == [1, 0, 0]


bits = st.lists(
    st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 2**31, 1, 2**31 + 1, 2**23, 0x7F800000, 0x7FC00000])),
    min_size=1,
    max_size=9,
)


@given(bits, bits)
def test_where_the_bound_is_zero_every_bit_counts_but_a_nan_s(mine: list[int], theirs: list[int]) -> None:
    count = min(len(mine), len(theirs))
    a, b = (np.array(some[:count], np.uint32).view(np.float32) for some in (mine, theirs))
    different = (a.view(np.uint32) != b.view(np.uint32)) & ~(np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        assert compare(wide(a, np), np.zeros(1), b, np).wrong == different.sum()


@pytest.mark.gpu
@given(bits, bits, st.sampled_from([0.0, 2.0**-30, 1e30]))
def test_a_gpu_judges_alike(mine: list[int], theirs: list[int], bound: float) -> None:
    import cupy

    count = min(len(mine), len(theirs))
    a, b = (np.array(some[:count], np.uint32).view(np.float32) for some in (mine, theirs))
    with np.errstate(invalid="ignore"):  # signalling NaN
        reference = wide(a, np)
        here = compare(reference, np.full(1, bound), b, np)
    there = compare(cupy.asarray(reference), cupy.full(1, bound), cupy.asarray(b), cupy)
    np.testing.assert_equal(asdict(there), asdict(here))  # where two NaN are equal


@pytest.mark.gpu
def test_subnormal_numbers_stay_what_they_are_on_a_gpu() -> None:
    import cupy

    raw = np.array([0, 1, 2**23 - 1, 2**23, 0x3F800000, 0x7F800000, 0x7FC00000], np.uint32)
    raw = np.concatenate([raw, raw | 2**31])
    narrow = (raw >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    for array in (raw.view(np.float32), narrow):
        np.testing.assert_array_equal(cupy.asnumpy(wide(cupy.asarray(array), cupy)), wide(array, np))
    draws = [Draw(xp, "subnormal").floats("x", (5000,), "patchwork") for xp in (np, cupy)]
    np.testing.assert_array_equal(draws[0].view(np.uint32), cupy.asnumpy(draws[1]).view(np.uint32))
