"""Results that no figure uses any more: measured again, or recorded again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from sqlmodel import Session, SQLModel, col, delete, select

from msbench.figures.proofs import proofs
from msbench.figures.timings import CHECKED
from msbench.model import Origin, Status, Study
from msbench.store import convert
from msbench.store.identity import table_of
from msbench.store.store import Store
from msbench.store.tables import (
    BuildRow,
    CaseRow,
    CheckRow,
    EvaluationRow,
    MeasurementRow,
    ProfileRow,
    RecordRow,
    StepRow,
    TrialRow,
    VersionRow,
)

_CHUNK = 400


def drop_superseded(store: Store) -> dict[str, int]:
    """Delete what is superseded, in one transaction; how many rows that were, by table. A second time there is nothing.

    Of evaluations these are kept, each with all its rows:

    - the newest that judged a version on a device, and what its harness found wrong with the version before,
    - of every two versions and case the newest group in which they were timed together, and all others of that group; of those of
      runs' steps and of the others the newest each, since only the others rank versions,
    - the newest profile of a version on a case,
    - of a shipped version that was replaced, the verdict and not the times, but for those in sessions of runs: it is ranked no more,
    - of what is kept for its times alone, those and the checks on the cases that it was timed on,
    - what a run's steps point to, with what was timed beside it, and the original of what repeats a record.

    So every figure of ``figures.figures`` stays as it is. Of trials the newest recordings are kept (``figures.proofs``).
    """
    with store.session() as session:
        kept, untimed, timed_only = _needed(session)
        evaluations = set(session.exec(select(EvaluationRow.id))) - kept
    trials = _trials(store)
    with store.writing() as session:
        counts = {
            table_of(model).name: _delete(session, model, "evaluation_id", evaluations | gone)
            for model, gone in ((CheckRow, set()), (MeasurementRow, untimed), (ProfileRow, untimed), (RecordRow, set()))
        }
        counts["check"] += _delete(session, CheckRow, "id", _of_untimed_cases(session, timed_only))
        counts["evaluation"] = _delete(session, EvaluationRow, "id", evaluations)
        tried = {
            id
            for model in (CheckRow, MeasurementRow, ProfileRow)
            for id in session.exec(select(model.case_id).distinct())
        }
        counts["case"] = _delete(session, CaseRow, "id", set(session.exec(select(CaseRow.id))) - tried)
        used = set(session.exec(select(EvaluationRow.build_id)))
        counts["build"] = _delete(session, BuildRow, "id", set(session.exec(select(BuildRow.id))) - used)
        counts["trial"] = _delete(session, TrialRow, "id", set(session.exec(select(TrialRow.id))) - trials)
    return {name: count for name, count in counts.items() if count}


def lacking(store: Store) -> list[str]:
    """What ``drop_superseded`` takes away from what is shown of trials: a newest recording may be of fewer than the one before it.

    One sentence for each study and device; how long verdicts take is told of whatever was measured.
    """
    found = []
    for study in (study for study in Study if study is not Study.THROUGHPUT):
        names: dict[str, str] = {}
        tried: dict[str, set[str]] = defaultdict(set)
        kept: dict[str, set[str]] = defaultdict(set)
        for trial in store.trials(study):
            tried[trial.device_id].add(trial.subject)
        for proof in proofs(store, study):
            names[proof.device.id] = proof.device.name
            kept[proof.device.id] |= {trial.subject for trial in proof.trials}
        for device_id, name in names.items():
            if lost := sorted(tried[device_id] - kept[device_id]):
                found.append(
                    f"{study} on {name}: the newest recording lacks {len(lost)} of {len(tried[device_id])} subjects, such as {lost[0]!r}"
                )
    return found


def _delete(session: Session, model: type[SQLModel], column: str, values: Iterable[str]) -> int:
    table, wanted, count = table_of(model), sorted(values), 0
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        count += session.connection().execute(delete(table).where(table.c[column].in_(chunk))).rowcount
    return count


def _of_untimed_cases(session: Session, evaluations: set[str]) -> list[str]:
    """The passed checks of these on cases that they have no measurement of."""
    timed = set(session.exec(select(MeasurementRow.evaluation_id, MeasurementRow.case_id)))
    query = select(CheckRow.id, CheckRow.evaluation_id, CheckRow.case_id).where(CheckRow.passed)
    return [id for id, *of in session.exec(query) if of[0] in evaluations and tuple(of) not in timed]


def _needed(session: Session) -> tuple[set[str], set[str], set[str]]:
    """The ids of the evaluations that are kept; of those among them whose times are not, which tell whether a version is right; and
    of those that only tell times, since a newer one tells that.
    """
    evaluations = list(
        session.exec(select(EvaluationRow).order_by(col(EvaluationRow.started_at), col(EvaluationRow.id)))
    )
    groups = _groups(session)
    stories = set(session.exec(select(StepRow.evaluation_id).where(col(StepRow.evaluation_id).is_not(None))))
    beside = {id for members in groups.values() if members & stories for id in members}
    needed = {id for id in stories | beside if id is not None}
    of_runs = _timed_with(needed, groups)
    replaced = _replaced(session, of_runs)
    needed |= {id for group in _newest_together(session, of_runs, replaced) for id in groups[group]}
    needed |= set(_profiled(session)) - replaced
    judging = set(_judging(session, evaluations))
    kept = needed | judging
    originals = {one.recorded_from for one in evaluations if one.id in kept and one.recorded_from}
    kept |= originals
    return kept, (kept - needed) & replaced, needed - judging - stories - originals


def _replaced(session: Session, of_runs: set[str]) -> set[str]:
    """The evaluations of shipped versions whose file had changed when it was timed again on the device, but for those ``of_runs``."""
    query = (
        select(EvaluationRow, VersionRow)
        .join(VersionRow, col(VersionRow.id) == col(EvaluationRow.version_id))
        .where(col(VersionRow.origin) != Origin.AGENT, col(VersionRow.label) != "")
        .where(
            col(EvaluationRow.id).in_(select(MeasurementRow.evaluation_id).where(col(MeasurementRow.fault).is_(None)))
        )
        .order_by(col(EvaluationRow.started_at), col(EvaluationRow.id))
    )
    timed = [(one, version) for one, version in session.exec(query) if one.id not in of_runs]
    newest = {(one.device_id, v.task_id, v.origin, v.label): v.id for one, v in timed}
    failing = set(session.exec(select(MeasurementRow.evaluation_id).where(col(MeasurementRow.fault).is_not(None))))
    return {
        one.id
        for one, v in timed
        if v.id != newest[one.device_id, v.task_id, v.origin, v.label] and one.id not in failing
    }


def _groups(session: Session) -> dict[str, set[str]]:
    """The evaluations of each measurement group."""
    groups: dict[str, set[str]] = defaultdict(set)
    for group, evaluation in session.exec(select(MeasurementRow.group_id, MeasurementRow.evaluation_id)):
        groups[group].add(evaluation)
    return groups


def _timed_with(evaluations: set[str], groups: Mapping[str, set[str]]) -> set[str]:
    """These and those of the same sessions: evaluations belong to one that have a group in common (``figures.timings``)."""
    found, more = set(evaluations), set(evaluations)
    while more:
        more = {id for members in groups.values() if members & more for id in members} - found
        found |= more
    return found


def _judging(session: Session, evaluations: Iterable[EvaluationRow]) -> Iterator[str]:
    """Those that ``figures.verdicts`` asks, on each device and of what is known from all of them; the oldest come first."""
    failing = {
        id
        for model in (CheckRow, MeasurementRow)
        for id in session.exec(select(model.evaluation_id).where(col(model.message).is_not(None)).distinct())
    }
    scopes: dict[tuple[str, str | None], list[EvaluationRow]] = defaultdict(list)
    for one in evaluations:
        scopes[one.version_id, one.device_id].append(one)
        scopes[one.version_id, None].append(one)
    for scope in scopes.values():
        judged = [one for one in scope if one.status != Status.UNSUPPORTED]
        newest = (judged or scope)[-1]
        yield newest.id
        alike = [one.id for one in scope if one.harness == newest.harness]
        if failing.intersection(alike):
            yield from alike


def _newest_together(session: Session, of_runs: set[str], replaced: set[str]) -> set[str]:
    """Of every two versions (and every version alone), device and case the newest group that timed both, ``of_runs`` and else.

    None is needed for a ``replaced`` version.
    """
    query = (
        select(MeasurementRow.group_id, CaseRow, EvaluationRow)
        .join(EvaluationRow, col(EvaluationRow.id) == col(MeasurementRow.evaluation_id))
        .join(CaseRow, col(CaseRow.id) == col(MeasurementRow.case_id))
        .where(col(EvaluationRow.status).in_(CHECKED), col(EvaluationRow.recorded_from).is_(None))
        .where(col(MeasurementRow.fault).is_(None), col(MeasurementRow.median_ns).is_not(None))
        .order_by(col(EvaluationRow.started_at).desc(), col(MeasurementRow.id))
    )
    rows = [row for row in session.exec(query) if row[2].id not in replaced]
    members: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for group, case, evaluation in rows:
        members[evaluation.device_id, group, case.id].append(evaluation.version_id)
    newest: dict[tuple[str, str, str, str, bool], str] = {}
    for group, case, evaluation in rows:
        for other in members[evaluation.device_id, group, case.id]:
            newest.setdefault(
                (evaluation.device_id, case.name, evaluation.version_id, other, evaluation.id in of_runs), group
            )
    return set(newest.values())


def _profiled(session: Session) -> Iterator[str]:
    """Those with the newest profile of a version on a case and device, by each source."""
    query = (
        select(EvaluationRow, ProfileRow.case_id, ProfileRow.source)
        .join(ProfileRow, col(ProfileRow.evaluation_id) == col(EvaluationRow.id))
        .where(col(ProfileRow.fault).is_(None))
        .order_by(col(EvaluationRow.started_at).desc(), col(EvaluationRow.id).desc())
    )
    newest: dict[tuple[str, ...], str] = {}
    for evaluation, case, source in session.exec(query):
        newest.setdefault((evaluation.version_id, evaluation.device_id, case, source), evaluation.id)
    yield from newest.values()


def _trials(store: Store) -> set[str]:
    """The ids of the trials that are kept: the newest recordings, and of each command's throughput the newest."""
    kept = {convert.trial_row(trial).id for study in Study for proof in proofs(store, study) for trial in proof.trials}
    with store.session() as session:
        query = (
            select(TrialRow.id, TrialRow.device_id, TrialRow.command, TrialRow.subject)
            .where(col(TrialRow.study) == Study.THROUGHPUT.value)
            .order_by(col(TrialRow.created_at).desc(), col(TrialRow.id))
        )
        newest: dict[tuple[str, ...], str] = {}
        for id, *what in session.exec(query):
            newest.setdefault(tuple(what), id)
    return kept | set(newest.values())
