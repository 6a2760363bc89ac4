"""Strategies side by side on an operator's page: which runs, with which figures, and nothing where there is one strategy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from msbench.model import Candidate, Origin, Status
from msbench.sitegen import build, rivalry
from msbench.sitegen import format as fmt
from msbench.sitegen.facts import Site
from msbench.store.store import Store
from tests import factories as make
from tests.sitegen.dom import Node, Table, parse, table
from tests.sitegen.truth import complaints

OP = make.operator()
NAIVE = make.candidate(OP, "naive", Origin.NAIVE)
LIBRARY = make.candidate(OP, "vendor", Origin.LIBRARY)
FAILED = None

Round = tuple[str, float | None, str]
"""An outcome, the efficiency that a draft reached (none if it failed), and the step's action."""
OURS: tuple[Round, ...] = (
    ("improved", 0.5, "optimize"),
    ("failed", FAILED, "optimize"),
    ("improved", 0.9, "debug"),
)
THEIRS: tuple[Round, ...] = (("improved", 0.6, "optimize"), ("slower", 0.4, "optimize"), ("failed", FAILED, "optimize"))


@pytest.fixture
def store() -> Iterator[Store]:
    """Naive and a library, timed in one session."""
    with Store(":memory:") as empty:
        empty.add_ceilings(make.GPU, make.CEILINGS)
        for one in make.measured(OP, {NAIVE: 0.2, LIBRARY: 0.8}):
            empty.add_evaluation(OP, one)
        yield empty


def add_run(store: Store, run_id: str, strategy: str, rounds: Sequence[Round], at: float, **changes: Any) -> None:
    """A run whose drafts were each measured beside the naive kernel, from minute ``at`` on."""
    fields: dict[str, Any] = {
        "provider": "manual",
        "model": "expert",
        "status": "finished",
        "settings": {"rounds": 3},
        "spend": {"evaluations": len(rounds) + 1, "gpu_seconds": 125.0},
        "started_at": make.instant(at),
    }
    run = make.run_row(OP, run_id=run_id, strategy=strategy, **(fields | changes))
    store.start_run(run)
    (baseline,) = make.measured(OP, {NAIVE: 0.2}, at=at)
    store.add_step(
        make.step_row(
            run, 0, "baseline", action="baseline", version_id=NAIVE.id, evaluation_id=store.add_evaluation(OP, baseline)
        )
    )
    for number, (outcome, efficiency, action) in enumerate(rounds, start=1):
        draft = make.candidate(OP, f"{run_id} {number}", parents=[NAIVE.id])
        ids = {one.candidate: store.add_evaluation(OP, one) for one in tried(draft, efficiency, at + number)}
        store.add_step(
            make.step_row(
                run, number, outcome, action=action, version_id=draft.id, parent_version_id=NAIVE.id, evaluation_id=ids[draft]
            )
        )  # fmt: skip


def tried(draft: Candidate, efficiency: float | None, at: float) -> Sequence[Any]:
    if efficiency is None:
        return [make.failed(OP, draft, Status.CHECK_FAILED, at=at)]
    return make.measured(OP, {NAIVE: 0.2, draft: efficiency}, at=at, seed=int(at))


def page_of(store: Store, folder: Path) -> tuple[Path, Node]:
    out = build(store, folder / "site").out
    return out, parse(out / "op" / "scale.html")


def compared(page: Node) -> Table | None:
    found = [table(one) for one in page.all("table")]
    return next((one for one in found if "answered by" in one.heads), None)


def test_two_strategies_stand_side_by_side_with_the_figures_of_their_runs(store: Store, tmp_path: Path) -> None:
    add_run(store, "a1000001", "cudamaster", OURS, 100)
    add_run(store, "b2000002", "astra", THEIRS, 200, status="waiting")
    site = Site(store)
    out, page = page_of(store, tmp_path)

    figure = page.first("figure", id="strategies-fp32")
    assert figure is not None and (figure.first("h2") or figure).text == "Against Astra"
    script = figure.first("script")
    assert script is not None
    traces = json.loads(script.raw)["data"]
    lines = {trace["name"]: trace for trace in traces if trace["mode"] == "lines"}
    marks = {trace["name"]: trace for trace in traces if trace["mode"] == "markers"}
    ours, theirs, rival = "cudamaster, answered by expert", "astra, answered by expert", "vendor, the fastest library"
    assert list(lines) == [ours, theirs, rival] and list(marks) == [ours, theirs]
    assert lines[ours]["meta"] != lines[theirs]["meta"]

    # Beside the naive kernel's 0.2 a draft's 0.9 is 4.5×; the smallest case is bound by its launch, so the mean is below that.
    came = {run.row.id: [step.over_naive for step in judged] for run, judged in told_by_run(site)}
    first, _, last = (one and one.value for one in came["a1000001"][1:])
    assert first and last and 1 < first < last <= 4.6
    assert lines[ours]["y"] == pytest.approx([1, first, first, last], rel=1e-5)
    assert marks[ours]["y"] == pytest.approx([first, last], rel=1e-5)
    assert lines[ours]["x"] == [0, 1, 2, 3]
    best, slower, lost = (one and one.value for one in came["b2000002"][1:])
    assert best and slower and lost is None
    assert lines[theirs]["y"] == pytest.approx([1, best, best, best], rel=1e-5)
    assert marks[theirs]["y"] == pytest.approx([best, slower], rel=1e-5)
    library = site.library("scale/fp32")
    assert library is not None and library.over_naive is not None
    assert lines[rival]["y"] == pytest.approx([library.over_naive.value] * 2, rel=1e-5)

    shown = compared(page)
    assert shown is not None
    rows = [[cell.text for cell in cells] for _, cells in shown.rows]
    author = "a person or a language model, through prompt files; model not recorded named expert"
    assert [row[:3] for row in rows] == [
        ["a1000001", "cudamaster", author],
        ["b2000002", "astra", f"{author} waiting"],
    ]
    assert [row[3] for row in rows] == ["2 of 3 and 1 repair", "3 of 3"]
    assert [row[4].split()[0] for row in rows] == [fmt.ratio(last), fmt.ratio(best)]
    assert [row[5:] for row in rows] == [["4", "2\u202fmin 5\u202fs"]] * 2
    said = (page.first("section", id="fp32") or page).text
    assert "with the same limit of 3 rounds; Astra here means its strategy as described in docs/strategies.md" in said
    for run in ("a1000001", "b2000002"):
        links = [a.attributes["href"] for a in parse(out / "run" / f"{run}.html").all("a")]
        assert "../op/scale.html#strategies-fp32" in links
    assert complaints(out) == []


