"""The page that shows what was tried on the evaluator: its sums, its charts, and its honesty where there is nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from msbench.gpu.timing import rounds as timing
from msbench.model import Failure, Fault, Origin, Status, Study, Trial
from msbench.sitegen import build, margins, trials
from msbench.sitegen.facts import Site
from msbench.sitegen.pages import how
from msbench.sitegen.plots import trial_charts
from msbench.store.store import Store
from tests.factories import CPU, GPU, candidate, measured, operator, trial
from tests.sitegen.proven import NASTY, TRICKS, proven


@pytest.fixture
def empty() -> Iterator[Store]:
    with Store(":memory:") as store:
        store.add_device(GPU)
        store.add_device(CPU)
        yield store


def page(store: Store, folder: Path, recorded: Iterable[Trial] = ()) -> str:
    """The page as it is read: without tags, blanks in a row as one."""
    store.add_trials(recorded)
    html = (build(store, folder / "site").out / "how.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", html)))


def of(study: Study) -> list[Trial]:
    return [one for one in proven() if one.study is study]


def pair(subject: str, ratio: float, half: float, study: Study = Study.SAME, **changes: Any) -> Trial:
    figures = {"task": subject, "median": ratio, "low": ratio - half, "high": ratio + half, "duration_ns": 5000.0}
    factor = 1.0 if study is Study.SAME else 1.03
    return trial(subject, study=study, details={**figures, "factor": factor} | changes)


def test_what_was_not_recorded_is_said_and_never_drawn(empty: Store, tmp_path: Path) -> None:
    text = page(empty, tmp_path)
    for command in set(how.COMMANDS.values()):
        assert f"ot recorded in this database yet; {command} records" in text
    assert text.lower().count("recorded in this database yet") == len(set(how.COMMANDS.values()))
    html = (tmp_path / "site" / "how.html").read_text(encoding="utf-8")
    assert 'class="chart"' not in html and "plotly" not in html and 'class="figures"' not in html


def test_the_tricks_that_got_through_come_first_and_honest_kernels_last(store: Store) -> None:
    found = trials.tricks(how.proofs(store, Study.EXPLOITS))
    assert len(found) == len(TRICKS) + 2
    assert (found[0].name, found[0].says) == ("other_stream", TRICKS[1][1])
    gpu, cpu = found[0].answers
    assert gpu == trials.Answer("good", "refused: forbidden", "wrote while its stream was held")
    assert cpu == trials.Answer("bad", "got through", "passed its check")
    too_fast = next(one for one in found if one.name == "too_fast")
    assert too_fast.answers[1] is None
    assert (found[-1].honest, found[-1].says) == (True, "vector loads where they are allowed")
    assert found[-1].answers[0] == trials.Answer("good", "passed", "")


@pytest.mark.parametrize(
    ("recorded", "tone", "verdict"),
    [
        (trial(held=False, details={"fault": "crash"}), "bad", "refused, but not for its trick: crash"),
        (trial(outcome="input_changed: x[0]", details={}), "good", "refused: input changed"),
        (trial(held=False, outcome="passed", details={}), "bad", "got through"),
        (trial(held=False, outcome="crash: it fell", details={"honest": True}), "bad", "refused: crash"),
        (trial(outcome="passed", details={"harmless": "Why."}), "good", "right results, nothing gained"),
        (trial(held=False, outcome="crash: x", details={"harmless": "Why."}), "bad", "refused: crash"),
    ],
)
def test_an_answer_says_what_came_out(recorded: Trial, tone: str, verdict: str) -> None:
    said = trials.answer(recorded)
    assert (said.tone, said.verdict) == (tone, verdict)


def test_refusals_count_tricks_by_the_fault_that_was_found_and_honest_kernels_apart(empty: Store) -> None:
    faults = ("input_changed", "mismatch", "mismatch")
    empty.add_trials(trial(f"trick {i}", details={"fault": fault}) for i, fault in enumerate(faults))
    empty.add_trials([trial("wrong", held=False, details={"fault": "crash"})])
    empty.add_trials(trial(f"fair {i}", held=i > 0, outcome="passed", details={"honest": True}) for i in range(3))
    empty.add_trials([trial("looks", outcome="passed", details={"harmless": "There is nothing to see."})])
    [proof] = how.proofs(empty, Study.EXPLOITS)
    assert trials.refusals(proof) == trials.Refusals(3, 4, 1, 2, 3, (("mismatch", 2), ("input changed", 1)))


@pytest.mark.parametrize(("harness", "said"), [("h1", False), ("h2", True)])
def test_a_later_evaluator_may_refuse_what_got_through_before(
    empty: Store, tmp_path: Path, harness: str, said: bool
) -> None:
    missed = trial("escapes", held=False, outcome="passed")
    found = trial("escapes", 9, device_id=CPU.id, harness=harness)
    text = page(empty, tmp_path, [missed, found])
    assert ("The results on Test CPU are from a later version of the evaluator" in text) is said
    assert "What Test GPU shows" not in text


def test_mistakes_are_summed_up_and_those_that_passed_come_first(store: Store) -> None:
    [proof] = how.proofs(store, Study.MUTANTS)
    found = trials.mistakes(proof.trials)
    assert found[0] == trials.Mistake("mistake 24", 1, 0, 4, 3, 280.0)
    assert found[1] == trials.Mistake("zeros", 2, 2, 8, 8, 10.0)
    assert next(one for one in found if one.name == "half the reduction").narrowest is None
    assert len(found) == 27


def test_coverage_counts_the_intervals_and_the_furthest_median_is_named() -> None:
    same = trials.pairs(
        [pair("a", 1.001, 0.002), pair("b", 0.995, 0.003), pair("c", 1.004, 0.004), pair("a", 1.0, 0.1)]
    )
    found = trials.agreement(same)
    assert found is not None
    assert (found.covered, found.pairs, found.tasks) == (3, 4, 3)
    assert found.coverage == 0.75
    assert (found.furthest.subject, found.off) == ("b", pytest.approx(0.005))
    assert trials.agreement([]) is None


def test_what_is_asked_for_is_held_against_the_figures(empty: Store, tmp_path: Path) -> None:
    recorded = [pair(f"p{i:03}", 1.0 if i > 7 else 1.02, 0.001) for i in range(100)]
    recorded += [pair(f"p{i:03}", 1.03, 0.001, Study.SLOWDOWN) for i in range(20)]
    text = page(empty, tmp_path, recorded)
    assert (
        "92 of 100 intervals contain 1, which is 92 % (84.8 to 96.5 % with 95 % confidence). The goal is at least 93 %: not met"
        in text
    )
    assert "is off by 2.0 % (p007). The goal is at most 1 %: not met" in text
    assert (
        "Of 20 slowdowns by 3.0 %, 20 were found, which is 100 % (83.1 to 100 % with 95 % confidence). The goal is at least 95 %: met"
        in text
    )
    assert "The interval contains the slowdown itself in 20 of 20 where a call takes less than 20.0 µs." in text


def test_what_was_disturbed_or_not_measured_is_said(empty: Store, tmp_path: Path) -> None:
    held_down = pair("a", 1.0, 0.01, disturbed="clocks were held down")
    failed = trial("c", study=Study.SAME, held=False, details={"task": "c"})
    text = page(empty, tmp_path, [held_down, pair("b", 1.0, 0.01, disturbed=""), failed])
    assert "2 of 2 intervals contain 1" in text
    assert "1 of all pairs were disturbed" in text
    assert "1 of all pairs could not be measured" in text
    assert "The injected slowdowns are not recorded in this database yet; msbench study records them." in text


def test_pairs_are_drawn_at_their_duration_with_their_interval_and_misses_stand_out() -> None:
    same = trials.pairs([pair("hit", 1.001, 0.002), pair("miss", 1.005, 0.002, duration_ns=8000.0)])
    slowed = trials.pairs([pair("slowed", 1.03, 0.004, Study.SLOWDOWN)])
    chart = trial_charts.against_itself("c", same, slowed)
    assert chart is not None
    traces = {one["name"]: one for one in json.loads(chart.json)["data"]}
    assert list(traces) == ["identical, interval contains 1", "identical, interval misses 1", "one copy slowed, found"]
    missed = traces["identical, interval misses 1"]
    assert (missed["x"], missed["y"], missed["meta"]) == ([8000.0], [1.005], "failed")
    assert missed["error_y"]["array"] == pytest.approx([0.002])
    assert len(chart.rows) == 3
    assert trial_charts.against_itself("c", [], []) is None


def test_kills_are_summed_up_by_command_and_what_did_not_hold_is_shown_by_itself(store: Store, tmp_path: Path) -> None:
    [proof] = how.proofs(store, Study.FAULTS)
    found = {one.command: one for one in trials.kills(proof.trials)}
    assert {name: (one.held, one.tried) for name, one in found.items()} == {
        "build-site": (20, 20),
        "merge": (19, 20),
        "optimize": (20, 20),
    }
    assert found["optimize"].afterwards == "went on where it was"
    assert found["merge"].afterwards == "the target is as it was (19); one row of a group was missing (1)"
    first, *others = how.others(proof)
    assert (first["kind"], first["point"]) == ("kill", "write 17")
    assert len(others) == 3


def test_kills_that_failed_for_one_reason_have_one_line(empty: Store) -> None:
    left = [
        trial(
            f"optimize, kill {i}", study=Study.FAULTS, outcome=f"temporary files left behind: nvidia-{i}", held=False,
            details={"command": "optimize", "point": f"write {i}"},
        )
        for i in range(9)
    ]  # fmt: skip
    other = trial(
        "optimize, kill 9", study=Study.FAULTS, outcome="a row was lost", held=False, details={"command": "optimize"}
    )
    empty.add_trials([*left, other])
    [proof] = how.proofs(empty, Study.FAULTS)
    found = {one["count"]: one for one in how.others(proof)}
    assert sorted(found) == [1, 9]
    assert found[9]["trial"] == left[0] and found[9]["point"] == "write 0"
    assert found[1]["trial"] == other
    [optimize] = trials.kills(proof.trials)
    assert optimize.afterwards == "temporary files left behind (9); a row was lost (1)"


def test_kills_by_another_harness_are_shown_with_its_name_as_long_as_none_are_newer(
    empty: Store, tmp_path: Path
) -> None:
    def kills(command: str, at: float, harness: str, number: int) -> list[Trial]:
        return [
            trial(f"{command}, kill {i}", at, study=Study.FAULTS, harness=harness, details={"command": command})
            for i in range(number)
        ]

    recorded = [*kills("merge", 0, "aaa", 3), *kills("optimize", 0, "aaa", 4), *kills("merge", 1, "bbb", 5)]
    text = page(empty, tmp_path, recorded)
    section = text[text.index("Killed, starved") : text.index("How long a verdict")]
    assert re.findall(r"\d of \d|harness \w+", section) == [
        "5 of 5",
        "harness bbb",
        "4 of 4",
        "harness aaa",
    ]
    assert re.search(r"kills on [\w ]+ that left no trace1 November 20269 of 9", text)


def test_the_figures_at_the_top_have_their_days(store: Store) -> None:
    site = Site(store)
    found = {study: how.recordings(site, study) for study in Study}
    assert {day for *_, day in how.headlines(found, how.paces(site))} == {"1 November 2026"}


def test_kills_that_all_went_differently_have_an_example() -> None:
    tried = [
        trial(
            f"bench, kill {i}", study=Study.FAULTS, outcome=f"after {i} rows", held=i > 0, details={"command": "bench"}
        )
        for i in range(9)
    ]
    [found] = trials.kills(tried)
    assert found == trials.Kills("bench", 9, 8, "for example: after 1 rows")


def test_parts_of_a_verdict_add_up_to_it(store: Store) -> None:
    found = trials.verdicts(of(Study.THROUGHPUT))
    assert len(found) == 12  # the trial of the whole has no bar
    assert all(sum(one.spans.values()) == pytest.approx(one.seconds) for one in found)
    chart = trial_charts.where_time_goes("c", found)
    assert chart is not None
    drawn = json.loads(chart.json)["data"]
    assert [one["name"] for one in drawn] == ["build", "check", "measure", "references", "everything else"]
    assert sum(one["x"][-1] for one in drawn) == pytest.approx(found[0].seconds, rel=1e-4)
    assert trial_charts.where_time_goes("c", []) is None


def test_of_each_command_the_newest_pace_is_shown(empty: Store, tmp_path: Path) -> None:
    def stream(command: str, at: float, per_hour: float) -> Trial:
        return trial(
            "all", at, study=Study.THROUGHPUT, command=command, held=per_hour < 1000,
            details={"candidates": 12, "median_s": 4.2, "p90_s": 4.9, "candidates_per_hour": per_hour},
        )  # fmt: skip

    streams = [stream("bench", 1, 500.0), stream("bench", 3, 1700.0), stream("bench --batch 1", 2, 900.0)]
    streams.append(stream("bench --executor cuda --batch 1 --seed 7", 1, 800.0))
    assert [(one.command, one.per_hour) for one in trials.paces(streams)] == [
        ("bench", 1700.0),
        ("bench --batch 1", 900.0),
    ]
    text = page(empty, tmp_path, streams)
    assert "candidates judged per hour on one GPU1 November 20261 700" in " ".join(text.split())
    assert "4.90 s900" in " ".join(text.split())
    assert "4.90 s500" not in " ".join(text.split())


def test_a_stream_of_many_candidates_is_drawn_from_end_to_end() -> None:
    many = [trials.Verdict(str(i), 1, 1.0 + i, {"build": 1.0}, "2026-11-01T00:00:00+00:00") for i in range(100)]
    shown = trial_charts.evenly(many)
    assert len(shown) == trial_charts.BARS
    assert (shown[0], shown[-1]) == (many[0], many[-1])
    assert len({one.subject for one in shown}) == len(shown)


def test_times_of_a_cpu_are_no_throughput(empty: Store, tmp_path: Path) -> None:
    from dataclasses import replace

    text = page(empty, tmp_path, (replace(one, device_id=CPU.id) for one in proven() if one.study in how.TIMED))
    assert text.lower().count("recorded in this database yet") == len(set(how.COMMANDS.values()))


def test_each_recording_has_its_device_day_harness_and_command(store: Store, tmp_path: Path) -> None:
    text = page(store, tmp_path)
    where = "Recorded on NVIDIA Test GPU (driver 580.0) on 1 November 2026, harness h1."
    for study in (Study.SAME, Study.SLOWDOWN, Study.THROUGHPUT):
        assert f"{where} Repeat it: {of(study)[0].command}" in text
    assert f"Recorded on Test CPU on 1 November 2026, harness h1. Repeat it: {of(Study.FAULTS)[0].command}" in text


def test_a_recording_of_another_day_than_the_newest_figures_says_so(store: Store) -> None:
    site = Site(store)
    [proof, _] = how.proofs(store, Study.EXPLOITS)
    for evaluation in site.evaluations.values():
        evaluation.started_at = proof.created_at
    assert "newest evaluation" not in how.label(site, proof)
    next(iter(site.evaluations.values())).started_at = "2027-01-02T03:04:05.678+00:00"
    assert how.label(site, proof).endswith("harness h1; the newest evaluation here is of 2 January 2027.")


@pytest.mark.parametrize("details", [{}, {"median": "fast", "spans": [1], "seconds": None, "kind": 3, "trick": 7}])
def test_details_of_another_shape_are_left_out(empty: Store, tmp_path: Path, details: dict[str, Any]) -> None:
    text = page(empty, tmp_path, [trial(study=study, details=details) for study in Study])
    assert "cached by pointer" in text


def test_markup_in_trials_comes_out_as_text(built: Path) -> None:
    html = (built / "how.html").read_text(encoding="utf-8")
    assert '<b>"bold"' not in html
    assert unescape(html).count(NASTY) >= 8


def test_what_comes_nearest_to_the_limit_is_counted(empty: Store, tmp_path: Path) -> None:
    op = operator()
    slow, fast = candidate(op, "slow", Origin.NAIVE), candidate(op, "fast")
    for one, floor_ns in zip(measured(op, {slow: 0.5, fast: 0.8}), (900.0, 1100.0), strict=True):
        times = [replace(m, floor_ns=floor_ns) for m in one.measurements]
        empty.add_evaluation(op, replace(one, measurements=tuple(times)))
    [other] = measured(op, {candidate(op, "wrong"): 0.9}, at=5)
    wrong = [replace(m, hot_ns=1e9, floor_ns=1e6) for m in other.measurements]
    failure = Failure(Fault.TIMEOUT, "no answer")
    empty.add_evaluation(
        op, replace(other, status=Status.MEASURE_FAILED, failure=failure, measurements=tuple(wrong), profiles=())
    )

    found = margins.margins(Site(empty))
    assert found is not None
    assert (found.groups, found.shift_ns) == (4, 100.0)
    text = page(empty, tmp_path)
    assert (
        "Across 4 groups, a process differed from its group’s mean by at most 100 ns. The correction is capped at 400 ns per launch"
        in text
    )


def test_the_limit_is_the_evaluator_s() -> None:
    assert margins.SHIFT_NS == timing._MOST_SHIFT_NS
