from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from msbench.archive import integrity
from msbench.errors import StoreError
from msbench.figures.proofs import Proof, proofs
from msbench.model import Device, Study, Trial
from msbench.store.store import Store
from tests.factories import CPU, GPU, trial


@pytest.fixture(autouse=True)
def devices(store: Store) -> None:
    for device in (CPU, GPU):
        store.add_device(device)


def subjects(proof: Proof) -> list[str]:
    return [one.subject for one in proof.trials]


def test_a_trial_comes_back_as_it_was_and_twice_is_once(store: Store) -> None:
    one = trial(details={"samples": [1.25, 3e9], "figure": None, "messages": ["ä", "b"]})
    other = trial(at=1, study=Study.SAME, held=False)
    for _ in range(2):
        store.add_trials([other, one])
    assert store.trials() == [one, other]
    assert store.trials(Study.SAME) == [other]
    assert store.trials(Study.FAULTS) == []
    assert integrity.check(store) == []


def test_what_numpy_counted_is_stored_as_plain_numbers(store: Store) -> None:
    strange: Any = np.bool_(False)
    store.add_trials([trial(held=strange, details={"median": np.float64(1.5), "low": float("nan"), "n": np.int64(3)})])
    [back] = store.trials()
    assert back.held is False
    assert back.details == {"median": 1.5, "low": None, "n": 3}
    assert integrity.check(store) == []


def test_a_trial_on_a_device_that_nobody_described_is_refused_with_all_that_came_with_it(store: Store) -> None:
    with pytest.raises(StoreError, match="refused a row"):
        store.add_trials([trial(), trial("other", device_id="nobody")])
    assert store.trials() == []


def test_the_newest_recording_counts_on_each_device_and_gpus_come_first(store: Store) -> None:
    newer_gpu = replace(GPU, driver="581.0")
    store.add_device(newer_gpu)

    def recording(device: Device, at: float, held: bool) -> list[Trial]:
        return [trial("b", at, device_id=device.id, held=held), trial("a", at, device_id=device.id)]

    for device, at, held in ((GPU, 0, False), (GPU, 1, True), (newer_gpu, 2, False), (CPU, 3, True)):
        store.add_trials(recording(device, at, held))
    found = proofs(store, Study.EXPLOITS)
    assert [proof.device.id for proof in found] == [newer_gpu.id, GPU.id, CPU.id]
    assert [(proof.held, proof.total) for proof in found] == [(1, 2), (2, 2), (2, 2)]
    assert [proof.created_at for proof in found] == [trial(at=at).created_at for at in (2, 1, 3)]
    assert all(subjects(proof) == ["a", "b"] for proof in found)
    assert proofs(store, Study.SAME) == []


def test_a_recording_may_be_in_parts_made_by_several_commands(store: Store) -> None:
    store.add_trials([trial("a", 0, command="first"), trial("b", 1, command="second", held=False)])
    [proof] = proofs(store, Study.EXPLOITS)
    assert subjects(proof) == ["a", "b"]
    assert proof.commands == ("first", "second")
    assert proof.created_at == trial(at=1).created_at
    store.add_trials([trial("c", 2, harness="h2")])
    [proof] = proofs(store, Study.EXPLOITS)
    assert (subjects(proof), proof.harness) == (["c"], "h2")


def test_of_kills_the_newest_of_each_command_counts(store: Store) -> None:
    """A kill of one command says nothing of another, and a GPU is not always there for all of them."""

    def kills(command: str, at: float, harness: str, number: int = 0, held: bool = True) -> list[Trial]:
        name = f"{command}, kill {number}"
        return [trial(name, at, study=Study.FAULTS, harness=harness, held=held, details={"command": command})]

    store.add_trials([*kills("bench", 0, "h1", held=False), *kills("merge", 0, "h1", held=False)])
    store.add_trials([*kills("bench", 1, "h2"), *kills("optimize", 1, "h2")])
    store.add_trials(kills("merge", 2, "h3"))
    store.add_trials(kills("merge", 3, "h3", 1))
    newest, older = proofs(store, Study.FAULTS)
    assert (newest.harness, subjects(newest)) == ("h3", ["merge, kill 0", "merge, kill 1"])
    assert (older.harness, subjects(older)) == ("h2", ["bench, kill 0", "optimize, kill 0"])
    assert newest.held == older.held == 2


def test_repeating_what_did_not_hold_does_not_mend_the_recording(store: Store) -> None:
    store.add_trials([trial("a"), trial("b", held=False), trial("c")])
    store.add_trials([trial("b", at=1)])
    [proof] = proofs(store, Study.EXPLOITS)
    assert (proof.held, proof.total) == (1, 1)
