import math
from dataclasses import replace

import numpy as np
import pytest

from msbench.errors import UnknownNameError
from msbench.figures import figures
from msbench.figures.figures import Figures, VersionFigures
from msbench.model import Evaluation, Failure, Fault, Origin, Status
from msbench.spec import Case, Split, Task
from msbench.store.store import Store
from tests.factories import BF16, CEILINGS, CPU, FP32, GPU, candidate, failed, measured, operator

OP = operator()
NAIVE = candidate(OP, "naive", Origin.NAIVE)
SLOW_LIBRARY = candidate(OP, "slow library", Origin.LIBRARY)
LIBRARY = candidate(OP, "library", Origin.LIBRARY)
GOOD = candidate(OP, "good")
FAST = candidate(OP, "fast")
BIG = OP.cases[2]


def add(store: Store, *evaluations: Evaluation) -> None:
    for evaluation in evaluations:
        store.add_evaluation(OP, evaluation)


def of(store: Store, label: str, device_id: str | None = None) -> VersionFigures:
    task = figures.task(store, "scale/fp32", device_id)
    return next(one for one in task.versions if one.version.label == label)


def test_ratios_are_those_of_the_medians_with_an_interval_around_them(store: Store) -> None:
    store.add_ceilings(GPU, CEILINGS)
    add(store, *measured(OP, {NAIVE: 0.2, SLOW_LIBRARY: 0.4, LIBRARY: 0.5, GOOD: 0.8}))
    task = figures.task(store, "scale/fp32")
    assert [one.version.origin for one in task.versions] == ["naive", "library", "library", "agent"]
    good = of(store, "good")
    case = next(one for one in good.cases if one.case.name == BIG.id)
    assert case.speedup is not None and case.library is not None and case.bound is not None
    assert case.speedup.value == pytest.approx(4.0, rel=0.01)
    assert case.speedup.low <= case.speedup.value <= case.speedup.high
    assert 0 < case.speedup.high - case.speedup.low < 0.05
    assert case.speedup.reference_id == NAIVE.id
    assert case.library.value == pytest.approx(1.6, rel=0.01)
    assert case.library.reference_id == LIBRARY.id
    assert case.bound.term == "memory"
    assert case.bound.time_ns == pytest.approx(8 * BIG.dim("N") / 4e12 * 1e9)
    assert case.roofline_fraction == pytest.approx(0.8, rel=0.02)
    assert case.rounds == 20 and case.hot_ns is not None and not case.noisy

    assert good.score is not None and good.library_score is not None and good.roofline_fraction is not None
    ratios = [one.speedup.value for one in good.cases if one.speedup]
    assert len(ratios) == len(OP.cases)
    assert good.score.value == pytest.approx(math.prod(ratios) ** (1 / len(ratios)))
    for launches, mean in ((False, good.roofline_fraction), (True, good.launch_fraction)):
        fractions = [
            one.roofline_fraction
            for one in good.cases
            if one.roofline_fraction and one.bound and (one.bound.term == "launch") is launches
        ]
        assert mean == pytest.approx(math.prod(fractions) ** (1 / len(fractions)))

    assert task.best is not None and task.best.version.id == GOOD.id
    assert task.library is not None and task.library.version.id == LIBRARY.id
    assert task.naive is not None and task.naive.score is not None
    assert (task.naive.score.value, task.naive.score.low, task.naive.score.high) == (1.0, 1.0, 1.0)
    assert task.commands == ("msbench bench scale --precision fp32",)
    assert task.device == replace(GPU, uuid="", host="") and task.ceilings == CEILINGS


def test_the_bar_is_on_each_case_the_faster_of_library_and_naive(store: Store) -> None:
    small, *large = OP.cases
    add(store, *measured(OP, {NAIVE: 0.4, LIBRARY: 0.2, GOOD: 0.8}, cases=[small]))
    add(store, *measured(OP, {NAIVE: 0.2, LIBRARY: 0.5, GOOD: 0.8}, cases=large))
    good = of(store, "good")
    assert good.score is not None and good.library_score is not None and good.bar_score is not None
    rivals = [min(one.speedup.value, one.library.value) for one in good.cases if one.speedup and one.library]
    assert len(rivals) == len(OP.cases)
    assert good.bar_score.value == pytest.approx(math.prod(rivals) ** (1 / len(rivals)))
    assert good.bar_score.value < min(good.score.value, good.library_score.value)


def test_only_what_was_measured_together_is_compared_and_the_newest_counts(store: Store) -> None:
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}, at=0))
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.6}, at=1, seed=1))
    add(store, *measured(OP, {GOOD: 0.9, LIBRARY: 0.45}, at=2, seed=2))
    case = next(one for one in of(store, "good").cases if one.case.name == BIG.id)
    assert case.speedup is not None and case.speedup.value == pytest.approx(3.0, rel=0.01)
    assert case.library is None  # it was measured beside the version on another day only
    assert case.median_ns == pytest.approx(8 * BIG.dim("N") / 4e12 * 1e9 / 0.6, rel=0.03)
    library = of(store, "library")
    assert library.score is None
    assert library.problem == "It was not measured beside the naive version on this device."


