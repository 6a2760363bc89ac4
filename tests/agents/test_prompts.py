"""A prompt says everything that the agent needs, and is the same text for the same history."""

from __future__ import annotations

from dataclasses import replace

from msbench.agents import Attempt
from msbench.agents._hardware import architecture
from msbench.agents._prompts import conversation
from msbench.model import Outcome
from msbench.spec import Scalar
from tests import factories
from tests.agents.samples import OP, briefing

TRIED = Attempt(
    1,
    "optimize",
    Outcome.SLOWER,
    "naive",
    "a",
    "Use shared\nmemory.",
    "It is reused.",
    1.5,
    0.8,
    False,
    "0.80x over naive.",
)


def test_the_system_message_holds_task_contract_and_machine() -> None:
    system = conversation("planner", briefing(), guidance="")[0].content
    for text in (
        OP.definition, OP.bound_note, briefing().prototype, briefing().workspace_prototype, "`scalar_t` (here `float`)",
        "`N`: 1 to 268435456: elements\n\nAccuracy: ", "workspace", "132 multiprocessors", "4 TB/s", "50 TFLOP/s",
        "800 TFLOP/s", "227 KiB", "Hopper", "2 us / 900 ns", "60 MiB L2",
    ):  # fmt: skip
        assert text in system, text


def test_the_system_message_says_which_scalars_vary() -> None:
    assert "Scalars" not in conversation("planner", briefing(), guidance="")[0].content
    op = replace(OP, scalars=(replace(OP.scalars[0], low=-3.0, high=0.5), Scalar("fixed", "float", 1.0)))
    system = conversation("planner", replace(briefing(), operator=op), guidance="")[0].content
    assert "in the timed ones:\n\n- `factor`: -3.0 to 0.5\n\nAccuracy: " in system


def test_the_planner_sees_figures_profile_history_and_the_answers_form() -> None:
    b = replace(briefing(), attempts=(*briefing().attempts, TRIED))
    user = conversation("planner", b, guidance="Turn round.")[1].content
    row = next(line for line in user.splitlines() if line.startswith("| N=65536 |"))
    assert (
        row
        == "| N=65536 | 512 KiB | 2 FLOP | 5 us (memory) | 10 us | 50 % | 1.000x [0.990, 1.010] | 6 us | 0.600x [0.590, 0.610] |"
    )
    for text in (
        b.parent.source, "**memory**", "threshold 60", "dram throughput: 71 %", "| vendor |", "Turn round.",
        "1. optimize, slower, 0.800x over naive.", "Use shared\n   memory.", "Result: 0.80x", '"predicted_speedup"',
    ):  # fmt: skip
        assert text.strip() in user, text


def test_no_figures_where_nothing_is_measured() -> None:
    b = replace(briefing(), measures=False, ceilings=None, device=factories.CPU)
    system, user = conversation("planner", b, guidance="")
    assert "not timed" in system.content and "multiprocessors" not in system.content
    assert "Nothing is timed" in user.content and "| bound |" not in user.content


def test_whoever_writes_code_sees_the_helpers() -> None:
    assert "// helpers" in conversation("coder", briefing(), plan="p", hypothesis="h")[1].content
    assert "// helpers" not in "".join(m.content for m in conversation("planner", briefing(), guidance=""))


def test_equal_briefings_give_equal_prompts() -> None:
    for agent in ("planner", "coder"):
        particulars = {"guidance": ""} if agent == "planner" else {"plan": "p", "hypothesis": "h"}
        assert conversation(agent, briefing(), **particulars) == conversation(agent, briefing(), **particulars)


def test_no_blank_line_is_doubled_and_no_template_syntax_left() -> None:
    for agent, particulars in (("planner", {"guidance": "g"}), ("coder", {"plan": "p", "hypothesis": ""})):
        for message in conversation(agent, briefing(), **particulars):
            assert "\n\n\n" not in message.content
            assert "{{" not in message.content and "{%" not in message.content


def test_architectures_are_found_by_any_spelling() -> None:
    for arch, shared in (("sm_90a", 228), ("9.0", 228), ("90", 228), ("sm_120", 100), ("8.6", 100)):
        found = architecture(replace(factories.GPU, arch=arch))
        assert found is not None and found.shared_kib == shared
    assert architecture(replace(factories.GPU, arch="")) is None
    assert architecture(factories.CPU) is None


def test_a_package_of_ones_own_brings_its_templates() -> None:
    user = conversation("mine", briefing(), text='Hurry, {{ name }}.\n{% include "_cases.md" %}', name="coder")[
        1
    ].content
    assert user.startswith("Hurry, coder.\n# The cases") and "| N=65536 |" in user
