"""Trials of the evaluator itself, as shown to people: each study's newest recording on each device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlmodel import col, select

from msbench.commands import typed
from msbench.model import Device, Study, Trial
from msbench.store import convert
from msbench.store.store import Store
from msbench.store.tables import DeviceRow, TrialRow

LONG_NS = 20_000.0
"""From here on, what isn't known of an injected wait (some tens of nanoseconds) is little beside the time of a call."""


@dataclass(frozen=True)
class Proof:
    """The newest recording of a study on a device: at least one trial, in the order of their subjects.

    A recording may be in parts, made by several commands on one version of the harness. Of kills it is the newest of each
    command that was killed: those that were recorded on another version of the harness are a proof of their own.
    """

    study: Study
    device: Device
    trials: tuple[Trial, ...]

    @property
    def total(self) -> int:
        """How many things were tried."""
        return len(self.trials)

    @property
    def held(self) -> int:
        """How many of them came out as expected."""
        return sum(trial.held for trial in self.trials)

    @property
    def harness(self) -> str:
        """The digest of the evaluator's source."""
        return self.trials[0].harness

    @property
    def created_at(self) -> str:
        """When its newest part was recorded."""
        return max(trial.created_at for trial in self.trials)

    @property
    def commands(self) -> tuple[str, ...]:
        """What a person types to repeat it, each command once, the first part's first."""
        by_age = sorted(self.trials, key=lambda trial: trial.created_at)
        return tuple(dict.fromkeys(typed(trial.command) for trial in by_age))


def proofs(store: Store, study: Study) -> list[Proof]:
    """The newest recording of a study on each device that has one: GPUs first, then the newest first."""
    alike: dict[tuple[str, str], list[Trial]] = {}
    for trial in store.trials(study):
        command = str(trial.details.get("command", "")) if study is Study.FAULTS else ""
        alike.setdefault((trial.device_id, command), []).append(trial)
    recorded: dict[tuple[str, str], list[Trial]] = {}
    for (device_id, _), trials in alike.items():
        newest = _newest(trials)
        recorded.setdefault((device_id, newest[0].harness), []).extend(newest)
    with store.session() as session:
        query = select(DeviceRow).where(col(DeviceRow.id).in_(select(TrialRow.device_id)))
        devices = {row.id: convert.to_device(row) for row in session.exec(query)}
    found = [Proof(study, devices[id], tuple(sorted(trials, key=_by_subject))) for (id, _), trials in recorded.items()]
    found.sort(key=lambda proof: proof.created_at, reverse=True)
    return sorted(found, key=lambda proof: proof.device.kind != "cuda")


def _by_subject(trial: Trial) -> str:
    return trial.subject


def _newest(trials: Iterable[Trial]) -> list[Trial]:
    """The newest recording, and those before it on the same harness as long as they are about other subjects.

    So a study can be recorded in parts; but repeating one trial until it holds leaves only that one.
    """
    parts: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in trials:
        parts.setdefault((trial.created_at, trial.command, trial.harness), []).append(trial)
    newest_first = [parts[key] for key in sorted(parts, reverse=True)]
    taken: list[Trial] = []
    for part in newest_first:
        known = {trial.subject for trial in taken}
        if part[0].harness != newest_first[0][0].harness or any(trial.subject in known for trial in part):
            break
        taken += part
    return taken
