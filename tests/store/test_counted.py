"""Bytes of the spec beside bytes that were counted: the version that moved the fewest speaks for its task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench import operators
from msbench.cli import app
from msbench.figures.counted import OPERATIONS, Counted, counted, moved_bytes, operations
from msbench.model import Profile
from msbench.spec import Split
from msbench.store.store import Store
from tests import factories


def test_what_may_still_be_in_l2_is_left_open() -> None:
    counts = {"dram__bytes_read.sum": 100.0, "dram__bytes_write.sum": 20.0}
    assert moved_bytes(counts, 1000) is None
    assert moved_bytes(counts | {"lts__t_sectors_op_write.sum": 0.5}, 1000) == (120.0, 120.0)
    assert moved_bytes(counts | {"lts__t_sectors_op_write.sum": 2.0}, 1000) == (120.0, 164.0)
    assert moved_bytes(counts | {"lts__t_sectors_op_write.sum": 2.0}, 30) == (120.0, 150.0)
    assert moved_bytes({"dram__bytes_read.sum": 100.0}, 1000) is None
    assert moved_bytes({"dram__bytes_read.sum": 0.0, "dram__bytes_write.sum": 0.0}, 1000) is None


@pytest.mark.parametrize(
    ("least", "most", "ratio"), [(90.0, 110.0, 1.0), (90.0, 95.0, 0.95), (104.0, 110.0, 1.04), (130.0, 130.0, 1.3)]
)
def test_what_is_left_open_speaks_for_the_spec(least: float, most: float, ratio: float) -> None:
    one = Counted("t", "c", "v", 100, least, most, 0, None, "")
    assert one.bytes_ratio == pytest.approx(ratio)
    assert one.bytes_agree(0.06) == (ratio < 1.06)


def test_operations_are_additions_multiplications_and_fused_ones() -> None:
    fma = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    assert operations({fma.format("fadd"): 1.0, fma.format("fmul"): 2.0, fma.format("ffma"): 3.0}) == 9.0
    assert operations({fma.format("fadd"): 1.0}) is None


def fill(store: Store, **moved: float) -> None:
    """A task's versions, each of which read and wrote so many times the spec's bytes."""
    op = factories.operator()
    large = next(case for case in op.cases if case.split is Split.LARGE)
    nbytes = op.nbytes(4, **dict(large.dims))
    versions = {factories.candidate(op, label): 1.0 for label in moved}
    for evaluation in factories.measured(op, versions):
        share = moved[evaluation.candidate.label] * nbytes / 2
        metrics = {"dram__bytes_read.sum": share, "dram__bytes_write.sum": share, "lts__t_sectors_op_write.sum": 0.0}
        profiled = Profile(large, "ncu", metrics, "memory", ())
        store.add_evaluation(op, replace(evaluation, profiles=(profiled,)))


def test_the_version_that_moves_least_is_shown(store: Store) -> None:
    fill(store, wasteful=1.8, frugal=1.02)
    (one,) = counted(store)
    assert (one.version, one.flops) == ("frugal", None)
    assert one.bytes_ratio == pytest.approx(1.02)


@pytest.mark.parametrize(("ratio", "code"), [(1.02, 0), (1.2, 1), (0.8, 1)])
def test_the_command_says_who_is_too_far_apart(tmp_path: Path, ratio: float, code: int) -> None:
    where = tmp_path / "x.sqlite"
    with Store(where) as store:
        fill(store, only=ratio)
    ran = CliRunner().invoke(app, ["db", "counts", "--db", str(where)])
    assert ran.exit_code == code
    assert f"{ratio:.3f}" in ran.output
    assert ("1 counts of 1 tasks" in ran.output) == bool(code)


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.4, 1)])
def test_a_spec_may_say_why_but_of_each_by_itself(tmp_path: Path, factor: float, code: int) -> None:
    op = operators.load("relu")  # a maximum is no addition or multiplication
    large = next(case for case in op.cases if case.split is Split.LARGE)
    half = op.nbytes(4, **dict(large.dims)) / 2
    moved = {"dram__bytes_read.sum": factor * half, "dram__bytes_write.sum": half, "lts__t_sectors_op_write.sum": 0.0}
    metrics = moved | dict.fromkeys(OPERATIONS, 0.0)
    with Store(tmp_path / "x.sqlite") as store:
        for evaluation in factories.measured(op, {factories.candidate(op, "good"): 1.0}):
            store.add_evaluation(op, replace(evaluation, profiles=(Profile(large, "ncu", metrics, "memory", ()),)))
    ran = CliRunner().invoke(app, ["db", "counts", "--db", str(tmp_path / "x.sqlite")])
    assert (ran.exit_code, f"{(1 + factor) / 2:.3f}" in ran.output) == (code, True)
    assert ("relu, bytes: not explained in its spec" in ran.output) == bool(code)
    assert "relu, FLOPs: A maximum counts as one operation" in " ".join(ran.output.split())


def test_without_counters_it_says_how_to_get_them(tmp_path: Path) -> None:
    with Store(tmp_path / "x.sqlite"):
        pass
    ran = CliRunner().invoke(app, ["db", "counts", "--db", str(tmp_path / "x.sqlite")])
    assert ran.exit_code == 0
    assert "--profile" in ran.output
