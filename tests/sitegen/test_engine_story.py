"""The pages of a run that the engine itself made: what it stores is what the site tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from msbench import agents
from msbench.optimize import optimize
from msbench.sitegen import build, verdict
from msbench.sitegen.facts import Site
from msbench.sitegen.pages.run import attribution
from msbench.store.store import Store
from tests import optimizing


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with one run in which everything happens."""
    monkeypatch.setattr("msbench.optimize.engine.evaluate", optimizing.World().evaluate)
    task = optimizing.task(tmp_path / "scale")
    with Store(":memory:") as store:
        optimize(
            task, executor=optimizing.FakeExecutor(), provider=optimizing.Scripted(optimizing.story()), store=store,
            strategy=agents.pick("cudamaster"), plan=optimizing.plan(task), rounds=optimizing.ROUNDS, command="msbench optimize scale",
        )  # fmt: skip
        yield store


def test_every_step_is_told_and_every_gain_is_measured(store: Store, tmp_path: Path) -> None:
    site = Site(store)
    (run,) = site.runs.values()
    assert verdict.run(site, run).startswith(
        "In 7 rounds, 2 made it faster, 1 made it slower, 1 failed and 3 produced no new kernel. The best is 3.0"
    )
    out = build(store, tmp_path / "site").out
    page = (out / run.href).read_text(encoding="utf-8")
    assert re.findall(r"id=step-(\d+)", page) == [str(n) for n in range(8)]


def test_the_gain_of_the_best_version_is_shared_among_the_steps_that_brought_it(store: Store, tmp_path: Path) -> None:
    site = Site(store)
    (run,) = site.runs.values()
    gains = attribution(site, run)
    assert [one["row"].number for one in gains] == [1, 3]
    assert [one["over"].value for one in gains] == pytest.approx([2.0, 1.5], rel=0.02)
    assert all(one["over"].low < one["over"].value < one["over"].high for one in gains)
    page = (build(store, tmp_path / "site").out / run.href).read_text(encoding="utf-8")
    assert "Where the gain comes from" in page and f"{gains[1]['over'].value:.3f}×" in page


def test_a_version_was_measured_beside_the_one_it_came_from(store: Store) -> None:
    site = Site(store)
    second = next(v for v in site.versions.values() if v.name == "step 3")
    first = site.predecessor(second)  # step 2, its parent, did not build
    assert first is not None and first.name == "step 1"
    compared = site.compared(second, first)
    assert compared.overall is not None
    assert compared.overall.value == pytest.approx(1.5, rel=0.03)
    assert compared.overall.low < compared.overall.value < compared.overall.high
    assert {case.name for case, _ in compared.cases} == {c.case.name for c in second.cases}
    assert "as fast as its last working ancestor, step 1" in verdict.version(site, second)
