"""Many runs at once: batches in lockstep, a device that is held only while it works, errors that stay where they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msbench import agents, providers
from msbench.conversation import Limits, Message, Reply
from msbench.errors import DeviceError, MsbenchError, SpecError, WaitingForAnswer
from msbench.harness.batch.job import Job
from msbench.model import Evaluation
from msbench.optimize import Ended, Settings, Summary, Together, optimize
from msbench.spec import Precision, Task
from msbench.store.store import Store
from tests import factories, optimizing
from tests.optimize_busy import at_work
from tests.optimizing import FakeExecutor, Scripted, World, fenced, kernel, planned


class Desk:
    """Stands in for the device and for ``evaluate_all``; ``batches`` has the tasks and the last version of each group."""

    def __init__(self) -> None:
        self.world = World()
        self.batches: list[list[tuple[str, str]]] = []
        self.held = 0
        self.taken = 0
        self.refuse: Callable[[Job], Exception | None] = lambda job: None
        self.end: BaseException | None = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        self.held += 1
        self.taken += 1
        yield FakeExecutor()
        self.held -= 1

    def evaluate_all(
        self, executor: Any, jobs: Sequence[Job], *, command: str, progress: Any, build: Any, referees: Any
    ) -> Iterator[tuple[Job, list[Evaluation] | Exception]]:
        assert self.held == 1
        self.batches.append(sorted((job.task.id, job.candidates[-1].label) for job in jobs))
        for job in jobs:
            if self.end and len(self.batches) > 1:
                raise self.end
            refused = self.refuse(job)
            yield (
                job,
                refused or self.world.evaluate(executor, job.task, job.candidates, job.plan, command=command),
            )


class Silent:
    def started(self, text: str) -> None: ...
    def advanced(self, done: int, total: int, text: str) -> None: ...


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk()
    monkeypatch.setattr("msbench.optimize.together.evaluate_all", desk.evaluate_all)
    monkeypatch.setattr(FakeExecutor, "build", lambda self, op, candidate: factories.build(candidate), raising=False)
    return desk


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as store:
        yield store


def named(folder: Path, name: str) -> Task:
    made = optimizing.task(folder / name)
    return Task(replace(made.operator, name=name), Precision.FP32)


def session(task: Task, store: Store, provider: providers.Provider, **options: Any) -> tuple[str, Any]:
    given: dict[str, Any] = {"settings": Settings(optimizing.plan(task), 1, None)} if "resume" not in options else {}

    def run(together: Together) -> Summary:
        return optimize(
            task, strategy=agents.pick("cudamaster"), provider=provider, executor=FakeExecutor(), store=store,
            evaluates=together.evaluate, **(given | options),
        )  # fmt: skip

    return task.id, run


def coded(name: str) -> str:
    """A coder's answer for the operator ``name``."""
    return fenced(kernel(2.0).replace(" scale(", f" {name}("))


def one_round(task: Task) -> Scripted:
    return Scripted({"planner": [planned(2.0)], "coder": [coded(task.operator.name)]})


def together(desk: Desk, runs: Sequence[tuple[str, Any]], *, lockstep: bool = False) -> list[Ended]:
    return Together(desk.opened, lockstep=lockstep, progress=Silent()).run(runs)


def test_in_lockstep_every_run_is_in_every_batch(desk: Desk, store: Store, tmp_path: Path) -> None:
    tasks = [named(tmp_path, name) for name in ("one", "two", "three")]
    ended = together(desk, [session(task, store, one_round(task)) for task in tasks], lockstep=True)
    assert [(one.task, one.summary and one.summary.status) for one in ended] == [(t.id, "finished") for t in tasks]
    labels = [{label for _, label in batch} for batch in desk.batches]
    assert [len(batch) for batch in desk.batches] == [3] * 4 and labels == [
        {"naive"},
        {"naive"},
        {"step 1"},
        {"step 1"},
    ]
    assert desk.held == 0


def test_answers_in_a_folder_are_taken_in_one_batch_and_the_next_prompts_written(
    desk: Desk, store: Store, tmp_path: Path
) -> None:
    tasks = [named(tmp_path, name) for name in ("one", "two")]

    def call() -> list[Ended]:
        runs = {run.task_id: run.id for run in store.runs()}
        some = []
        for task in tasks:
            provider = providers.pick("manual", folder=tmp_path / "prompts", wait=False)
            some.append(session(task, store, provider, **({"resume": runs[task.id]} if runs else {})))
        return together(desk, some, lockstep=True)

    assert all(isinstance(one.error, WaitingForAnswer) for one in call())
    for prompt in (tmp_path / "prompts").rglob("001-planner.md"):
        prompt.with_suffix(".answer.md").write_text(planned(2.0))
    call()
    first = next(prompt for prompt in (tmp_path / "prompts").rglob("002-coder.md") if " one(" in prompt.read_text())
    first.with_suffix(".answer.md").write_text(coded("one"))
    before = len(desk.batches)
    ended = call()  # one answered, and its only round is over; the other still waits
    assert sorted(bool(one.summary) for one in ended) == [False, True]
    assert [len(batch) for batch in desk.batches[before:]] == [1, 1]  # the second proves the best version
    assert sorted(run.status for run in store.runs()) == ["finished", "waiting"]


