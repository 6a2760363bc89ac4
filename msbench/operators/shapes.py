"""Shape expressions: ``("rows + 1",)`` over an operator's dimensions, evaluated without ``eval``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from math import prod

from msbench.errors import SpecError
from msbench.spec import Array, Operator

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_CALLS: dict[str, Callable[..., int]] = {"max": max, "min": min}


def shape(array: Array, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The extents of ``array`` for these dimensions.

    Raises:
        SpecError: an expression does not parse, uses a name that is no dimension, or comes out negative.
    """
    return tuple(_extent(array.name, text, dims) for text in array.shape)


def shapes(op: Operator, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The extents of every array of ``op``, inputs first, in the order of the C prototype."""
    return {a.name: shape(a, dims) for a in (*op.inputs_, *op.outputs)}


def elements(op: Operator, dims: Mapping[str, int]) -> int:
    """How many elements all arrays of ``op`` have together."""
    return sum(prod(extents) for extents in shapes(op, dims).values())


def _extent(array: str, text: str, dims: Mapping[str, int]) -> int:
    try:
        value = _value(_parsed(text.strip()), dims)
    except SyntaxError:
        raise SpecError(f"shape of {array!r}: {text!r} is not an expression. Write one such as 'rows + 1'.") from None
    except ZeroDivisionError:
        raise SpecError(f"shape of {array!r}: {text!r} divides by zero at {dict(dims)}.") from None
    except _NotAllowed as problem:
        raise SpecError(
            f"shape of {array!r}: {text!r}: {problem}. "
            f"Shapes are integers, dimensions ({', '.join(dims) or 'none'}), + - * //, max() and min()."
        ) from None
    if value < 0:
        raise SpecError(f"shape of {array!r}: {text!r} is {value} at {dict(dims)}.")
    return value


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


class _NotAllowed(Exception):
    """An expression uses something that shapes don't have."""


def _value(node: ast.expr, dims: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            if name not in dims:
                raise _NotAllowed(f"{name!r} is no dimension")
            return dims[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, dims), _value(right, dims))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS and len(args) > 1:
            return _CALLS[name](*(_value(a, dims) for a in args))
    raise _NotAllowed(f"{ast.unparse(node)!r} is not allowed")