def test_a_task_with_an_unmeasured_case_has_no_score(store: Store) -> None:
    add(store, *measured(OP, {NAIVE: 0.2, LIBRARY: 0.4}))
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}, at=1, cases=OP.cases[1:]))
    good = of(store, "good")
    assert good.score is None and good.library_score is None
    assert good.problem == f"1 of 4 cases were not measured beside the naive version: {OP.cases[0].id}."
    assert [one.problem for one in good.cases].count("not measured") == 1


def test_a_library_that_lacks_a_case_is_no_reference_for_the_whole_task(store: Store) -> None:
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}))
    add(store, *measured(OP, {NAIVE: 0.2, LIBRARY: 0.3, GOOD: 0.4}, at=1, cases=OP.cases[1:]))
    good = of(store, "good")
    assert good.score is not None and good.library_score is None and good.bar_score is None
    assert all(one.library is None for one in good.cases)  # measured beside it in another session only
    assert of(store, "library").score is None


def test_versions_of_another_session_have_no_rank(store: Store) -> None:
    add(store, *measured(OP, {NAIVE: 0.2, LIBRARY: 0.3, FAST: 0.9}))
    add(store, *measured(OP, {NAIVE: 0.2, LIBRARY: 0.3, GOOD: 0.4}, at=1, seed=1))
    [task] = figures.tasks(store)
    assert task.best is not None and task.best.version.id == GOOD.id
    assert {one.version.label: one.ranked for one in task.versions} == {
        "naive": True, "library": True, "fast": False, "good": True
    }  # fmt: skip
    assert of(store, "fast").score is not None


@pytest.mark.parametrize("status", [Status.BUILD_FAILED, Status.CHECK_FAILED, Status.MEASURE_FAILED])
def test_a_version_whose_newest_evaluation_failed_has_no_score(store: Store, status: Status) -> None:
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}), failed(OP, GOOD, status, at=1))
    good = of(store, "good")
    assert good.score is None and good.problem is not None
    assert good.evaluation is not None and good.evaluation.status == status
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}, at=2))
    assert of(store, "good").score is not None


def test_unsupported_is_no_verdict(store: Store) -> None:
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}), failed(OP, GOOD, Status.UNSUPPORTED, at=1))
    assert of(store, "good").score is not None


def test_a_failed_held_out_case_is_not_forgotten_until_the_harness_changes(store: Store) -> None:
    heldout = Case((("N", 77),), Split.HELDOUT)
    add(store, failed(OP, GOOD, at=0, case=heldout))
    later = measured(OP, {NAIVE: 0.2, GOOD: 0.4}, at=1)
    add(store, *later)
    good = of(store, "good")
    assert good.score is None and good.problem is not None and "N=77" in good.problem
    assert good.evaluation is not None and good.evaluation.status == "passed"
    add(store, *(replace(one, harness="h2") for one in measured(OP, {NAIVE: 0.2, GOOD: 0.4}, at=2)))
    assert of(store, "good").score is not None


def test_a_held_out_case_is_shown_by_no_score(store: Store) -> None:
    heldout = Case((("N", 1 << 18),), Split.HELDOUT)
    add(store, *measured(OP, {NAIVE: 0.2}, cases=[*OP.cases, heldout]))
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}, at=1))
    assert of(store, "good").score is not None


def test_an_impossible_time_is_a_failed_case(store: Store) -> None:
    naive, good = measured(OP, {NAIVE: 0.2, GOOD: 0.4})
    first = replace(good.measurements[0], failure=Failure(Fault.IMPOSSIBLE, "1 ns is less than can be."))
    good = replace(
        good, measurements=(first, *good.measurements[1:]), status=Status.MEASURE_FAILED, failure=first.failure
    )
    add(store, naive, good)
    shown = of(store, "good")
    assert shown.score is None and shown.problem == "1 ns is less than can be."
    assert [one.median_ns is None for one in shown.cases].count(True) == 1


@pytest.mark.parametrize("stage", [Status.CHECK_FAILED, Status.MEASURE_FAILED])
def test_a_failed_time_stays_hidden_when_the_case_is_passed_later(store: Store, stage: Status) -> None:
    naive, good = measured(OP, {NAIVE: 0.2, GOOD: 0.4}, cases=[BIG])
    failure = Failure(Fault.MISMATCH if stage is Status.CHECK_FAILED else Fault.IMPOSSIBLE, "That can't be.")
    if stage is Status.CHECK_FAILED:
        good = replace(good, checks=(replace(good.checks[0], passed=False, failure=failure),))
    else:
        good = replace(good, measurements=(replace(good.measurements[0], failure=failure),))
    add(store, naive, replace(good, status=stage, failure=failure))
    [checked] = measured(OP, {GOOD: 0.4}, cases=[BIG], at=1)
    add(store, replace(checked, measurements=()))
    [case] = of(store, "good").cases
    assert (case.problem, case.median_ns, case.speedup) == ("not measured", None, None)


