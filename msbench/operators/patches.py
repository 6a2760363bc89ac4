"""What a patch of an array is made of, and its elements: from random bits, on NumPy's and CuPy's arrays the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

FEW = 4
"""How many elements of a patch of kind ``few`` are not zero, on average: a sum of so few products has no room for inexact ones."""


class Kind(NamedTuple):
    """Of what a patch is made: ``scale``·u + ``offset`` for u in [-1, 1), a multiple of 1/``levels``.

    A ``share`` of its elements is ``a`` or ``b`` instead, as often one as the other.
    """

    scale: float = 1.0
    offset: float = 0.0
    levels: float = 2.0**23
    share: float = 0.0
    a: float = 0.0
    b: float = 0.0


INFINITY = float("inf")
NAN = float("nan")

KINDS: MappingProxyType[str, Kind] = MappingProxyType(
    {
        "uniform": Kind(),
        "few": Kind(a=-0.0),  # its share follows from the patch's size
        "spiked": Kind(share=1 / 64, a=256.0, b=-256.0),
        "ties": Kind(scale=4.0, levels=4.0),
        "zeros": Kind(share=1.0, a=0.0, b=-0.0),
        # Whole packets and warps of what a formula for small, middling or large numbers alone takes.
        "millionths": Kind(scale=2.0**-19),
        "thousandths": Kind(scale=2.0**-10),
        "hundredths": Kind(scale=2.0**-6),
        "quarters": Kind(scale=2.0**-2),
        "units": Kind(scale=3.0, offset=5.0),
        "minus_units": Kind(scale=3.0, offset=-5.0),
        "tens": Kind(scale=11.0, offset=19.0),
        "minus_tens": Kind(scale=11.0, offset=-19.0),
        "negative": Kind(scale=35.0, offset=-65.0),
        # From where a logistic function is nearly 1 to where exp overflows in fp32.
        "positive": Kind(scale=35.0, offset=65.0),
        "brim": Kind(scale=4.0, offset=84.0),  # exp of it is finite in fp32, and not the sum of some
        "deep": Kind(scale=8.0, offset=-320.0),  # exp of it is zero in fp32
        # Below what stands for minus infinity here and there: -10⁴, -65504.
        "abyss": Kind(scale=2.0**10, offset=-(2.0**17)),
        "bottom": Kind(scale=2.0**125, offset=-(2.0**126)),  # the same: -10³⁰
        "large": Kind(scale=2.0**40),
        "vast": Kind(scale=2.0**86),
        "tiny": Kind(scale=2.0**-56),
        "subnormal": Kind(),  # below 2^-127
        "gaps": Kind(share=3 / 4, a=-INFINITY, b=-INFINITY),
        "lowest": Kind(share=1.0, a=-INFINITY, b=-INFINITY),
        "masked": Kind(a=-INFINITY, b=-INFINITY),  # its first or its last elements, as many as are drawn
        "lone": Kind(a=INFINITY, b=-INFINITY),  # its share, too; every other time the last is infinite
        "infinities": Kind(share=1 / 16, a=INFINITY, b=-INFINITY),
        "nan": Kind(share=1 / 16, a=NAN, b=-NAN),
    }
)


@dataclass(frozen=True)
class Cut:
    """How an array is cut: into ``count`` patches of ``size`` elements.

    It counts as rows of ``width`` elements. ``high`` rows of ``wide`` elements are a patch, ``across`` of them lie side by side.
    """

    count: int
    width: int
    high: int
    wide: int
    across: int

    @property
    def size(self) -> int:
        """Elements of a patch."""
        return self.high * self.wide

    def of(self, index: Any) -> Any:
        """The patches of elements, by their flat indices."""
        if self._are_rows:
            return index // self.width
        column = index % self.width
        return index // (self.width * self.high) * self.across + (column if self.wide == 1 else column // self.wide)

    def place(self, index: Any) -> Any:
        """Their places within these."""
        if self._are_rows:
            return index % self.width
        row = index // self.width % self.high
        return row if self.wide == 1 else row * self.wide + index % self.width % self.wide

    @property
    def _are_rows(self) -> bool:
        """What most are; divisions are slow."""
        return self.high == self.across == 1


class Table(NamedTuple):
    """Of each kind: what ``Kind`` has, as arrays, and below what its lowest 20 bits make an element ``a`` or ``b``.

    ``lone``, ``masked`` and ``subnormal`` are these kinds' places in it, -1 where they are not among them.
    """

    scale: Any
    offset: Any
    levels: Any
    limit: Any
    others: Any
    lone: int
    masked: int
    subnormal: int


def table(xp: Any, kinds: tuple[str, ...], size: int) -> Table:
    """That of some kinds, for patches of ``size`` elements."""
    rows = [KINDS[kind] for kind in kinds]
    scale, offset, levels = (
        xp.asarray([getattr(row, field) for row in rows]) for field in ("scale", "offset", "levels")
    )
    limit = xp.asarray([int(_share(kind, size) * 2**20) for kind in kinds], dtype="uint64")
    others = xp.asarray([value for row in rows for value in (row.a, row.b)], dtype="float32")
    lone, masked, subnormal = (kinds.index(name) if name in kinds else -1 for name in ("lone", "masked", "subnormal"))
    return Table(scale, offset, levels, limit, others, lone, masked, subnormal)


def _share(kind: str, size: int) -> float:
    """Of the elements of a patch of ``size``, how many are not drawn but given."""
    match kind:
        case "few":
            return max(0.0, 1 - FEW / size)
        case "lone":
            return 1 / (2 * size)
    return KINDS[kind].share


@dataclass(frozen=True)
class Patches:
    """An array's: of which kind in the ``table`` each is (int32). The first ``ends`` elements of a masked one are masked, or, where its ``sides`` are 1, the others."""

    cut: Cut
    kinds: Any
    table: Table
    ends: Any
    sides: Any


