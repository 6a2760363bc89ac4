import pytest

from msbench.errors import IntegrityError, StoreError, UnknownNameError
from msbench.model import Origin
from msbench.spec import Task
from msbench.store.store import Store
from msbench.store.tables import RunRow
from tests.factories import FP32, GPU, candidate, operator, run_row, step_row

OP = operator()


@pytest.fixture
def run(store: Store) -> RunRow:
    store.add_task(Task(OP, FP32))
    store.add_device(GPU)
    row = run_row(OP, run_id="abc123")
    store.start_run(row)
    return row


def test_a_run_is_updated_and_found_by_its_beginning(store: Store, run: RunRow) -> None:
    store.update_run(run.id, status="finished", spend={"calls": 3})
    found = store.run("abc")
    assert (found.status, found.spend, found.budget) == ("finished", {"calls": 3}, {"rounds": 3})
    store.start_run(run_row(OP, run_id="abd"))
    assert store.run("abd").id == "abd"
    assert [row.id for row in store.runs("scale/fp32")] == ["abc123", "abd"]
    assert store.runs("scale/bf16") == []
    with pytest.raises(UnknownNameError, match=r"single run 'ab'.*abc123, abd"):
        store.run("ab")
    with pytest.raises(UnknownNameError, match="no run 'xyz'"):
        store.run("xyz")
    with pytest.raises(UnknownNameError):
        store.update_run("xyz", status="failed")
    with pytest.raises(TypeError, match="mood"):
        store.update_run(run.id, mood="good")


def test_the_same_run_is_not_started_twice(store: Store, run: RunRow) -> None:
    with pytest.raises(IntegrityError):
        store.start_run(run_row(OP, run_id=run.id))


def test_steps_come_in_order_and_a_repeated_one_must_be_the_same(store: Store, run: RunRow) -> None:
    for number in (2, 0, 1):
        store.add_step(step_row(run, number, "failed"))
    store.add_step(step_row(run, 1, "failed"))
    assert [step.number for step in store.steps(run.id)] == [0, 1, 2]
    with pytest.raises(StoreError, match="another step 1"):
        store.add_step(step_row(run, 1, "improved"))
    assert [step.outcome for step in store.steps(run.id)] == ["failed"] * 3


def test_a_step_names_stored_versions_only(store: Store, run: RunRow) -> None:
    version = candidate(OP, "naive", Origin.NAIVE)
    with pytest.raises(IntegrityError):
        store.add_step(step_row(run, 0, "baseline", version_id=version.id))
    store.add_version(OP, version)
    store.add_step(step_row(run, 0, "baseline", version_id=version.id))
    assert store.steps(run.id)[0].version_id == version.id


def call(store: Store, number: int, messages: list[tuple[str, str]], reply: str, step: int = 1) -> None:
    store.add_call(
        run_id="abc123",
        step_number=step,
        number=number,
        agent="coder",
        messages=messages,
        reply=reply,
        model="m",
        seconds=1.0,
    )


def test_conversations_come_back_in_order_and_share_their_beginnings(store: Store, run: RunRow) -> None:
    opening = [("system", "You write kernels."), ("user", "Make it fast.")]
    call(store, 1, opening, "Here: é ∏ \0 ```cuda```")
    call(store, 2, [*opening, ("assistant", "Here: é ∏ \0 ```cuda```"), ("user", "It fails.")], "Now it works.")
    call(store, 3, opening, "Something else.", step=2)
    calls = store.calls(run.id)
    assert [one.row.number for one in calls] == [1, 2, 3]
    assert [(m.role, m.content) for m in calls[0].prompt] == opening
    assert calls[0].reply.content == "Here: é ∏ \0 ```cuda```"
    assert len(calls[1].prompt) == 4
    assert calls[1].prompt[2].id == calls[0].reply.id
    assert calls[2].prompt == calls[0].prompt
    assert [one.row.number for one in store.transcript(run.id, 1)] == [1, 2]


def test_a_call_repeated_after_a_crash_changes_nothing_but_another_one_is_refused(store: Store, run: RunRow) -> None:
    call(store, 1, [("user", "Hello.")], "Hi.")
    call(store, 1, [("user", "Hello.")], "Hi.")
    assert len(store.calls(run.id)) == 1
    with pytest.raises(StoreError, match="another call 1"):
        call(store, 1, [("user", "Hello.")], "Go away.")


def test_a_conversation_that_goes_round_is_an_error(told: Store) -> None:
    with told.writing() as session:
        session.connection().exec_driver_sql("UPDATE message SET previous_id = id")
    with pytest.raises(StoreError, match=r"has a message that follows itself: see `msbench db check`"):
        for run in told.runs():
            told.calls(run.id)
