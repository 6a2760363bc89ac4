"""A PostgreSQL database in place of a file: a real server, which the tests start and stop."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy

from msbench.archive import integrity
from msbench.archive.merge import merge
from msbench.archive.union import union
from msbench.model import Origin
from msbench.store.store import Store
from tests import factories, turns
from tests.cli.running import GOOD, QUICKLY, run
from tests.store.conftest import tell
from tests.store.test_merge import content


def program(name: str) -> str | None:
    """Where one of PostgreSQL's programs is: on Debian not in PATH."""
    newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(newest[-1]) if newest else None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The beginning of a database's URL on a server of its own, reached by a socket alone."""
    initdb, postgres = program("initdb"), program("postgres")
    if initdb is None or postgres is None:
        reason = "PostgreSQL is not installed: apt-get install postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    pytest.importorskip("psycopg")
    user = "postgres" if os.geteuid() == 0 else None  # initdb refuses root
    folder = Path(tempfile.mkdtemp(prefix="msbench-pg-"))  # not tmp_path: a socket's path has 107 characters at most
    if user:
        shutil.chown(folder, user)
    quietly = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = None
    try:
        settings = ("-U", "msbench", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        subprocess.run([initdb, "-D", folder / "data", *settings], check=True, **quietly)  # type: ignore[call-overload]
        options = ("-c", "listen_addresses=", "-c", "fsync=off")
        process = subprocess.Popen([postgres, "-D", folder / "data", "-k", folder, *options], **quietly)  # type: ignore[call-overload]
        deadline = time.monotonic() + 60
        while not (folder / ".s.PGSQL.5432").exists():
            assert process.poll() is None and time.monotonic() < deadline, "the server does not start"
            time.sleep(0.05)
        yield f"postgresql://msbench@/{{}}?host={folder}"
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # the fast way: SIGTERM waits for clients
            process.communicate(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """An empty database."""
    name = f"t{abs(hash(request.node.name))}"
    admin = sqlalchemy.create_engine(
        server.format("postgres").replace("postgresql:", "postgresql+psycopg:"), poolclass=sqlalchemy.NullPool
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
            return server.format(name)
        except sqlalchemy.exc.OperationalError:  # it has a socket before it answers
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_it_holds_what_a_file_holds(url: str, told: Store) -> None:
    with Store(url) as store:
        tell(store)
        assert content(store) == content(told)
        assert integrity.check(store) == []
        assert merge(store, told) == {}
    with union([url]) as read:
        assert content(read) == content(told)


def test_seeds_and_sizes_have_64_bits_and_texts_may_hold_nul(url: str) -> None:
    op = factories.operator()
    version = factories.candidate(op, "naive", Origin.NAIVE, body="a \0 b, \ue000 and \ue0000")
    device = replace(factories.GPU, memory_bytes=2**40, l2_bytes=2**33)
    (evaluation,) = factories.measured(op, {version: 0.5}, device=device)
    evaluation = replace(evaluation, seed=2**62 + 1, note="\0")
    with Store(url) as store, Store(":memory:") as meant:
        for one in (store, meant):
            id = one.add_evaluation(op, evaluation)
        assert content(store) == content(meant)
        assert store.evaluation(id).candidate.source == version.source
        assert store.evaluation(id).seed == 2**62 + 1
        assert integrity.check(store) == []


def test_a_database_of_32_bits_is_migrated(url: str) -> None:
    with Store(url):
        pass
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        for change in (
            "DROP TABLE record, ledger, notes", "ALTER TABLE step DROP COLUMN predicted_cases", "DROP VIEW speedup", "DROP VIEW timing", 'ALTER TABLE "case" ALTER COLUMN nbytes TYPE INTEGER',
            "ALTER TABLE evaluation ALTER COLUMN seed TYPE INTEGER", "DELETE FROM migration WHERE version > 2",
            "CREATE VIEW timing AS SELECT nbytes FROM \"case\"", "CREATE VIEW speedup AS SELECT * FROM timing",
        ):  # fmt: skip
            connection.execute(sqlalchemy.text(change))
    with Store(url) as store:
        tell(store)
        assert integrity.check(store) == []


@turns.costly
def test_every_command_works_in_it(url: str, tmp_path: Path) -> None:
    (tmp_path / "mine.cu").write_text(GOOD, encoding="utf-8")
    op = ("--op", "vector_add", "--precision", "fp32")
    with Store(tmp_path / "other.sqlite") as other:
        factories.story(other)
        factories.prove(other)
    for arguments in (
        ("eval", "mine.cu", *op, *QUICKLY, "--seed", str(2**31 + 1)),
        ("bench", "vector_add/fp32", "--versions", "naive", *QUICKLY),
        ("db", "merge", "other.sqlite"),
        ("db", "check"),
        ("build-site", "--out", "site"),
    ):
        done = run(tmp_path, *arguments, "--db", url)
        assert done.returncode == 0, (arguments, done)
    waiting = run(
        tmp_path,
        "optimize",
        "vector_add/fp32",
        "--provider",
        "manual",
        "--no-wait",
        "--rounds",
        "1",
        *QUICKLY,
        "--db",
        url,
    )
    assert waiting.returncode == 3, waiting
    published = run(tmp_path, "db", "publish", url, "--db", "published.sqlite")
    assert published.returncode == 0, published
    again = run(tmp_path, "build-site", "--db", "published.sqlite", "--out", "again")
    assert again.returncode == 0
    assert (tmp_path / "again" / "op" / "scale.html").read_bytes() == (
        tmp_path / "site" / "op" / "scale.html"
    ).read_bytes()