def values(xp: Any, patches: Patches, bits: Any, index: Any) -> Any:
    """Elements, float32, from their random bits (uint64) and their flat indices (int64)."""
    cut, t = patches.cut, patches.table
    if xp.__name__ != "numpy":
        which = t.lone, t.masked, t.subnormal
        shape = cut.width, cut.high, cut.wide, cut.across
        return _at_once(xp)(bits, index, patches.kinds, *t[:5], patches.ends, patches.sides, *shape, *which)
    patch = cut.of(index)
    kind = patches.kinds[patch]
    steps = xp.floor(((bits >> 40) * 2.0**-23 - 1) * t.levels[kind])
    number = (steps / t.levels[kind] * t.scale[kind] + t.offset[kind]).astype("float32")
    if t.subnormal >= 0:
        tiniest = (bits >> 42) + ((bits >> 41) & 1) * 2**31
        number = xp.where(kind == t.subnormal, tiniest.astype("uint32").view("float32"), number)
    given = (bits & (2**20 - 1)) < t.limit[kind]
    if t.lone >= 0:
        given |= (kind == t.lone) & (cut.place(index) == cut.size - 1) & ((bits >> 21) & 1).astype("bool")
    if t.masked >= 0:
        given |= (kind == t.masked) & ((cut.place(index) < patches.ends[patch]) == (patches.sides[patch] == 0))
    return xp.where(given, t.others[2 * kind + ((bits >> 20) & 1).astype("int32")], number)


@cache
def _at_once(xp: Any) -> Any:
    """The same in one kernel: CuPy else compiles sixty. Each operation is rounded for itself, and subnormal numbers are made as bits."""
    return xp.ElementwiseKernel(
        "uint64 bits, int64 index, raw int32 kinds, raw float64 scale, raw float64 offset, raw float64 levels, raw uint64 limit, "
        "raw float32 others, raw int32 ends, raw int32 sides, int64 width, int64 high, int64 wide, int64 across, "
        "int64 lone, int64 masked, int64 subnormal",
        "float32 y",
        f"""
        const long long row = index / width, column = index % width;
        const long long patch = row / high * across + column / wide, place = row % high * wide + column % wide;
        const int kind = kinds[patch];
        const double unit = __dsub_rn(__dmul_rn(__ull2double_rn(bits >> 40), {2.0**-23}), 1.0);
        const double step = floor(__dmul_rn(unit, levels[kind]));
        y = __double2float_rn(__dadd_rn(__dmul_rn(__ddiv_rn(step, levels[kind]), scale[kind]), offset[kind]));
        if (kind == subnormal) y = __uint_as_float((unsigned int)((bits >> 42) + ((bits >> 41 & 1) << 31)));
        bool given = (bits & 0xfffff) < limit[kind];
        given |= kind == lone && place == high * wide - 1 && (bits >> 21 & 1);
        if (kind == masked) given |= (place < ends[patch]) == (sides[patch] == 0);
        if (given) y = others[2 * kind + (int)(bits >> 20 & 1)];
        """,
        "msbench_patches",
    )
