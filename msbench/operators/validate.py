"""Validates an operator's spec, field by field, before anything runs on it.

A spec may be a stranger's file: nothing is assumed about the types of what it declares.
"""

from __future__ import annotations

import keyword
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msbench.errors import SpecError
from msbench.operators.cases import noticeable
from msbench.operators.shapes import elements, shapes
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Precision, Scalar, Split

_IDENTIFIER = re.compile(r"[A-Za-z]\w*", re.ASCII)
_WORD = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_DTYPES = ("T", "f32", "i32")
_CTYPES = ("float", "int64_t")
_COMPUTE = ("precision", "fp32", "tf32", "bf16", "fp64")

_C_WORDS = frozenset(
    word
    for line in (
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl",
        "const const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit",
        "export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq",
        "nullptr operator or or_eq private protected public register reinterpret_cast restrict return short signed",
        "sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef",
        "typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq NULL main scalar_t",
        "threadIdx blockIdx blockDim gridDim warpSize",
    )
    for word in line.split()
)
_NAMED = "arrays, scalars and dims"
_PARAMETERS = frozenset({"workspace", "workspace_bytes", "stream"})
_PYTHON_ARGUMENTS = frozenset({"xp", "u", "out", "rng", "distribution", "itemsize", "self"})


def validate(op: Operator, folder: str) -> None:
    """Checks every field of ``op``, which was found in a folder of the name ``folder``.

    Raises:
        SpecError: at the first fault; names the field and says what it should be.
    """
    try:
        _names(op, folder)
        for part in (_texts, _members, _identifiers, _callables, _distributions, _cases, _counts):
            part(op)
    except SpecError:
        raise
    except Exception as error:  # a field that is not even there, or whose own methods fail
        raise SpecError(f"OPERATOR can't be read: {type(error).__name__}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """What an exception of a stranger's says, in one line; its own words may fail too."""
    try:
        return " ".join(str(error).split())[:500]
    except Exception:
        return "(it can't say why)"


def _require(condition: bool, field: str, problem: str) -> None:
    if not condition:
        raise SpecError(f"OPERATOR.{field}: {problem}")


def check_name(name: Any) -> None:
    """Whether an operator can have this name.

    Raises:
        SpecError: it is no C identifier, or is taken by the languages, CUDA or msbench.
    """
    _identifier("name", name)
    free = not name.startswith("cuda") and not name.endswith("_workspace") and name not in _PARAMETERS
    _require(free, "name", f"{name!r} would collide with names that msbench or CUDA declares.")


def _names(op: Operator, folder: str) -> None:
    _require(op.name == folder, "name", f"{op.name!r} is in a folder named {folder!r}; the two have to be the same.")
    check_name(op.name)


def _texts(op: Operator) -> None:
    for field in ("title", "scenario", "definition"):
        text = getattr(op, field)
        _require(isinstance(text, str) and bool(text.strip()), field, f"{text!r} is no text.")
    for field in ("bound_note", "library_note", "bytes_note", "flops_note", "paper_name"):
        _require(isinstance(getattr(op, field), str), field, f"{getattr(op, field)!r} is no string.")
    _require(op.compute in _COMPUTE, "compute", f"{op.compute!r} is none of {', '.join(_COMPUTE)}.")
    _require(isinstance(op.deterministic, bool), "deterministic", f"{op.deterministic!r} is neither True nor False.")
    _tuple("precisions", op.precisions, Precision)
    _require(bool(op.precisions), "precisions", "there is none.")


def _members(op: Operator) -> None:
    _tuple("dims", op.dims, Dim)
    _tuple("arrays", op.arrays, Array)
    _tuple("scalars", op.scalars, Scalar)
    _require(bool(op.dims), "dims", "there is none. Declare one: dims=(Dim('N', 1, 2**20),).")
    for dim in op.dims:
        good = _is_int(dim.low) and _is_int(dim.high) and 0 <= dim.low <= dim.high < 2**31
        _require(good, "dims", f"{dim.name}: {dim.low!r} to {dim.high!r} is no range of integers within 0 to 2^31-1.")
    for scalar in op.scalars:
        known = scalar.ctype in _CTYPES
        _require(known, "scalars", f"{scalar.name}: ctype {scalar.ctype!r} is none of {', '.join(_CTYPES)}.")
        _scalar_value("scalars", scalar, scalar.value)
        _scalar_range(scalar)
    for array in op.arrays:
        known = array.dtype in _DTYPES
        _require(known, "arrays", f"{array.name}: dtype {array.dtype!r} is none of {', '.join(_DTYPES)}.")
        _tuple("arrays", array.shape, str, f"{array.name}: shape")
        _require(isinstance(array.output, bool), "arrays", f"{array.name}: output is {array.output!r}, no bool.")
    _require(bool(op.outputs), "arrays", "no array is an output. Declare one: Array('y', ('N',), output=True).")


def _identifiers(op: Operator) -> None:
    names = {"dims": [d.name for d in op.dims], "arrays": [a.name for a in op.arrays]}
    names["scalars"] = [s.name for s in op.scalars]
    for field, given in names.items():
        for name in given:
            _identifier(field, name)
    every = [name for given in names.values() for name in given]
    for name, count in Counter(every).items():
        _require(count == 1, _NAMED, f"the name {name!r} is used {count} times.")
        _require(name not in _PARAMETERS, _NAMED, f"{name!r} is a parameter of every launcher.")
        _require(name != op.name, _NAMED, f"{name!r} is the operator's own name.")
    arguments = [*(a.name for a in op.inputs_), *(s.name for s in op.scalars), *(d.name for d in op.dims)]
    for name in arguments:
        free = name not in _PYTHON_ARGUMENTS
        _require(free, _NAMED, f"{name!r} is an argument of reference, bound or inputs already.")


def _identifier(field: str, name: Any) -> None:
    good = isinstance(name, str) and _IDENTIFIER.fullmatch(name) is not None and "__" not in name
    _require(good, field, f"{name!r} is no C identifier (letters, digits and single underscores, a letter first).")
    _require(name not in _C_WORDS, field, f"{name!r} is a word of CUDA C++.")
    _require(not keyword.iskeyword(name), field, f"{name!r} is a word of Python, and arrays are passed by keyword.")
    _require(not name.startswith("msbench_"), field, f"{name!r}: names that start with msbench_ are msbench's.")


def _callables(op: Operator) -> None:
    for field in ("reference", "bound", "nbytes", "flops"):
        value = getattr(op, field)
        _require(callable(value), field, f"{value!r} is not callable.")
    for field in ("inputs", "valid", "gathered"):
        value = getattr(op, field)
        _require(value is None or callable(value), field, f"{value!r} is neither callable nor None.")
    drawn = [a.name for a in op.inputs_ if a.dtype == "i32"]
    _require(op.inputs is not None or not drawn, "inputs", f"is needed: nothing says how to draw the indices {drawn}.")


def _distributions(op: Operator) -> None:
    _tuple("distributions", op.distributions, str)
    _unique("distributions", op.distributions)
    _require("uniform" in op.distributions, "distributions", "'uniform' is missing; it is what times are measured on.")
    for name in op.distributions:
        _require(_WORD.fullmatch(name) is not None, "distributions", f"{name!r} is no lower-case word.")
        known = op.inputs is not None or name in STANDARD_DISTRIBUTIONS
        standard = ", ".join(STANDARD_DISTRIBUTIONS)
        _require(known, "distributions", f"{name!r} is none of {standard}, and there is no `inputs` to draw it.")
    known = op.outliers in (*op.distributions, Operator.outliers)
    _require(known, "outliers", f"{op.outliers!r} is none of {', '.join(op.distributions)}.")


def _cases(op: Operator) -> None:
    _tuple("cases", op.cases, Case)
    _require(bool(op.cases), "cases", "there is none.")
    for case in op.cases:
        _pairs("cases", case.dims, "dims")
        _pairs("cases", case.scalars, "scalars")
        _case(op, case)
    _unique("cases", [case.id for case in op.cases])


def _case(op: Operator, case: Case) -> None:
    expected = [d.name for d in op.dims]
    given = [name for name, _ in case.dims]
    _require(given == expected, "cases", f"{case.id}: has the dimensions {given}, not {expected} in this order.")
    for dim, (_, size) in zip(op.dims, case.dims, strict=True):
        good = _is_int(size) and dim.low <= size <= dim.high
        _require(good, "cases", f"{case.id}: {dim.name} is no integer of its range {dim.low} to {dim.high}.")
    _require(isinstance(case.split, Split), "cases", f"{case.id}: split {case.split!r} is no msbench.spec.Split.")
    known = case.distribution in op.distributions
    _require(known, "cases", f"{case.id}: distribution {case.distribution!r} is none of {', '.join(op.distributions)}.")
    scalars = {s.name: s for s in op.scalars}
    for name, value in case.scalars:
        _require(name in scalars, "cases", f"{case.id}: there is no scalar {name!r}.")
        _scalar_value("cases", scalars[name], value)
    try:
        shapes(op, dict(case.dims))
    except SpecError as problem:
        raise SpecError(f"OPERATOR.arrays: {problem}") from None


def _counts(op: Operator) -> None:
    """nbytes, gathered, flops and valid are called once: a wrong signature shows here and not in the middle of a measurement."""
    case = min(op.cases, key=lambda c: elements(op, dict(c.dims)))
    dims = dict(case.dims)
    calls = {"nbytes": {"itemsize": 4, **dims}, "gathered": {"itemsize": 4, **dims}, "flops": dims, "valid": dims}
    for field, arguments in calls.items():
        function = getattr(op, field)
        if function is None:
            continue
        try:
            value = function(**arguments)
        except Exception as error:
            raise SpecError(f"OPERATOR.{field}: called with {arguments}: {type(error).__name__}: {error}") from error
        if field == "valid":
            _require(isinstance(value, bool), field, f"gave {value!r} for {case.id}, neither True nor False.")
        else:
            least = 1 if field == "nbytes" else 0
            good = _is_int(value) and value >= least
            _require(good, field, f"gave {value!r} for {case.id}, not an integer ≥ {least}.")


def _tuple(field: str, value: Any, kind: type, what: str = "") -> None:
    lead = f"{what} " if what else ""
    _require(isinstance(value, tuple), field, f"{lead}{value!r} is no tuple. (One element needs a comma: (x,).)")
    for member in value:
        _require(isinstance(member, kind), field, f"{lead}{member!r} is no {kind.__name__}.")


def _pairs(field: str, value: Any, what: str) -> None:
    good = isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    )
    _require(good, field, f"{what} {value!r} is not written as (('N', 1024), …).")
    _unique(field, [name for name, _ in value])


