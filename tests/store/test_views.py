"""The SQL that docs/database.md teaches works, and the views agree with the figures."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from msbench.figures import figures
from msbench.model import Origin, Status
from msbench.store.store import Store
from msbench.store.tables import TABLES
from tests.factories import candidate, failed, measured, operator

DOCS = (Path(__file__).parents[2] / "docs" / "database.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", DOCS, re.DOTALL)
OP = operator()


def rows(store: Store, sql: str) -> list[dict[str, object]]:
    with store.session() as session:
        return [dict(row) for row in session.connection().execute(text(sql)).mappings()]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.splitlines()[0])
def test_documented_queries_run_and_find_something(told: Store, query: str) -> None:
    found = rows(told, query)
    assert found


def test_a_conversation_reads_in_order(told: Store) -> None:
    query = next(query for query in QUERIES if "RECURSIVE" in query).replace(
        "c.number = 1", "c.id = (SELECT min(id) FROM call)"
    )
    assert [row["role"] for row in rows(told, query)] == ["system", "user", "assistant"]


def test_the_documented_python_runs(told_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)[-1]
    code = code.replace('["db/published.sqlite", "db/local.sqlite"]', f"[{str(told_file)!r}]")
    scope: dict[str, object] = {}
    exec(code, scope)
    assert "scale/fp32 best" in capsys.readouterr().out
    agents = scope["agents"]
    assert isinstance(agents, list) and len(agents) == 12


def test_every_table_and_view_is_documented() -> None:
    for model in TABLES:
        assert f"`{model.__tablename__}`" in DOCS
    assert "`timing`" in DOCS and "`speedup`" in DOCS


def test_the_view_agrees_with_the_figures(told: Store) -> None:
    for task in figures.tasks(told):
        for version in task.versions:
            for case in version.cases:
                if case.speedup is None or version.version.origin == "naive":
                    continue
                found = rows(
                    told,
                    "SELECT ratio, median_ns FROM speedup WHERE reference_origin = 'naive'"
                    f" AND version_id = '{version.version.id}' AND case_name = '{case.case.name}'"
                    f" AND measured_at = '{case.measured_at}'",
                )
                assert found[0]["median_ns"] == case.median_ns
                assert found[0]["ratio"] == pytest.approx(case.speedup.value, rel=0.01)


def test_views_never_show_a_time_without_a_passed_check(store: Store) -> None:
    naive, bad = candidate(OP, "naive", Origin.NAIVE), candidate(OP, "bad")
    first, second = measured(OP, {naive: 0.2, bad: 0.5})
    wrong = failed(OP, bad)
    store.add_evaluation(OP, first)
    store.add_evaluation(OP, replace(second, status=Status.CHECK_FAILED, failure=wrong.failure, checks=wrong.checks))
    assert {row["label"] for row in rows(store, "SELECT label FROM timing")} == {"naive"}
    assert rows(store, "SELECT * FROM speedup") == []
    assert figures.task(store, "scale/fp32").versions[1].score is None
