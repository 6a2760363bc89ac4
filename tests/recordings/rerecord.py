"""Records the shipped runs anew: their answers, in their order, to the prompts of the engine as it is now.

    python -m tests.recordings.rerecord --db recorded.sqlite [RUN ...]
    msbench db publish recorded.sqlite

A replayed answer belongs to its prompt, so a change of the prompts, of msbench.cuh or of a spec's texts needs this. It takes no
GPU and no model: kernels are checked on the processor, and times are those of the recorded run.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from msbench import agents, executors, resources
from msbench.archive.union import union
from msbench.cli._options import tasks_named
from msbench.conversation import Limits, Message, Reply
from msbench.errors import RecordingEnded
from msbench.harness.evaluate import Executor
from msbench.optimize import Settings, Summary, optimize
from msbench.providers import Provider, pick
from msbench.providers._stored import stored_reply
from msbench.spec import Task
from msbench.store.runs import Call
from msbench.store.store import Store
from msbench.store.tables import CallRow, RunRow


class InOrder(Provider):
    """Answers the k-th call of each agent with the recorded k-th answer to that agent, whatever the prompt."""

    free = True

    def __init__(self, store: Store, recording: RunRow) -> None:
        self.name, self.model = recording.provider, recording.model
        self.replay_of = recording.id
        self._recording = recording
        self._waiting: dict[str, list[Call]] = {}
        for call in store.calls(recording.id):
            self._waiting.setdefault(call.row.agent, []).append(call)

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        """A run that was killed is recorded from the start."""
        assert not answered

    def recording(self, task_id: str) -> RunRow:
        """See ``Provider``."""
        return self._recording

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """See ``Provider``."""
        if not self._waiting.get(agent):
            raise RecordingEnded("")
        call = self._waiting[agent].pop(0)
        return stored_reply(call.row, call.reply)


def rerecord(task: Task, run: RunRow, source: Store, target: Store, executor: Executor) -> Summary:
    """Record one run anew, into ``target``."""
    return optimize(
        task, strategy=agents.pick(run.strategy), provider=InOrder(source, run), executor=executor, store=target, readers=source,
        settings=Settings.read(run.settings), seed=run.seed, command=run.command,
    )  # fmt: skip


def newest(source: Store) -> list[RunRow]:
    """Of each task the run that a replay takes."""
    tasks = {run.task_id for run in source.runs() if run.provider != "replay" and source.calls(run.id)}
    found = [pick("replay", store=source).recording(task) for task in sorted(tasks)]
    return [run for run in found if run is not None]


def main() -> None:
    """Record, then replay what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True, help="the database that is written; a new one")
    parser.add_argument("runs", nargs="*", help="the runs (default: of each task the one that is replayed)")
    given = parser.parse_args()
    with union([str(resources.published_db())]) as source, Store(given.db) as target:
        for run in [source.run(one) for one in given.runs] or newest(source):
            (task,) = tasks_named([run.task_id], None, None)
            with executors.pick("recorded", store=source) as executor:
                made = rerecord(task, run, source, target, executor)
                print(f"{task.id}: run {run.id[:12]} is now {made.run_id[:12]}, {made.status}. {made.note}")
    print(f"Publish it: {shlex.join(['msbench', 'db', 'publish', given.db])}")


if __name__ == "__main__":
    main()
