import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.archive import integrity
from msbench.archive.merge import merge
from msbench.archive.union import check_files
from msbench.cli import app
from msbench.errors import IntegrityError
from msbench.model import Origin
from msbench.store.store import Store
from tests.factories import candidate, measured, operator

OP = operator()


def tamper(path: Path, *statements: str) -> None:
    """Change a database behind msbench's back."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.executescript(statement)
    connection.commit()
    connection.close()


def test_a_sound_database_has_no_problems(told: Store) -> None:
    assert integrity.check(told) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE version SET source = replace(source, '256', '512') WHERE label = 'best'", "not that of its source"),
        ("UPDATE device SET driver = '999'", "Device .* was changed"),
        ("UPDATE ceilings SET copy_bytes_per_s = 9e12", "Ceilings .* was changed"),
        ("UPDATE \"case\" SET flops = flops + 1 WHERE name = 'N=65536'", "Case .* was changed"),
        ("UPDATE evaluation SET status = 'passed' WHERE status = 'check_failed'", "Evaluation .* was changed"),
        ("UPDATE evaluation SET status = 'fine'", "unknown status 'fine'"),
        ('UPDATE "check" SET worst = 0.0', "Check .* was changed"),
        ('DELETE FROM "check"', "a time of a case that its evaluation has no passed check of"),
        (
            "UPDATE evaluation SET status = 'profile_failed'; UPDATE \"check\" SET passed = 0",
            "is profile_failed, although",
        ),
        ("UPDATE measurement SET median_ns = median_ns / 2", "says a median of"),
        ("UPDATE measurement SET hot_ns = 1", "Measurement .* was changed"),
        ("UPDATE measurement SET samples = substr(samples, 1, 30)", "samples that can't be read"),
        ("UPDATE measurement SET samples = x'00'", "samples that can't be read"),
        ("UPDATE measurement SET rounds = 3", "says 3 rounds, but has samples of 20"),
        ("UPDATE profile SET metrics = '{}'", "Profile .* was changed"),
        ("UPDATE profile SET metrics = 'no json'", "should hold JSON"),
        ("UPDATE message SET content = 'I never said that.' WHERE role = 'system'", "Message .* was changed"),
        ("UPDATE message SET previous_id = NULL", "Message .* was changed"),
        ("UPDATE step SET number = 40 WHERE number = 3", "Step .* an id that is not"),
        ("UPDATE step SET outcome = 'great'", "unknown outcome 'great'"),
        ("UPDATE call SET number = 40 WHERE number = 3", "Call .* an id that is not"),
        ("UPDATE run SET status = 'asleep'", "unknown status 'asleep'"),
        ("UPDATE task SET operator = 'other'", "is not called by its operator"),
        ("UPDATE trial SET held = 0", "Trial .* was changed"),
        ("UPDATE trial SET details = json_set(details, '$.seconds', 9)", "Trial .* was changed"),
        ("UPDATE trial SET study = 'hearsay'", "unknown study 'hearsay'"),
        ("DELETE FROM version WHERE label = 'round 2'", "names one of table version that is not there"),
        ("DELETE FROM version WHERE origin = 'naive'", "names the parent"),
        ("UPDATE lineage SET parent_id = 'nobody'", "names the parent nobody, which is in none here"),
        ("UPDATE evaluation SET recorded_from = 'nothing'", "repeats evaluation nothing"),
        ("UPDATE build SET fault = 'compile'", "a fault without a message"),
        (
            "UPDATE step SET version_id = (SELECT id FROM version WHERE task_id = 'shift/bf16' LIMIT 1)",
            "names a version of another task",
        ),
        (
            "UPDATE measurement SET case_id = (SELECT id FROM \"case\" WHERE task_id = 'shift/bf16' LIMIT 1)",
            "of a case of another task",
        ),
        ("UPDATE evaluation SET build_id = (SELECT max(id) FROM build)", "has the build of another version"),
    ],
)
def test_every_kind_of_tampering_is_found(told_file: Path, change: str, said: str) -> None:
    tamper(told_file, change)
    with Store(told_file) as store:
        problems = integrity.check(store)
    assert problems
    assert any(re.search(said, problem) for problem in problems), problems
    assert all(problem.endswith(".") and "\n" not in problem for problem in problems)


_OTHERWISE = "PRAGMA foreign_keys=OFF; DROP VIEW speedup; DROP VIEW timing; ALTER TABLE lineage RENAME TO old; "


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            _OTHERWISE + "CREATE TABLE lineage AS SELECT * FROM old UNION ALL SELECT * FROM old",
            "Table lineage was not made",
        ),
        (
            _OTHERWISE + "CREATE VIEW lineage AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT i AS version_id, i AS parent_id FROM n",
            "Table lineage was not made",
        ),
        ("CREATE TRIGGER gone AFTER INSERT ON device BEGIN DELETE FROM trial; END", "the trigger 'gone'"),
    ],
)
def test_tables_that_msbench_did_not_make_are_not_read(told_file: Path, store: Store, change: str, said: str) -> None:
    tamper(told_file, change)
    [problem] = check_files([told_file])
    assert said in problem
    with pytest.raises(IntegrityError, match=said):
        merge(store, told_file)


def test_any_single_changed_byte_of_the_file_is_found_or_harmless(told_file: Path) -> None:
    """Bytes within rows are covered by hashes, and bytes between them by SQLite; spot checks over the whole file."""
    with Store(told_file) as store:
        store.compact()
    sound = told_file.read_bytes()
    with Store(told_file, read_only=True) as store:
        versions = [row.model_dump() for row in store.versions()]
    for place in range(4096, len(sound), len(sound) // 60):
        told_file.write_bytes(sound[:place] + bytes([sound[place] ^ 0x41]) + sound[place + 1 :])
        if not check_files([told_file]):
            with Store(told_file, read_only=True) as store:
                assert [row.model_dump() for row in store.versions()] == versions


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"x" * 5000, lambda b: b""])
def test_a_broken_file_is_a_problem_not_a_crash(told_file: Path, damage: Callable[[bytes], bytes]) -> None:
    with Store(told_file) as store:
        store.compact()
    told_file.write_bytes(damage(told_file.read_bytes()))
    problems = check_files([told_file, told_file.with_name("none.sqlite")])
    assert len(problems) >= 2
    assert all(str(told_file.parent) in problem for problem in problems)


def test_what_one_file_lacks_may_be_in_another(tmp_path: Path) -> None:
    published, local = tmp_path / "published.sqlite", tmp_path / "local.sqlite"
    naive = candidate(OP, "naive", Origin.NAIVE)
    child = candidate(OP, "child", parents=[naive.id])
    for path, version in ((published, naive), (local, child)):
        with Store(path) as store:
            for evaluation in measured(OP, {version: 0.5}):
                store.add_evaluation(OP, evaluation)
    assert check_files([published, local]) == []
    [problem] = check_files([local])
    assert problem.startswith(str(local)) and naive.id in problem


def test_a_file_of_an_older_schema_is_checked_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old = Path(__file__).with_name("schema_1.sql").read_text()
    connection = sqlite3.connect(path)
    connection.executescript(old + "INSERT INTO migration VALUES (1, 'then');")
    connection.close()
    before = path.read_bytes()
    assert check_files([path]) == []
    assert path.read_bytes() == before
    tamper(path, "INSERT INTO device VALUES ('d', 'cuda', 'X', '', 1, 1, 1, '', '')")
    [problem] = check_files([path])
    assert "Device d was changed" in problem


def test_a_problem_is_one_line_whatever_a_text_holds(told_file: Path) -> None:
    tamper(told_file, "UPDATE trial SET id = 'a' || char(10) || char(27) || '[31m'")
    result = CliRunner().invoke(app, ["db", "check", "--db", str(told_file)])
    assert result.exit_code == 1
    [line] = result.stdout.splitlines()
    assert r"Trial a\n\x1b[31m was changed" in line
