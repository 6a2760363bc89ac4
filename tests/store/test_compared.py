"""Two recordings beside each other: what became slower is told, and a library that did ends the command with 1."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.errors import IntegrityError, StoreError
from msbench.figures.compared import compared
from msbench.model import Origin
from msbench.store.store import Store
from tests import factories

OP = factories.operator()
NAIVE = factories.candidate(OP, "naive", Origin.NAIVE)
VENDOR = factories.candidate(OP, "vendor", Origin.LIBRARY)
CHANGED = factories.candidate(OP, "vendor", Origin.LIBRARY, body="changed")


def fill(where: Path, *evaluations: object) -> None:
    with Store(where) as store:
        for evaluation in evaluations:
            store.add_evaluation(OP, evaluation)  # type: ignore[arg-type]


@pytest.fixture
def before(tmp_path: Path) -> Path:
    where = tmp_path / "before.sqlite"
    fill(where, *factories.measured(OP, {NAIVE: 0.2, VENDOR: 0.8}))
    return where


def test_the_newest_times_are_compared_and_a_changed_file_is_told(before: Path, tmp_path: Path) -> None:
    after = tmp_path / "after.sqlite"
    fill(
        after,
        *factories.measured(OP, {NAIVE: 0.2, VENDOR: 0.1}, at=10.0),
        *factories.measured(OP, {NAIVE: 0.2, CHANGED: 0.4}, at=20.0),
    )
    with Store.snapshot(before) as old, Store.snapshot(after) as new:
        found = compared(old, new)
    assert {(one.version, one.case_name) for one in found} == {
        (name, case.id) for name in ("naive", "vendor") for case in OP.cases
    }
    for one in found:
        assert one.library == (one.version == "vendor")
        assert one.same_source == (one.version == "naive")
        assert one.ratio == pytest.approx(1.0 if one.version == "naive" else 2.0, rel=0.2)


@pytest.mark.parametrize(("vendor", "code"), [(0.8, 0), (1.0, 0), (0.4, 1)])
def test_a_library_that_became_slower_is_an_error(before: Path, tmp_path: Path, vendor: float, code: int) -> None:
    after = tmp_path / "after.sqlite"
    fill(after, *factories.measured(OP, {NAIVE: 0.1, VENDOR: vendor}, at=10.0))
    result = CliRunner().invoke(app, ["db", "compare", str(before), "--db", str(after), "--factor", "1.15"])
    assert result.exit_code == code, result.output
    assert "8 times compared" in result.output
    assert ("times of vendor libraries are slower" in result.stderr) == bool(code)


def test_what_has_nothing_in_common_is_no_error(before: Path, tmp_path: Path) -> None:
    after = tmp_path / "after.sqlite"
    other = factories.operator("shift")
    with Store(after) as store:
        for evaluation in factories.measured(other, {factories.candidate(other, "naive", Origin.NAIVE): 0.2}):
            store.add_evaluation(other, evaluation)
    result = CliRunner().invoke(app, ["db", "compare", str(before), "--db", str(after)])
    assert (result.exit_code, "no version in common" in result.output) == (0, True)
    result = CliRunner().invoke(app, ["db", "compare", str(tmp_path / "nowhere.sqlite"), "--db", str(after)])
    assert isinstance(result.exception, StoreError)
    assert "nowhere.sqlite" in str(result.exception)


def test_times_of_a_changed_database_are_not_compared(before: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.sqlite"
    changed.write_bytes(before.read_bytes())
    with Store(changed) as store, store.writing() as session:
        session.connection().exec_driver_sql("UPDATE measurement SET median_ns = 'fast'")
    for other, db in ((before, changed), (changed, before)):
        result = CliRunner().invoke(app, ["db", "compare", str(other), "--db", str(db)])
        assert isinstance(result.exception, IntegrityError), result.output
        assert "changed.sqlite, because of" in str(result.exception) and "ns" not in result.output


def test_names_are_no_markup(tmp_path: Path) -> None:
    where, odd = tmp_path / "odd.sqlite", factories.operator("[b]")
    with Store(where) as store:
        for evaluation in factories.measured(odd, {factories.candidate(odd, "naive", Origin.NAIVE): 0.2}):
            store.add_evaluation(odd, evaluation)
        slower = factories.measured(odd, {factories.candidate(odd, "naive", Origin.NAIVE): 0.1}, at=10.0)
    with Store(tmp_path / "after.sqlite") as store:
        for evaluation in slower:
            store.add_evaluation(odd, evaluation)
    result = CliRunner().invoke(app, ["db", "compare", str(where), "--db", str(tmp_path / "after.sqlite")])
    assert (result.exit_code, "[b]/fp32" in result.output) == (0, True), result.output
