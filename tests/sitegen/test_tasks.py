"""Which version of a task is shown as what, and that all pages say the same of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from msbench.figures.standings import means, standings
from msbench.model import Candidate, Origin
from msbench.sitegen import format as fmt
from msbench.sitegen import verdict
from msbench.sitegen.facts import Site
from msbench.sitegen.page import Page
from msbench.sitegen.pages import home, method, run, version
from msbench.sitegen.told import told
from msbench.spec import Split
from msbench.store.store import Store
from tests import factories as make

OP = make.operator()
NAIVE = make.candidate(OP, "naive", Origin.NAIVE)
LIBRARY = make.candidate(OP, "library", Origin.LIBRARY)
EARLIER, LATER = make.candidate(OP, "step 1"), make.candidate(OP, "step 2")
TASK = "scale/fp32"


@pytest.fixture
def empty() -> Iterator[Store]:
    with Store(":memory:") as store:
        yield store


def measured(store: Store, versions: dict[Candidate, float]) -> None:
    for one in make.measured(OP, versions):
        store.add_evaluation(OP, one)


def chose(store: Store, best: Candidate) -> None:
    """A run that made both versions and chose one."""
    row = make.run_row(OP, run_id="5e1ec7ed", best_version_id=best.id)
    store.start_run(row)
    for number, made in enumerate((EARLIER, LATER), start=1):
        store.add_step(make.step_row(row, number, "improved", version_id=made.id, parent_version_id=NAIVE.id))


@pytest.mark.parametrize(
    ("library", "ours", "fastest"), [(0.1, 0.8, "step 1"), (0.9, 0.8, "library"), (0.1, 0.3, "naive")]
)
def test_the_fastest_is_shown_whoever_wrote_it(empty: Store, library: float, ours: float, fastest: str) -> None:
    measured(empty, {NAIVE: 0.4, LIBRARY: library, EARLIER: ours})
    shown = home.row(Site(empty), TASK)
    assert shown["best"].name == "step 1"
    assert shown["fastest"].name == fastest


def test_of_versions_that_can_not_be_told_apart_the_best_is_the_one_that_the_run_chose(empty: Store) -> None:
    measured(empty, {NAIVE: 0.2, EARLIER: 0.8, LATER: 0.8001})
    first, second = Site(empty).versions_of(TASK)[1:]
    assert first.over_naive and second.over_naive and second.over_naive.high >= first.over_naive.low
    slower = EARLIER if second.id == EARLIER.id else LATER
    chose(empty, slower)
    site = Site(empty)
    best = site.best(TASK)
    assert best is not None and best.id == slower.id
    assert verdict.task(site, TASK).startswith(f"The best version, {slower.label}, is ")
    assert home.row(site, TASK)["fastest"] is best


@pytest.mark.parametrize(("first", "chosen"), [(0.8, LATER), (0.2, NAIVE)])
def test_a_choice_that_is_clearly_slower_or_not_ours_is_not_the_best(
    empty: Store, first: float, chosen: Candidate
) -> None:
    measured(empty, {NAIVE: 0.2, EARLIER: first, LATER: 0.15})
    chose(empty, chosen)
    best = Site(empty).best(TASK)
    assert best is not None and best.id == EARLIER.id


def test_a_library_that_is_slower_than_the_naive_kernel_is_no_bar_and_is_called_so(empty: Store) -> None:
    measured(empty, {NAIVE: 0.4, LIBRARY: 0.1, EARLIER: 0.8})
    site = Site(empty)
    (value, ends, what), *_ = [one for one in home.headlines(site) if "the bar" in one[2]]
    (best,) = (v for v in site.versions.values() if v.ours)
    assert best.over_naive and value == fmt.ratio(best.over_naive.value)
    assert ends == fmt.interval(best.over_naive.low, best.over_naive.high)
    assert what.startswith("over the bar: ")
    said = verdict.task(site, TASK)
    assert "as the fastest library call, which is slower than the naive kernel, over 4 cases" in said


def test_tasks_with_versions_of_our_own_come_first(empty: Store) -> None:
    others = make.operator("a_first_one")
    for one in make.measured(others, {make.candidate(others, "naive", Origin.NAIVE): 0.3}):
        empty.add_evaluation(others, one)
    measured(empty, {NAIVE: 0.2, EARLIER: 0.8})
    assert [[r["task"].operator for r in rows] for _, rows in home.scenarios(Site(empty))] == [
        ["scale"],
        ["a_first_one"],
    ]


def test_sizes_are_rated_as_by_the_standings(empty: Store) -> None:
    empty.add_ceilings(make.GPU, make.CEILINGS)
    measured(empty, {NAIVE: 0.2, EARLIER: 0.8})
    found = means(standings([Site(empty).figures[TASK]])[0])
    ((shown, label),) = [(one["rows"], one["label"]) for one in home.sizes(Site(empty))]
    assert make.GPU.name in label
    assert {one["sizes"]: one["mean"] for one in shown} == {
        home.SIZES[Split(split)]: mean for (_, split), mean in found.items()
    }
    assert shown[0]["sizes"] == home.SIZES[Split.PAPER]
    (large,) = [one["mean"] for one in shown if one["sizes"] == home.SIZES[Split.LARGE]]
    assert large.over_bar == pytest.approx(4.0, rel=0.05)


def test_failures_are_counted_alike_on_every_page(site: Site) -> None:
    lost = [e for e in site.evaluations.values() if e.status.endswith("_failed")]
    _, _, kept = home.headlines(site)[-1]
    assert f"in {len(site.evaluations)} evaluations on 2 devices, of which {len(lost)} failed and are kept" in kept
    said = method.outcomes(list(site.evaluations.values()))
    stages = re.search(r"failed (\d+) \((.*)\)$", said)
    assert stages is not None and int(stages[1]) == len(lost)
    assert sum(int(n) for n in re.findall(r"\d+", stages[2])) == len(lost)
    assert method.outcomes([]) == "–"


def test_a_run_is_repeated_from_its_recording(site: Site) -> None:
    original, replayed = site.runs["5f0c1f0e7d"], site.runs["0a77ab31c2"]
    command = "msbench optimize rms_scale/fp32 --provider replay --recording 5f0c1f0e7d"
    assert run.replay(original) == run.replay(replayed) == command


def test_who_wrote_a_version_is_said_the_same_way_everywhere(site: Site, built: Path) -> None:
    said = "a person or a language model, through prompt files; model not recorded"
    recorded, replayed = site.runs["5f0c1f0e7d"], site.runs["0a77ab31c2"]
    assert site.author(recorded) == site.author(replayed) == said
    noted = replace(
        recorded, row=make.run_row(OP, provider="manual", model="expert", note="A language model read them.")
    )
    assert noted.author == "a language model, through prompt files; model not recorded"
    named = replace(recorded, row=make.run_row(OP, provider="manual", model="somebody"))
    assert named.author == "somebody, through prompt files"
    (best,) = (v for v in site.versions.values() if v.name == "small blocks")
    assert site.written_by(best) == said
    for page in (recorded.href, replayed.href, best.href, "run/5f0c1f0e7d-step-1.html"):
        assert f"Written by {said}." in (built / page).read_text(encoding="utf-8"), page


def test_only_the_best_is_called_best(empty: Store) -> None:
    shipped, faster = make.candidate(OP, "best", Origin.EXPERT), make.candidate(OP, "step 1")
    measured(empty, {NAIVE: 0.2, shipped: 0.5, faster: 0.8})
    site = Site(empty)
    assert [v.name for v in site.versions_of(TASK)] == ["naive", "step 1", "shipped as best"]
    assert site.best(TASK) is site.versions[faster.id]


def test_a_shipped_version_is_replaced_by_a_later_one_only(empty: Store) -> None:
    """One that has been timed on another device alone is not, though an earlier one is the best on this one."""
    first, second = (
        replace(make.candidate(OP, "best", Origin.EXPERT), source=f"// {one}") for one in ("first", "second")
    )
    other = replace(make.GPU, name="NVIDIA Other GPU", uuid="GPU-2")
    for one in (*make.measured(OP, {NAIVE: 0.2, first: 0.5}), *make.measured(OP, {second: 0.6}, at=1, device=other)):
        empty.add_evaluation(OP, one)
    assert first.id not in Site(empty, make.GPU.id).successors and second.id not in Site(empty, make.GPU.id).successors
    for one in make.measured(OP, {NAIVE: 0.2, second: 0.6}, at=2):
        empty.add_evaluation(OP, one)
    site = Site(empty, make.GPU.id)
    assert site.successors[first.id] is site.versions[second.id]
    paths = {page.path for page in version.pages(site) if not isinstance(page, Page)}
    assert version._file(site.versions[second.id]) in paths and version._file(site.versions[first.id]) not in paths


def test_a_reference_implementation_is_no_library(empty: Store) -> None:
    measured(empty, {NAIVE: 0.2, make.candidate(OP, "straightforward", Origin.LIBRARY): 0.4, EARLIER: 0.8})
    site = Site(empty)
    said = verdict.task(site, TASK)
    assert "as fast as the reference implementation" in said and "library" not in said
    library = site.library(TASK)
    assert library is not None and library.kind == "reference implementation"
    assert {name: n for name, n, _ in method.origins(site)}["reference implementation"] == 1


def test_what_a_processor_lacks_is_not_printed(site: Site, built: Path) -> None:
    text = unescape((built / "method.html").read_text(encoding="utf-8"))
    assert text.count("multiprocessors,") == sum(d.kind == "cuda" for d in site.devices.values())
    assert "0\u202fB L2" not in text


def test_predictions_are_judged_by_intervals_case_by_case_where_they_were_made_so(site: Site, built: Path) -> None:
    told_run = site.runs["5f0c1f0e7d"]
    said = {s.number: told(site, told_run, s) for s in told_run.steps}
    assert [said[n].verdict for n in (0, 1, 2, 3, 4, 6)] == ["", "held", "", "did not hold", "did not hold", ""]
    last = said[5]
    assert last.before is not None and last.before.name == "grid stride, repaired"
    by_case = {gain.predicted: gain.verdict for gain in last.gains}
    assert by_case == {0.9: "held", 8.0: "did not hold", None: ""}
    page = (built / told_run.href).read_text(encoding="utf-8")
    assert page.count("<td class=t>did not hold") == 1


def test_a_run_on_another_device_and_what_came_of_it_have_the_times_of_that_device(empty: Store) -> None:
    measured(empty, {NAIVE: 0.4, LIBRARY: 0.5, EARLIER: 0.8})
    other = replace(make.GPU, name="NVIDIA Other GPU", uuid="GPU-2")
    row = make.run_row(OP, run_id="07e4de71ce", device_id=other.id, best_version_id=LATER.id, status="finished")
    at_once = make.measured(OP, {NAIVE: 0.4, LATER: 0.6}, at=-5, device=other)
    ids = [empty.add_evaluation(OP, one) for one in at_once]
    empty.start_run(row)
    empty.add_step(make.step_row(row, 0, "baseline", version_id=NAIVE.id, evaluation_id=ids[0]))
    empty.add_step(
        make.step_row(row, 1, "improved", version_id=LATER.id, parent_version_id=NAIVE.id, evaluation_id=ids[1])
    )
    site = Site(empty)
    assert site.device is not None and site.device.name == make.GPU.name
    assert site.versions[LATER.id].state == "timed on NVIDIA Other GPU" and not site.versions[LATER.id].over_naive
    own = site.on(other.id)
    assert own.versions[LATER.id].name == site.versions[LATER.id].name
    page = next(page for page in run.pages(site) if page.path == "run/07e4de71ce.html")
    assert isinstance(page, Page) and "NVIDIA Other GPU" in page.context["label"]
    assert page.context["steps"][1]["judged"].over_naive.value == pytest.approx(1.5, rel=0.02)
    shown = {page.path: page for page in version.pages(site)}
    of_run, of_site = (shown[site.versions[one.id].href] for one in (LATER, EARLIER))
    assert isinstance(of_run, Page) and "NVIDIA Other GPU" in of_run.context["label"]
    assert isinstance(of_site, Page) and make.GPU.name in of_site.context["label"]
    assert [one for page in shown.values() if isinstance(page, Page) for one in page.context.get("elsewhere", [])]
    told_of = home.story(site, site.runs["07e4de71ce"])
    assert told_of["gain"].value == pytest.approx(1.5, rel=0.02) and told_of["elsewhere"] == "NVIDIA Other GPU"
    assert site.on("nothing was timed there") is site and site.on(make.GPU.id) is site


def test_of_a_version_that_failed_it_is_said_where_it_has_passed_since_with_another_harness(empty: Store) -> None:
    measured(empty, {NAIVE: 0.4})
    empty.add_evaluation(OP, make.failed(OP, LATER, at=5))
    site = Site(empty, make.GPU.id)
    assert "it passed" not in verdict.version(site, site.versions[LATER.id])
    other = replace(make.GPU, name="NVIDIA Other GPU", uuid="GPU-2")
    for one in make.measured(OP, {LATER: 0.6}, at=11, device=other):
        empty.add_evaluation(OP, replace(one, harness="h2"))
    site = Site(empty, make.GPU.id)
    assert site.versions[LATER.id].failed
    assert "On NVIDIA Other GPU it passed on 1 November 2026" in verdict.version(site, site.versions[LATER.id])
