from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.sitegen import format as fmt


def spaced(text: str) -> str:
    return text.replace(fmt.SPACE, " ")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (fmt.time(4210.0), "4.21 µs"),
        (fmt.time(999.7), "1.00 µs"),
        (fmt.time(421.4), "421 ns"),
        (fmt.time(1.2345e6), "1.23 ms"),
        (fmt.time(2.01e9), "2.01 s"),
        (fmt.time(None), "–"),
        (fmt.time_interval(4840.0, 4890.0), "4.84 to 4.89 µs"),
        (fmt.time_interval(998.0, 1020.0), "998 ns to 1.02 µs"),
        (fmt.ratio(1.2345), "1.23×"),
        (fmt.ratio(9.999), "10.0×"),
        (fmt.ratio(123.4), "123×"),
        (fmt.ratio(0.8215), "0.82×"),
        (fmt.ratio(0.0123), "0.0123×"),
        (fmt.percent(0.8749), "87 %"),
        (fmt.share(0.9299), "92.9 %"),
        (fmt.share(0.93), "93 %"),
        (fmt.share(1.0), "100 %"),
        (fmt.percent(0.0034), "0.34 %"),
        (fmt.count(1_000_003), "1 000 003"),
        (fmt.bandwidth(4.28e12), "4.28 TB/s"),
        (fmt.rate(51e12), "51.0 TFLOP/s"),
        (fmt.size(64 * 2**20), "64.0 MiB"),
        (fmt.size(100), "100 B"),
        (fmt.seconds(200), "3 min 20 s"),
        (fmt.interval(1.208, 1.252), "1.21 to 1.25"),
        (fmt.kernel("rows"), "rows"),
        (fmt.kernel("void (anonymous namespace)::rows<float, (int)4>(float *, long)"), "rows"),
        (fmt.kernel("void cub::CUB_9::detail::reduce::Kernel<a::b<int>, c>(T2, d<T3>, (T4) 1"), "reduce::Kernel"),
        (fmt.day("2026-11-20T23:59:00+00:00"), "20 November 2026"),
        (fmt.typed("msbench bench relu --db /tmp/b.sqlite --quick"), "msbench bench relu --quick"),
        (fmt.typed("msbench bench relu --db=b.sqlite"), "msbench bench relu"),
        (fmt.typed("msbench mutants --markdown /tmp/mutants.md --record"), "msbench mutants --record"),
        (fmt.typed("msbench optimize relu --no-wait --prompts /somewhere/prompts"), "msbench optimize relu --no-wait"),
        (
            fmt.on_its_own("msbench bench a b/fp32 relu a --quick", "relu", ("a", "b", "relu")),
            "msbench bench … relu … --quick",
        ),
    ],
)
def test_numbers_as_people_read_them(shown: str, expected: str) -> None:
    assert spaced(shown) == expected


@given(st.floats(1e-4, 1e14))
def test_three_digits_are_right_to_half_a_percent(value: float) -> None:
    assert float(fmt.digits(value).replace(fmt.SPACE, "")) == pytest.approx(value, rel=0.0051)


@given(st.floats(0.01, 1e13))
def test_a_time_never_needs_more_than_three_places(value: float) -> None:
    number = spaced(fmt.time(value)).rsplit(" ", 1)[0].replace(" ", "")
    assert re.fullmatch(r"\d+(\.\d+)?", number)
    assert float(number) < 1000 or fmt.time(value).endswith("s")