def _unique(field: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    _require(not twice, field, f"{', '.join(map(repr, twice))} given more than once.")


def _scalar_value(field: str, scalar: Scalar, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    _require(number, field, f"{scalar.name}: {value!r} is no finite number.")
    if scalar.ctype == "int64_t":
        whole = isinstance(value, int) and abs(value) <= 2**53
        _require(whole, field, f"{scalar.name}: {value!r} is no integer that a double holds (int64_t travels as one).")


def _scalar_range(scalar: Scalar) -> None:
    name, low, high, step = scalar.name, scalar.low, scalar.high, scalar.step
    if low is None or high is None:
        alone = low is not None or high is not None or step is not None
        _require(
            not alone, "scalars", f"{name}: low and high are given together or not at all, and step with them only."
        )
        return
    for end in (low, high):
        _scalar_value("scalars", scalar, end)
    _require(low < high, "scalars", f"{name}: {low!r} to {high!r} is no range.")
    differs = noticeable(scalar, low) or noticeable(scalar, high)
    _require(differs, "scalars", f"{name}: no value from {low!r} to {high!r} differs from {scalar.value!r} by a tenth.")
    if step is not None:
        _scalar_value("scalars", scalar, step)
        _require(step > 0, "scalars", f"{name}: the step {step!r} is not positive.")
        whole = all((end / step).is_integer() for end in (low, high))
        _require(whole, "scalars", f"{name}: {low!r} and {high!r} are no multiples of the step {step!r}.")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
