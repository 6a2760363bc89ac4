import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.errors import IntegrityError
from msbench.store.samples import median_ns, pack_samples, unpack_samples

TIMES = st.floats(min_value=0, max_value=1e12, allow_nan=False)


@given(st.lists(st.lists(TIMES, max_size=8), max_size=8))
def test_any_samples_come_back_exactly(rounds: list[list[float]]) -> None:
    assert unpack_samples(pack_samples(rounds)) == tuple(tuple(one) for one in rounds)


@pytest.mark.parametrize(
    ("sample", "code"),
    [(4321.0, b"I"), (4321.5, b"f"), (4321.1, b"d"), (2.0**33, b"f"), (2.0**33 + 1, b"d"), (1e300, b"d")],
)
def test_the_smallest_exact_type_is_taken(sample: float, code: bytes) -> None:
    blob = pack_samples([[sample, sample]])
    assert blob[3:4] == code
    assert unpack_samples(blob) == ((sample, sample),)


def test_rounds_of_different_lengths_and_no_rounds() -> None:
    assert unpack_samples(pack_samples([[1.0], [], [2.0, 3.0]])) == ((1.0,), (), (2.0, 3.0))
    assert unpack_samples(pack_samples([])) == ()


def test_whole_nanoseconds_take_less_than_two_bytes_each() -> None:
    rounds = [[5000.0 + (7 * i + j) % 90 for j in range(10)] for i in range(50)]
    assert len(pack_samples(rounds)) < 2 * 500


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_not_misread(blob: bytes) -> None:
    with pytest.raises(IntegrityError):
        unpack_samples(blob)


@pytest.mark.parametrize(
    "raw", [b"", b"\x01\x00\x00\x00", b"\x01\x00\x00\x00\x02\x00\x00\x00abcd", b"\xff\xff\xff\xff"]
)
def test_a_stream_of_the_wrong_length_is_refused(raw: bytes) -> None:
    with pytest.raises(IntegrityError):
        unpack_samples(b"MS\x01f" + zlib.compress(raw))


def test_median_is_over_all_samples() -> None:
    assert median_ns([[1.0, 9.0], [2.0]]) == 2.0
    assert median_ns([[], []]) is None


def test_a_few_bytes_do_not_fill_the_memory() -> None:
    packer = zlib.compressobj(9)
    stream = b"".join(packer.compress(bytes(1 << 24)) for _ in range(20)) + packer.flush()
    with pytest.raises(IntegrityError, match="larger than 256 MiB"):
        unpack_samples(b"MS\x01I" + stream)
