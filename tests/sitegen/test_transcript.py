"""A conversation's page says everything once."""

from __future__ import annotations

from markupsafe import Markup

from msbench.sitegen import transcript
from msbench.sitegen.facts import Site
from msbench.sitegen.page import File
from msbench.sitegen.pages import run
from msbench.spec import Task
from msbench.store.store import Store
from tests import factories as make

TABLE = "# The cases\n\n" + "\n".join(f"| N={n} | {n} us |" for n in range(1, 60))
CODE = "\n".join(f"__device__ float part_{n}(float x) {{ return {n} * x; }}" for n in range(60))


def filled(store: Store, runs: int = 1) -> Site:
    op = make.operator()
    for number in range(runs):
        row = make.run_row(op, run_id=f"a{number}", device_id=None)
        store.add_task(Task(op, make.FP32))
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
        first, second = transcript.exchanges(site.calls("a0", 1), set(), {}, {})
    planner, coder = (one.said[0].html for one in (first, second))
    assert "N=59" in planner and "part_59" in planner and "[as in call" not in planner
    assert "N=59" not in coder and coder.count("[as in call 1]") == 2 and "part_59" not in coder
    assert "You code." in coder and "# The cases" in coder and "# Helpers" in coder
    assert second.said[0].size == first.said[0].size, "the whole prompt is counted"


def test_what_the_prompts_of_several_runs_have_in_common_is_a_file_that_they_link_to() -> None:
    with Store(":memory:") as store:
        site = filled(store, runs=2)
        files = {page.text.strip(): page.path for page in run.pages(site) if isinstance(page, File)}
        assert set(files) == {CODE, TABLE.partition("\n")[2].strip()}
        first, _ = transcript.exchanges(
            site.calls("a0", 1), set(), {text: Markup(f"<a href={path}>") for text, path in files.items()}, {}
        )
    assert all(f"<a href={path}>" in first.said[0].html for path in files.values())
    assert "# The cases" in first.said[0].html and "N=59" not in first.said[0].html
    with Store(":memory:") as store:
        assert not run.repeated(filled(store))
