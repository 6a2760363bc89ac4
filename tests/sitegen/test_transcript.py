"""A conversation's page says everything once."""

from __future__ import annotations

from msbench.sitegen import transcript
from msbench.sitegen.facts import Site
from msbench.sitegen.page import File
from msbench.sitegen.pages import run
from msbench.store.store import Store
from tests import factories as make

TABLE = "# The cases\n\n" + "\n".join(f"| N={n} | {n} us |" for n in range(1, 60))
CODE = "\n".join(f"__device__ float part_{n}(float x) {{ return {n} * x; }}" for n in range(60))


def filled(store: Store, runs: int = 1) -> Site:
    op = make.operator()
    for number in range(runs):
        row = make.run_row(op, run_id=f"a{number}", device_id=None)
        store.add_task(op, make.FP32)
        store.start_run(row)
        for call, (agent, said) in enumerate((("planner", "You plan."), ("coder", "You code.")), start=1):
            store.add_call(
                run_id=row.id, step_number=1, number=call, agent=agent, model="m", seconds=1.0, cost_usd=0.0,
                messages=[("user", f"# The task\n\n{said}\n\n{TABLE}\n\n# Helpers\n\n```cuda\n{CODE}\n```\n")],
                reply=f"The {agent} of run {number} has answered.", prompt_tokens=1, completion_tokens=1, created_at=make.instant(call),
            )  # fmt: skip
        store.add_step(make.step_row(row, 1, "no_kernel"))
    return Site(store)


def test_a_section_that_an_earlier_call_had_is_named_and_not_repeated() -> None:
    with Store(":memory:") as store:
        site = filled(store)
        first, second = transcript.exchanges(site.calls("a0", 1), set(), {})
    planner, coder = (one.said[0].html for one in (first, second))
    assert "N=59" in planner and "part_59" in planner and "[as in call" not in planner
    assert "N=59" not in coder and coder.count("[as in call 1]") == 2 and "part_59" not in coder
    assert "You code." in coder and "# The cases" in coder and "# Helpers" in coder
    assert second.said[0].size == first.said[0].size, "the whole prompt is counted"


def test_code_that_several_runs_quote_is_a_file() -> None:
    with Store(":memory:") as store:
        site = filled(store, runs=2)
        quoted = [page for page in run.pages(site) if isinstance(page, File)]
        (path,) = run.repeated_code(site).values()
    assert [(one.path, one.text) for one in quoted] == [(path, f"{CODE}\n")]
    with Store(":memory:") as store:
        assert not run.repeated_code(filled(store))
