"""Numbers as people read them: three significant digits, a narrow no-break space, a unit; a dash for what is absent."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from msbench.commands import typed
from msbench.statistics import proportion_interval

if TYPE_CHECKING:
    from msbench.figures.ratios import Ratio

SPACE = "\u202f"
"""Narrow no-break space: between a number and its unit, and between thousands."""
NONE = "–"
"""Stands where a figure does not exist."""

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)  # not strftime: it follows the machine's locale


def digits(value: float, significant: int = 3) -> str:
    """``value`` to so many significant digits, thousands apart: ``1.23``, ``12.3``, ``123``, ``1 230``."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{significant - 1}e}"
    rounded = float(f"{value:.{significant - 1}e}")
    places = max(0, significant - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{places}f}".replace(",", SPACE)


def time(ns: float | None) -> str:
    """Nanoseconds as ``421 ns``, ``4.21 µs``, ``1.23 ms`` or ``2.01 s``."""
    if ns is None:
        return NONE
    for limit, factor, unit in ((999.5, 1.0, "ns"), (999.5e3, 1e-3, "µs"), (999.5e6, 1e-6, "ms")):
        if abs(ns) < limit:
            return f"{digits(ns * factor)}{SPACE}{unit}"
    return f"{digits(ns * 1e-9)}{SPACE}s"


def time_interval(low: float, high: float) -> str:
    """The ends of an interval in nanoseconds, with the unit once if both have the same: ``4.84 to 4.89 µs``."""
    first, last = time(low), time(high)
    number, _, unit = first.partition(SPACE)
    return f"{number if last.endswith(SPACE + unit) else first} to {last}"


def ratio(value: float | None) -> str:
    """A speed-up: ``1.23×``, ``12.4×``, ``0.82×``."""
    if value is None:
        return NONE
    if 0.1 <= value < 9.995:
        return f"{value:.2f}×"
    return f"{digits(value)}×"


def interval(low: float | None, high: float | None) -> str:
    """The ends of a ratio's interval: ``1.21 to 1.25``."""
    if low is None or high is None:
        return NONE
    return f"{ratio(low)[:-1]} to {ratio(high)[:-1]}"


def ranged(value: Ratio | None) -> str:
    """A ratio with its interval: ``1.23× (1.21 to 1.25)``."""
    return NONE if value is None else f"{ratio(value.value)} ({interval(value.low, value.high)})"


def percent(fraction: float | None) -> str:
    """A fraction: ``87 %``, ``8.7 %``, ``0.34 %``."""
    if fraction is None:
        return NONE
    value = 100 * fraction
    return f"{value:.0f}{SPACE}%" if abs(value) >= 9.95 or value == 0 else f"{digits(value, 2)}{SPACE}%"


def ratio_exact(value: float) -> str:
    """A ratio that is held against another, to a hundredth of a percent: ``1.0150×``."""
    return f"{digits(value, 5)}×"


def ranged_exact(value: Ratio) -> str:
    """A ratio that is held against another, with its interval."""
    return f"{ratio_exact(value.value)} ({digits(value.low, 5)} to {digits(value.high, 5)})"


def inverse(ratio: Ratio) -> Ratio:
    """The other way round: what takes how many times as long."""
    return replace(ratio, value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)


def percent_range(value: Ratio) -> str:
    """The ends of a fraction's interval, in percent: ``86.4 to 88.9``."""
    return f"{digits(100 * value.low)} to {digits(100 * value.high)}"


def percent_ranged(value: Ratio | None) -> str:
    """A fraction with its interval: ``87 % (86.4 to 88.9)``."""
    if value is None:
        return NONE
    return f"{percent(value.value)} ({percent_range(value)})"


def share(fraction: float) -> str:
    """A fraction that is compared with a limit, so never rounded up to it: ``97.5 %``, ``100 %``, ``92.9 %``."""
    tenths = math.floor(1000 * fraction + 1e-9)
    return f"{tenths / 10:.1f}".removesuffix(".0") + f"{SPACE}%"


def count(value: float | None) -> str:
    """A whole number with thousands apart: ``1 000 003``."""
    return NONE if value is None else f"{round(value):,}".replace(",", SPACE)


def _scaled(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:
            return f"{digits(value / factor)}{SPACE}{prefix}{unit}"
    return f"{digits(value)}{SPACE}{unit}"


def bandwidth(bytes_per_s: float | None) -> str:
    """``4.28 TB/s``."""
    return _scaled(bytes_per_s, "B/s")


def rate(flops_per_s: float | None) -> str:
    """``51.0 TFLOP/s``."""
    return _scaled(flops_per_s, "FLOP/s")


def size(nbytes: float | None) -> str:
    """``64 MiB``, ``12 KiB``, ``100 B``."""
    if nbytes is None:
        return NONE
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= factor:
            return f"{digits(nbytes / factor)}{SPACE}{unit}"
    return f"{nbytes:.0f}{SPACE}B"


def seconds(value: float | None) -> str:
    """``820 ms``, ``41 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if value is None:
        return NONE
    if value < 60:
        return time(value * 1e9) if value < 10 else f"{value:.0f}{SPACE}s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}{SPACE}min {rest}{SPACE}s"
    return f"{minutes // 60}{SPACE}h {minutes % 60}{SPACE}min"


def kernel(name: str) -> str:
    """A kernel's name without arguments, its template's and its own, and without outer namespaces: ``reduce::DeviceReduceKernel``.

    The names of C++ libraries' kernels are up to a thousand characters long.
    """
    kept, depth = [], 0
    for char in name.replace("(anonymous namespace)::", "").removeprefix("void "):
        depth += (char in "<(") - (depth > 0 and char in ">)")
        if not depth and char not in ">)":
            kept.append(char)
    return "::".join("".join(kept).strip().split("::")[-2:]) or name


def dollars(value: float | None) -> str:
    """``$0.12``."""
    return NONE if value is None else f"${value:.2f}"


def day(instant: str | None) -> str:
    """The date of an ISO 8601 instant: ``20 November 2026``; anything else comes back as it is."""
    if not instant:
        return NONE
    try:
        at = datetime.fromisoformat(instant)
    except ValueError:
        return instant
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}"


def sure(successes: int, trials: int) -> str:
    """How sure a proportion is, as a 95 % interval: 39 of 40 is ``87 to 99.9 %``."""
    low, high = proportion_interval(successes, trials)
    ends = [f"{math.floor(1000 * low) / 10:g}", f"{math.ceil(1000 * high) / 10:g}"]
    return f"{ends[0]} to {ends[1]}{SPACE}%"


def on_its_own(command: str, operator: str, operators: Collection[str]) -> str:
    """A recorded command with … for operators other than one: a session can have all of them, which only the database lists."""
    words: list[str] = []
    for word in typed(command).split(" "):
        name = word.partition("/")[0]
        shown = "…" if name in operators and name != operator else word
        if shown != "…" or words[-1:] != ["…"]:
            words.append(shown)
    return " ".join(words)


FILTERS = {
    f.__name__: f
    for f in (
        digits,
        time,
        time_interval,
        ratio,
        ranged,
        percent,
        percent_range,
        percent_ranged,
        ratio_exact,
        ranged_exact,
        inverse,
        share,
        sure,
        count,
        bandwidth,
        rate,
        size,
        seconds,
        dollars,
        day,
        interval,
        kernel,
        typed,
    )
}
"""What the templates know by name."""