def test_an_answer_to_another_version_of_its_prompt_is_set_aside(tmp_path: Path) -> None:
    def ask(text: str) -> Reply:
        provider = providers.pick("manual", folder=tmp_path, wait=False)
        provider.begin("run", "scale/fp32", ())
        return provider.answer("001", "coder", [Message("user", text)], Limits())

    prompt, answer = tmp_path / "run" / "001-coder.md", tmp_path / "run" / "001-coder.answer.md"
    with pytest.raises(WaitingForAnswer):
        ask("first")
    head = prompt.read_text().splitlines()[0]
    answer.write_text("An answer without the line.")
    assert ask("first").text == "An answer without the line."
    with pytest.raises(
        WaitingForAnswer, match=r"answers another version of its prompt, so it was set aside as 001-coder.answer.md.to-"
    ):
        ask("second")
    answer.write_text(f"{head}\nAn answer that travelled, beside the new prompt.")
    with pytest.raises(WaitingForAnswer, match="another version of its prompt"):
        ask("second")
    answer.write_text(prompt.read_text().splitlines()[0] + "\nRight.")
    assert ask("second").text == "Right."


def test_what_is_wrong_with_one_ends_no_other(desk: Desk, store: Store, tmp_path: Path) -> None:
    tasks = [named(tmp_path, name) for name in ("one", "broken", "refused", "four")]
    (tmp_path / "broken" / "naive.cu").write_text(kernel(broken="check"))
    desk.refuse = lambda job: SpecError("Its spec is wrong.") if job.task.operator.name == "refused" else None
    ended = together(desk, [session(task, store, one_round(task)) for task in tasks])
    assert [one.summary.status if one.summary else str(one.error)[:12] for one in ended] == [
        "finished", "The naive ke", "Its spec is ", "finished",
    ]  # fmt: skip
    desk.refuse, desk.end = lambda job: None, DeviceError("The GPU is gone.")
    lost = together(desk, [session(task, store, one_round(task)) for task in tasks[:1]])
    assert isinstance(lost[0].error, MsbenchError) and store.runs()[-1].status == "stopped"


class Thinking(Scripted):
    """Thinks until ``others`` think, too, and the device is free; notes whether it ever was."""

    def __init__(self, desk: Desk, number: int, others: threading.Barrier) -> None:
        super().__init__({})
        self.desk, self.number, self.others = desk, number, others
        self.held: list[int] = []

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        self.others.wait(60)
        deadline = time.monotonic() + 30
        while self.desk.held and time.monotonic() < deadline:
            time.sleep(0.02)
        self.held.append(self.desk.held)
        self.answers = {"planner": [planned(2.0)], "coder": [coded(f"op{self.number}")]}
        return super().complete(agent, messages, limits)


def test_the_device_is_others_while_models_think_and_models_think_side_by_side(
    desk: Desk, store: Store, tmp_path: Path
) -> None:
    together_or_never = threading.Barrier(4)
    thinkers = [Thinking(desk, i, together_or_never) for i in range(4)]
    runs = [session(named(tmp_path, f"op{i}"), store, thinker) for i, thinker in enumerate(thinkers)]
    assert all(one.summary for one in together(desk, runs))
    alone = Thinking(desk, 9, threading.Barrier(1))
    taken = desk.taken
    together(desk, [session(named(tmp_path, "op9"), store, alone)])
    assert alone.held == [0, 0] and 2 <= desk.taken - taken <= 4  # both baselines, the draft and its proof


def test_an_interruption_stops_the_runs_that_wait_for_the_device(desk: Desk, store: Store, tmp_path: Path) -> None:
    desk.end = KeyboardInterrupt()
    tasks = [named(tmp_path, name) for name in ("one", "two")]
    with pytest.raises(KeyboardInterrupt):
        together(desk, [session(task, store, one_round(task)) for task in tasks], lockstep=True)
    for thread in (t for t in threading.enumerate() if t.name.startswith("msbench-run")):
        thread.join(30.0)
        assert not thread.is_alive()
    assert [run.status for run in store.runs()] == ["stopped", "stopped"]


def test_what_overlaps_is_work_once() -> None:
    assert at_work([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 2.5)]) == (4.0, 6.0)
