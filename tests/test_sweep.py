"""Constants that a kernel declares: how they are read and written, and that the fastest point wins only if it is faster."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from msbench import tuning
from msbench.errors import MsbenchError
from msbench.harness.batch.job import Job
from msbench.harness.evaluate import Plan
from msbench.model import Candidate, Evaluation, Origin, Status
from msbench.optimize.sweep import sweep
from msbench.spec import Task
from msbench.store.store import Store
from tests import factories
from tests.optimizing import FakeExecutor

OP = factories.operator()
SOURCE = """// tune: TILE = 64 | 128 | 256
// tune: UNROLL = 1 | 2
#define UNROLL 1  // not 10
constexpr int64_t TILE = 64;
__global__ void kernel() { int TILE_N = TILE * UNROLL; }
"""


def test_the_constants_of_a_source() -> None:
    tile, unroll = tuning.tunables(SOURCE)
    assert (tile.name, tile.values, tile.given) == ("TILE", ("64", "128", "256"), "64")
    assert (unroll.name, unroll.values, unroll.given) == ("UNROLL", ("1", "2"), "1")
    assert tuning.size((tile, unroll)) == 6 == len({tuple(p.items()) for p in tuning.points((tile, unroll))})
    assert tuning.tunables("int tune = 3; // tuned") == ()


def test_a_point_is_written_into_the_definitions_and_nowhere_else() -> None:
    again = tuning.written(SOURCE, {"TILE": "256", "UNROLL": "2"})
    assert "constexpr int64_t TILE = 256;" in again and "#define UNROLL 2  // not 10" in again
    assert tuning.written(again, {"TILE": "64", "UNROLL": "1"}) == SOURCE


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("// tune: TILE = 64", "expected a name and integers"),
        ("// tune: TILE = 64 | wide", "expected a name and integers"),
        ("// tune: TILE 64 | 128", "expected a name and integers"),
        ("// tune: OTHER = 1 | 2", "OTHER is defined 0 times"),
        ("// tune: TILE = 1 | 2\n// tune: TILE = 3 | 4", "TILE is declared twice"),
        ("// tune: TILE = 1 | 2\n#define TILE 1", "TILE is defined 2 times"),
    ],
)
def test_a_wrong_declaration_is_refused_with_what_is_meant(line: str, says: str) -> None:
    with pytest.raises(MsbenchError, match=re.escape(says)):
        tuning.tunables(f"{line}\nconstexpr int TILE = 64;\n")


def kernel(a: int, b: int) -> Candidate:
    head = f"// tune: A = {' | '.join(map(str, range(a)))}\n// tune: B = {' | '.join(map(str, range(b)))}\n#define A 0\n#define B 0\n"
    return replace(factories.candidate(OP, "tunable"), source=head + factories.candidate(OP, "tunable").source)


def efficiency(candidate: Candidate) -> float:
    a, b = (int(value) for value in re.findall(r"#define [AB] (\d+)", candidate.source))
    return 0.2 * (1 + 0.1 * a - 0.05 * b)


class Bench:
    """Stands in for ``evaluate_all``; a point with A = 1 and B = 1 does not compile."""

    def __init__(self, speed: Any = efficiency) -> None:
        self.groups: list[Job] = []
        self.speed = speed

    def __call__(
        self, executor: Any, jobs: Sequence[Job], *, command: str, progress: Any
    ) -> Iterator[tuple[Job, list[Evaluation]]]:
        for job in jobs:
            self.groups.append(job)
            good = {c: self.speed(c) for c in job.candidates if "A 1\n#define B 1\n" not in c.source}
            found = {
                e.candidate: e
                for e in factories.measured(OP, good, cases=job.plan.cases, seed=len(self.groups), at=len(self.groups))
            }
            yield job, [found.get(c) or factories.failed(OP, c, Status.BUILD_FAILED) for c in job.candidates]


def run(candidate: Candidate, store: Store, bench: Bench, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr("msbench.optimize.sweep.evaluate_all", bench)
    executor = options.pop("executor", FakeExecutor())
    return sweep(
        executor, Task(OP, candidate.precision), candidate, Plan(OP.cases), store=lambda results: store.add_evaluations(OP, results),
        command="msbench sweep", progress=None, **options,
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_small_space_is_measured_whole_and_the_winner_on_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    with Store(":memory:") as store:
        found = run(kernel(4, 2), store, bench, monkeypatch)
        assert len(found.measured) == 7 and dict(found.measured[0].point) == {"A": "3", "B": "0"}
        assert found.winner is not None and "#define A 3\n#define B 0\n" in found.winner.source
        assert found.winner.parents == (kernel(4, 2).id,) and found.winner.origin is Origin.AGENT
        assert found.confirmed is not None and found.confirmed.value == pytest.approx(1.3, rel=0.02)
        assert [one.problem for one in found.measured if one.ratio is None] == [
            "compile: Line 3: identifier 'blockIdy' is undefined."
        ]
        assert len(store.versions()) == 8  # all points are rows
        assert bench.groups[-1].plan.cases == OP.cases and len(bench.groups[-1].candidates) == 2
        assert all(len(job.plan.cases) < len(OP.cases) and len(job.candidates) <= 8 for job in bench.groups[:-1])


def test_what_only_looked_faster_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(":memory:") as store:
        flat = run(
            kernel(3, 2), store, Bench(lambda candidate: 0.2 - 0.01 * (efficiency(candidate) != 0.2)), monkeypatch
        )
        assert flat.winner is None and flat.confirmed is None
        lucky = Bench()
        lucky.speed = lambda candidate: 0.2 if len(lucky.groups) > 1 else efficiency(candidate)
        lost = run(kernel(3, 2), store, lucky, monkeypatch)
        assert lost.winner is None and lost.confirmed is not None and lost.confirmed.low <= 1


def test_a_sweep_needs_a_declaration_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(":memory:") as store:
        with pytest.raises(MsbenchError, match="declares no constants"):
            run(factories.candidate(OP, "plain"), store, Bench(), monkeypatch)
        with pytest.raises(MsbenchError, match="needs times"):
            run(kernel(2, 2), store, Bench(), monkeypatch, executor=FakeExecutor("cpu", measures=False))


class Study:
    """Optuna's, as far as it is used: points in a row, some of them twice."""

    def __init__(self) -> None:
        self.asked = 0
        self.told: list[float | str] = []

    def ask(self) -> Any:
        number, self.asked = self.asked // 2, self.asked + 1
        params: dict[str, str] = {}

        def suggest(name: str, values: list[str]) -> str:
            params[name] = values[(number // 10 if name == "B" else number) % len(values)]
            return params[name]

        return SimpleNamespace(suggest_categorical=suggest, params=params)

    def tell(self, trial: Any, value: float | None = None, state: str = "") -> None:
        self.told.append(state or (value or 0.0))


def test_of_a_large_space_optuna_chooses_and_hears_how_its_points_did(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study()
    fake = SimpleNamespace(
        logging=SimpleNamespace(set_verbosity=lambda level: None, WARNING=30),
        samplers=SimpleNamespace(TPESampler=lambda **options: None),
        trial=SimpleNamespace(TrialState=SimpleNamespace(FAIL="fail")),
        create_study=lambda **options: study,
    )
    monkeypatch.setitem(sys.modules, "optuna", fake)
    with Store(":memory:") as store:
        found = run(kernel(10, 9), store, Bench(), monkeypatch, number=20)
    assert len(found.measured) == 20 and len({one.version for one in found.measured}) == 20
    ratios = [value for value in study.told if value != "fail"]
    assert len(ratios) == 19 and max(map(float, ratios)) == pytest.approx(1.9, rel=0.02)  # one did not compile
    monkeypatch.setitem(sys.modules, "optuna", None)
    with Store(":memory:") as store, pytest.raises(MsbenchError, match=r"90 points.*install optuna"):
        run(kernel(10, 9), store, Bench(), monkeypatch)


def test_the_sweeps_contract_is_documented() -> None:
    contract = (Path(__file__).parents[1] / "docs" / "contract.md").read_text("utf-8")
    example = contract.partition("<!-- tune -->")[2].partition("```c++\n")[2].partition("```")[0]
    assert [one.name for one in tuning.tunables(example)] == ["TILE", "STAGES"]