def told_by_run(site: Site) -> Iterator[tuple[Any, Any]]:
    for one in rivalry.entrants(site, "scale/fp32"):
        yield one.run, one.judged


def test_one_strategy_alone_is_compared_with_nothing(store: Store, tmp_path: Path) -> None:
    add_run(store, "a1000001", "cudamaster", OURS, 100)
    add_run(store, "a3000003", "cudamaster", THEIRS, 200)
    out, page = page_of(store, tmp_path)
    assert page.first("figure", id="strategies-fp32") is None and compared(page) is None
    assert "Astra" not in page.text
    assert "#strategies-" not in (out / "run" / "a1000001.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "running"},
        {"status": "failed"},
        {"settings": {"rounds": 3, "start": NAIVE.id}},
        {"replay_of": "a1000001"},
    ],
)
def test_a_run_that_is_incomplete_or_begins_elsewhere_or_repeats_another_is_left_out(
    store: Store, changes: dict[str, Any]
) -> None:
    add_run(store, "a1000001", "cudamaster", OURS, 100)
    add_run(store, "b2000002", "astra", THEIRS, 200, **changes)
    site = Site(store)
    assert rivalry.of_task(site, site.tasks["scale/fp32"]) is None


def test_a_replay_stands_for_a_run_that_is_not_there_once(store: Store) -> None:
    add_run(store, "a1000001", "cudamaster", OURS, 100)
    add_run(store, "b2000002", "astra", THEIRS, 200, replay_of="c5000005")
    add_run(store, "b4000004", "astra", THEIRS, 300, replay_of="c5000005")
    assert [one.run.row.id for one in rivalry.entrants(Site(store), "scale/fp32")] == ["a1000001", "b2000002"]


def test_a_replay_is_left_out_even_where_the_run_that_it_repeats_is(store: Store) -> None:
    add_run(store, "a1000001", "cudamaster", OURS, 100)
    add_run(store, "b2000002", "astra", THEIRS, 200, status="failed")
    add_run(store, "b4000004", "astra", THEIRS, 300, replay_of="b2000002")
    add_run(store, "b6000006", "astra", THEIRS, 400, replay_of="b4000004")
    assert [one.run.row.id for one in rivalry.entrants(Site(store), "scale/fp32")] == ["a1000001"]


def test_a_figure_that_is_not_its_runs_own_is_found(store: Store, tmp_path: Path) -> None:
    add_run(store, "a1000001", "cudamaster", OURS, 100)
    add_run(store, "b2000002", "astra", THEIRS, 200)
    out, _ = page_of(store, tmp_path)
    page = out / "op" / "scale.html"
    changed, count = re.subn(r"( of 3<.*?<td [^>]*>)[\d.]+×", r"\g<1>77.7×", page.read_text(encoding="utf-8"), count=1)
    assert count
    page.write_text(changed, encoding="utf-8")
    assert any("77.7× 4.17 to 4.18 beside other strategies, and 4.17×" in one for one in complaints(out))


def test_runs_of_one_name_are_told_apart_and_without_astra_the_title_does_not_name_it(store: Store) -> None:
    add_run(store, "a1000001", "cudamaster", OURS, 100)
    add_run(store, "a3000003", "cudamaster", THEIRS, 200, settings={"rounds": 5})
    add_run(store, "b2000002", "best_of_n", THEIRS, 300, provider="openai", model="a-model")
    site = Site(store)
    found = rivalry.of_task(site, site.tasks["scale/fp32"])
    assert found is not None and found.chart.title == "Strategies compared" and found.limit is None
    assert [one.name for one in found.entrants] == [
        "best_of_n, answered by a-model",
        "cudamaster, answered by expert, run a1000001",
        "cudamaster, answered by expert, run a3000003",
    ]
