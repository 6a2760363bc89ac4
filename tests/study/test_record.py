"""A study measures copies as any versions are measured, and its trials say what came out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from msbench.errors import DeviceError, MsbenchError
from msbench.harness.digest import harness_digest
from msbench.model import Study, Trial
from msbench.report import Live
from msbench.study.delay import BASE, delayed
from msbench.study.record import Settings, judge, record
from tests import factories as make
from tests.study.fakes import StudyExecutor, subjects, trial

BOTH = Settings((Study.SAME, Study.SLOWDOWN), pairs=4, sittings=4, seed=0)


def recorded(executor: StudyExecutor, settings: Settings = BOTH) -> list[Trial]:
    found = record(
        executor,
        subjects(),
        settings,
        command="msbench study",
        created_at="2026-11-20T10:00:00+00:00",
        progress=Live(Console(quiet=True), quiet=True),
    )
    return [one for _, trials in found for one in trials]


def test_each_subject_has_its_pairs_of_both_kinds() -> None:
    trials = recorded(StudyExecutor())
    names = [f"gather_scale/fp32 N={n} #{number}" for n in (64, 2048) for number in (1, 2, 3, 4)]
    for kind in BOTH.kinds:
        assert [one.subject for one in trials if one.study is kind] == names
    assert {(one.device_id, one.harness, one.command) for one in trials} == {
        (make.GPU.id, harness_digest(), "msbench study")
    }
    assert {one.details["sittings"] for one in trials} == {4}
    for one in trials:
        low, high = one.details["low"], one.details["high"]
        assert one.held is (low > 1 if one.study is Study.SLOWDOWN else low <= 1 <= high)
        assert one.outcome == f"{one.details['median']:.4f}, {low:.4f} to {high:.4f}"
    assert sum(one.held for one in trials) >= 14
    assert all(one.details["duration_ns"] == pytest.approx(1.02e4, rel=0.05) for one in trials)


def test_the_true_factor_is_the_wait_over_the_time_and_the_ratio_comes_out_at_it() -> None:
    for one in recorded(StudyExecutor(luck=0.0)):
        true = 1.03 if one.study is Study.SLOWDOWN else 1.0
        assert one.details["factor"] == pytest.approx(true, abs=1e-3)
        assert one.details["median"] == pytest.approx(true, abs=2e-3)


def test_identical_kernels_alone_need_no_clock() -> None:
    trials = recorded(StudyExecutor(clock_mhz=None), replace(BOTH, kinds=(Study.SAME,)))
    assert [one.study for one in trials] == [Study.SAME] * 8
    with pytest.raises(DeviceError, match=r"does not report its clock.*--kind same"):
        recorded(StudyExecutor(clock_mhz=None))


def test_a_naive_kernel_that_does_not_build_ends_the_study() -> None:
    executor = StudyExecutor()
    executor.kernels[delayed(subjects()[0].naive.source, BASE)] = None
    with pytest.raises(MsbenchError, match="gather_scale/fp32 N=64: the naive kernel can't be measured: line 1"):
        recorded(executor)


def test_a_pair_that_can_not_be_measured_counts_against_the_study() -> None:
    good = [trial(Study.SAME, number) for number in range(20)]
    bad = trial(Study.SAME, 99, held=False, outcome="it crashed", details={"task": "relu/fp32", "case": "N=1024"})
    assert judge(Study.SAME, good).held
    judgement = judge(Study.SAME, [*good, bad, replace(bad, subject="b")])
    assert "20 of 22 pairs (90.9%" in judgement.sentence
    assert "2 pairs could not be measured" in judgement.sentence
    assert not judgement.held


@pytest.mark.parametrize(("missed", "held"), [(0, True), (7, True), (8, False)])
def test_identical_kernels_are_judged_by_coverage(missed: int, held: bool) -> None:
    trials = [trial(Study.SAME, number, 0.006 if number < missed else 0.0) for number in range(100)]
    assert judge(Study.SAME, trials).held is held


def test_no_median_of_identical_kernels_may_be_off() -> None:
    wide = trial(Study.SAME, 1, 0.0101)
    wide = replace(wide, details={**wide.details, "low": 0.9, "high": 1.1})
    judgement = judge(Study.SAME, [trial(Study.SAME), wide])
    assert not judgement.held
    assert "off by at most 1.01%" in judgement.sentence
    assert "2 of 2 pairs (100.0%" in judgement.sentence


@pytest.mark.parametrize(("missed", "held"), [(0, True), (5, True), (6, False)])
def test_a_slowdown_has_to_be_found(missed: int, held: bool) -> None:
    trials = [trial(Study.SLOWDOWN, number, -0.026 if number < missed else 0.0) for number in range(100)]
    assert judge(Study.SLOWDOWN, trials).held is held


def test_no_trials_are_no_study() -> None:
    with pytest.raises(ValueError, match="no trials"):
        judge(Study.SAME, [])
