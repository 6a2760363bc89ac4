"""Starts a run, or resumes a stored one."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace

from msbench.agents import Strategy
from msbench.errors import MsbenchError
from msbench.harness.evaluate import Executor
from msbench.optimize.budget import Budget, cost_of
from msbench.optimize.journal import Journal, now
from msbench.optimize.settings import Settings
from msbench.providers import Provider
from msbench.spec import Task
from msbench.store.store import Store
from msbench.store.tables import RunRow


def start(
    task: Task, strategy: Strategy, provider: Provider, executor: Executor, store: Store, readers: Store | None,
    settings: Settings, seed: int, budget: Budget, command: str,
) -> Journal:  # fmt: skip
    if budget.cost_usd is not None:
        cost_of(provider, 0, 0)  # refuse at once what could not be kept later
    run_id = uuid.uuid4().hex
    recording = provider.recording(task.id)
    if recording is not None and recording.strategy != strategy.name:
        raise MsbenchError(
            f"Run {recording.id[:12]} was recorded with the strategy {recording.strategy}, and its answers only fit that "
            f"one's prompts: leave out --strategy {strategy.name}."
        )
    provider.begin(run_id, task.id, ())
    device = executor.device()
    store.add_task(task)
    store.add_device(device)
    ceilings = executor.ceilings()
    if ceilings is not None:
        store.add_ceilings(device, ceilings)
    row = RunRow(
        id=run_id,
        task_id=task.id,
        strategy=strategy.name,
        provider=provider.name,
        model=provider.model,
        executor=executor.name,
        device_id=device.id,
        seed=seed,
        budget=asdict(budget),
        spend={},
        settings=settings.stored(),
        status="running",
        note="",
        command=command,
        started_at=now(),
        replay_of=provider.replay_of,
    )
    store.start_run(row)
    return Journal(store, readers, store.run(run_id), task.operator)


def reopen(
    task: Task, strategy: Strategy, provider: Provider, executor: Executor, store: Store, readers: Store | None,
    run_id: str, rounds: int | None, budget: Budget | None,
) -> Journal:  # fmt: skip
    row = store.run(run_id)
    device = executor.device()
    for what, given, stored in (
        ("task", task.id, row.task_id),
        ("strategy", strategy.name, row.strategy),
        ("executor", executor.name, row.executor),
        ("device", device.id, row.device_id),
    ):
        if given != stored:
            given = f"{device.name} with driver {device.driver}" if what == "device" else given
            raise MsbenchError(
                f"Run {row.id[:12]} was begun on another {what}, not {given}: use that one, or start a new run."
            )
    journal = Journal(store, readers, row, task.operator)
    provider.begin(row.id, task.id, journal.calls)
    if provider.model != row.model:
        raise MsbenchError(
            f"Run {row.id[:12]} was begun with the model {row.model!r}, not {provider.model!r}: use that one, or start "
            "a new run."
        )
    settings = Settings.read(row.settings)
    fields = {"settings": replace(settings, rounds=rounds).stored()} if rounds is not None else {}
    if budget is not None:
        fields["budget"] = asdict(Budget(**row.budget).changed_by(budget))
    journal.update(status="running", finished_at=None, **fields)
    return journal