def test_a_repetition_of_a_record_counts_for_no_time(store: Store) -> None:
    originals = measured(OP, {NAIVE: 0.2, GOOD: 0.4})
    ids = [store.add_evaluation(OP, one) for one in originals]
    for one, original in zip(measured(OP, {NAIVE: 0.2, GOOD: 0.9}, at=5), ids, strict=True):
        add(store, replace(one, executor="recorded", recorded_from=original))
    case = next(one for one in of(store, "good").cases if one.case.name == BIG.id)
    assert case.speedup is not None and case.speedup.value == pytest.approx(2.0, rel=0.01)


def test_devices_are_never_mixed(store: Store) -> None:
    other = replace(GPU, driver="581.00")
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4}))
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.8}, device=other, cases=OP.cases[:3], at=-1))
    assert figures.task(store, "scale/fp32").device == replace(GPU, uuid="", host="")
    here, there = of(store, "good").score, of(store, "good", other.id).score
    assert here is not None and there is not None and there.value > 1.2 * here.value
    with pytest.raises(UnknownNameError, match="no measured device 'nowhere'"):
        figures.tasks(store, "nowhere")


def test_without_a_gpu_verdicts_are_shown_and_no_times(store: Store) -> None:
    [checked] = measured(OP, {GOOD: 0.5})
    add(store, replace(checked, device=CPU, executor="cpu", measurements=(), profiles=()))
    store.add_task(Task(OP, BF16))
    tasks = figures.tasks(store)
    assert [task.task.id for task in tasks] == ["scale/bf16", "scale/fp32"]
    assert tasks[0].versions == () and tasks[1].device is None and tasks[1].best is None
    [good] = tasks[1].versions
    assert good.score is None and good.evaluation is not None and good.evaluation.status == "passed"


def test_an_empty_store_has_no_figures(store: Store) -> None:
    assert figures.tasks(store) == []


def test_a_child_is_compared_with_its_parent(store: Store) -> None:
    child = candidate(OP, "child", parents=[GOOD.id])
    add(store, *measured(OP, {NAIVE: 0.2, GOOD: 0.4, child: 0.6}))
    compared = Figures(store).compare(child.id, GOOD.id)
    assert len(compared.cases) == len(OP.cases)
    assert {case.name: ratio.value for case, ratio in compared.cases}[BIG.id] == pytest.approx(1.5, rel=0.01)
    assert compared.overall is not None and compared.overall.value == pytest.approx(1.5, rel=0.01)
    back = Figures(store).compare(GOOD.id, child.id).overall
    assert back is not None and back.value == pytest.approx(1 / compared.overall.value)
    assert Figures(store).compare(GOOD.id, "nobody").overall is None
    assert of(store, "child").parents == (GOOD.id,)


def test_the_story_has_its_figures(told: Store) -> None:
    tasks = figures.tasks(told)
    assert len(tasks) == 4
    for task in tasks:
        assert task.best is not None and task.best.version.label == "best"
        scores = {one.version.label: one.score for one in task.versions}
        assert scores["round 2"] is None
        slow = scores["round 1"]
        assert slow is not None and slow.value < 1
    assert figures.tasks(told) == tasks


def test_an_interval_holds_the_truth_about_as_often_as_it_says(store: Store) -> None:
    """A version against one exactly twice as fast, 40 noisy occasions: the 95 % interval misses at most 6 of them."""
    rng = np.random.default_rng(1)
    case = OP.cases[0]
    [template] = measured(OP, {NAIVE: 0.2}, cases=[case])
    misses = 0
    for occasion in range(40):
        noise = rng.lognormal(0, 0.1, size=(2, 25, 5))
        pair = {}
        for version, time_ns, drawn in ((NAIVE, 8000.0, noise[0]), (GOOD, 4000.0, noise[1])):
            samples = tuple(tuple(float(x) for x in one) for one in time_ns * drawn)
            one = replace(template.measurements[0], samples_ns=samples, group=f"g{occasion}")
            pair[version] = replace(
                template,
                candidate=version,
                build=None,
                profiles=(),
                measurements=(one,),
                started_at=f"2026-{occasion:04}",
            )
        with Store(":memory:") as fresh:
            add(fresh, *pair.values())
            score = of(fresh, "good").score
        assert score is not None
        misses += not score.low <= 2.0 <= score.high
    assert misses <= 6


def test_tasks_that_do_not_exist_are_named(told: Store) -> None:
    with pytest.raises(UnknownNameError, match="scale/fp32"):
        figures.task(told, "scale/fp16")
    assert FP32 in figures.task(told, "scale/fp32").task.id
