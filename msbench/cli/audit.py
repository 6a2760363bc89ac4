"""The command that evaluates other people's kernels: audit."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from msbench import databases, report
from msbench.cli._app import app
from msbench.cli._files import see_that_writable, write
from msbench.cli._interruption import goes_on_with_resume
from msbench.cli._options import CASES_HELP, Db, Exec, Seed, amount, err, pick_executor, seeded
from msbench.cli._options import Device as DeviceOption
from msbench.commands import without_seed
from msbench.errors import MsbenchError
from msbench.model import Device, Study, Trial

if TYPE_CHECKING:
    from msbench.store.store import Store

_EXPECTED = "builds alone, right on the paper's sizes and on unseen ones"


@app.command()
def audit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder; every .cu file in it and below is audited.")],
    abi: Annotated[str, typer.Option("--abi", help="The files' calling convention.")] = "mskernelbench",
    executor: Exec = "auto",
    cases: Annotated[str, typer.Option("--cases", help=f"{CASES_HELP} Inputs are always uniform.")] = (
        "paper+odd+heldout"
    ),
    budget: Annotated[float, typer.Option("--budget", callback=amount, help="Time budget per case, in seconds.")] = 0.5,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Write the report to this file, and as JSON beside it, instead of printing it.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Reuse verdicts that the same command has recorded on this device.")
    ] = False,
    seed: Seed = None,
    device: DeviceOption = None,
    db: Db = None,
) -> None:
    """Evaluate kernels that follow a published calling convention: do they build, are they right, are they fast?

    Each file is compiled by itself and checked on the paper's sizes and on sizes it has not seen. Where it is right on
    the former, it is timed against our version and the library baselines. Verdicts are recorded with the file's hash,
    never its source. Exit code 1 if a file is not right. See docs/audit.md.

    Example: `msbench audit their_kernels --abi mskernelbench --report audit.md`
    """
    from msbench.audit import abi as conventions
    from msbench.audit import files
    from msbench.audit.markdown import report as rendered
    from msbench.audit.run import Settings, audit_digest, see_that_cases_are_known
    from msbench.audit.run import audit as audited
    from msbench.audit.verdict import Verdict
    from msbench.harness.digest import harness_digest

    found = files.find(folder, conventions.load(abi))
    see_that_cases_are_known(found, cases)
    if markdown is not None:
        if not markdown.name:
            raise MsbenchError(f"--report {str(markdown)!r} is not a file name: give one, such as audit.md.")
        see_that_writable(markdown, markdown.with_suffix(".json"))
    any_seed = seed is None
    seed, command = seeded(seed, without="--resume")
    store = databases.writer(db)
    goes_on_with_resume(db)
    with pick_executor(executor, db, device, store, recalls=False) as chosen, report.Live(err) as live:
        where: Device = chosen.device()
        store.add_device(where)
        begun = _begun(store, where, command, audit_digest(), any_seed) if resume else []
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if begun:
            seed, command, started_at = begun[0].details["seed"], begun[0].command, begun[0].created_at
        known = {(v.file, v.sha256): v for v in (Verdict.from_json(one.details["verdict"]) for one in begun)}
        verdicts = {f.name: known[f.name, f.sha256] for f in found if (f.name, f.sha256) in known}
        left = [f for f in found if f.name not in verdicts]
        if resume:
            err.print(f"{len(verdicts)} of {len(found)} files are done already.")
        for verdict in audited(chosen, left, Settings(cases, seed, budget), live):
            verdicts[verdict.file] = verdict
            trial = Trial(
                study=Study.AUDIT,
                subject=verdict.file,
                expected=_EXPECTED,
                outcome=verdict.outcome,
                held=verdict.held,
                details={"abi": abi, "audit": audit_digest(), "seed": seed, "verdict": verdict.as_json()},
                device_id=where.id,
                harness=harness_digest(),
                command=command,
                created_at=started_at,
            )
            store.add_trials([trial])
            live.task(f"{len(verdicts)} of {len(found)} files done")
            colour = "green" if verdict.held else "red"
            err.print(f"[{colour}]{escape(verdict.file)}[/]: {escape(verdict.outcome)}", soft_wrap=True)
    ordered = [verdicts[f.name] for f in found]
    made = f"Made by `{command}` on {where.name} ({chosen.name} executor), {started_at[:10]}."
    text = rendered(f"Audit of {folder.name}: {abi}", made, ordered)
    facts: dict[str, Any] = {
        "abi": abi,
        "command": command,
        "device": where.name,
        "executor": chosen.name,
        "started_at": started_at,
        "files": [v.as_json() | {"held": v.held, "outcome": v.outcome} for v in ordered],
    }
    if markdown is not None:
        write(markdown, text)
        write(markdown.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")
    else:
        sys.stdout.write(json.dumps(facts, indent=1) + "\n" if as_json else text)
    if not all(v.held for v in ordered):
        raise typer.Exit(1)


def _begun(store: Store, device: Device, command: str, audit: str, any_seed: bool) -> list[Trial]:
    """The newest recording by this command (``any_seed``: whatever seed it drew) and source on this device."""
    name = without_seed if any_seed else str
    found: dict[str, list[Trial]] = {}
    for trial in store.trials(Study.AUDIT):
        made = trial.device_id, name(trial.command), trial.details.get("audit")
        if made == (device.id, name(command), audit):
            found.setdefault(trial.created_at, []).append(trial)
    return found[max(found)] if found else []
