"""Wrong kernels: every operator's check rejects its mutants, and the survey of them tells what happened.

The kernels run on the cpu executor, in processes of their own. All cases, in every precision, are for `msbench mutants`; here each
mutant whose turn it is has two cases in one precision, since compiling it takes most of the time.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench import executors, operators
from msbench.archive.union import check_files
from msbench.cli import app
from msbench.errors import SpecError
from msbench.figures.proofs import proofs
from msbench.harness.check.cost import work
from msbench.model import Fault, Study
from msbench.operators.mutants import FILE, Mutant
from msbench.spec import Case, Operator, Precision, Split, Task
from msbench.store.store import Store
from msbench.study.mutation import ENOUGH, Survey, Verdict
from msbench.study.surveys import surveys
from tests import turns

WITH_MUTANTS = {name: op for name, op in operators.load_all().items() if (Path(op.folder) / FILE).is_file()}
AFFORDABLE = 5e6
"""The work (``schedule.work``) of a case that takes some hundredths of a second."""
ODD_SIZES_SEED = 3


def sample(op: Operator, mutant: Mutant) -> list[Case]:
    """The cheapest case with an odd size on which a mutant is wrong, and others: one, or some that are as cheap as possible."""
    drawn = operators.heldout(op, ODD_SIZES_SEED, count=24, max_elements=20_000)
    near = operators.select_cases(op, "near", ODD_SIZES_SEED)
    wrong = sorted(mutant.wrong_on((*op.cases, *drawn, *near)), key=lambda case: work(op, case))
    pool = [case for case in wrong if work(op, case) <= AFFORDABLE] or wrong[:1]
    if not mutant.everywhere:
        return wrong[:ENOUGH]
    odd = [case for case in pool if any(size % 2 and size > 1 for _, size in case.dims)] or pool
    others = [case for case in pool if case != odd[0]] if odd else []
    return odd[:1] + random.Random(f"{op.name} {mutant.name}").sample(others, min(1, len(others)))


def look(op: Operator, precision: Precision, wanted: dict[Mutant, list[Case]]) -> list[Verdict]:
    with executors.pick("cpu") as executor:
        ((_, verdicts),) = surveys(executor, [Survey(Task(op, precision), wanted)], seed=1)
        return verdicts


def of_each_precision(op: Operator) -> list[tuple[Mutant, Precision]]:
    """Each mutant in one precision: those that are wrong in both alternate."""
    possible = [(mutant, mutant.precisions or op.precisions) for mutant in operators.mutants(op)]
    return [(mutant, some[number % len(some)]) for number, (mutant, some) in enumerate(possible)]


@pytest.mark.parametrize("name", WITH_MUTANTS)
def test_every_mutant_is_rejected(name: str) -> None:
    op = WITH_MUTANTS[name]
    chosen = turns.share(of_each_precision(op), least=1)
    assert chosen
    for precision in op.precisions:
        wanted = {mutant: sample(op, mutant) for mutant, its in chosen if its is precision}
        assert [mutant.name for mutant, cases in wanted.items() if not cases] == []
        verdicts = look(op, precision, wanted)
        assert [verdict.mutant for verdict in verdicts] == list(wanted)
        for verdict in verdicts:
            assert verdict.failures == {}, verdict.mutant.name
            assert verdict.good and verdict.tried, (verdict.mutant.name, [case.id for case in verdict.survived])


@pytest.mark.parametrize("name", WITH_MUTANTS)
def test_there_are_five_of_each(name: str) -> None:
    assert len(operators.mutants(WITH_MUTANTS[name])) >= 5


# ------------------------------------------------------------------ an operator of one's own

MUTANTS = """
from msbench.spec import Precision
from msbench.operators.mutants import Mutant

LINE = "{line}"
MUTANTS = (
    Mutant("zeros", ((LINE, "y[i] = static_cast<scalar_t>(0.0f);"),)),
    Mutant("stale output", ((LINE, "if (i < N - 1) " + LINE),), applies=lambda N: N >= 2),
    Mutant("nothing wrong", ((LINE, LINE + " "),), precisions=(Precision.FP32,)),
    Mutant("crash", ((LINE, "__trap();"),), applies=lambda N: N == 3),
    Mutant("no kernel", ((LINE, "this is no code;"),)),
)
"""


@pytest.fixture
def own(tmp_path: Path) -> Operator:
    """A new operator with good and bad mutants."""
    _, naive = operators.scaffold("my_op", tmp_path)
    (line,) = re.findall(r"y\[i\] = .*?;", naive.read_text(encoding="utf-8"))
    (tmp_path / "my_op" / FILE).write_text(MUTANTS.format(line=line), encoding="utf-8")
    return operators.load("my_op", tmp_path)


def test_a_survey_tells_rejected_mutants_from_those_that_passed_or_broke(own: Operator) -> None:
    cases = operators.select_cases(own, "N=1+N=3+N=7,spiked")
    wanted = {mutant: list(mutant.wrong_on(cases)) for mutant in operators.mutants(own)}
    zeros, stale, right, crash, broken = look(own, Precision.FP32, wanted)
    assert [case.id for case in zeros.rejected] == ["N=1", "N=3", "N=7"] and zeros.good
    assert zeros.narrowest is not None and zeros.narrowest > 1e6
    assert [case.id for case in stale.rejected] == ["N=3", "N=7"] and stale.good
    assert stale.narrowest is None
    assert len(right.survived) == 3 and not right.good
    assert list(crash.failures) == ["N=3"] and not crash.good
    assert broken.failures["build"].fault is Fault.COMPILE and not broken.good
    (alone,) = look(own, Precision.FP32, {broken.mutant: []})
    assert alone.failures["build"].fault is Fault.COMPILE and not alone.good
    in_bf16 = look(own, Precision.BF16, wanted)
    assert [verdict.mutant.name for verdict in in_bf16] == ["zeros", "stale output", "crash", "no kernel"]


def test_the_command_says_what_passed_and_writes_the_table(own: Operator, tmp_path: Path) -> None:
    table = tmp_path / "docs" / "mutants.md"
    arguments = ["mutants", "my_op/fp32", "--ops-dir", str(tmp_path), "--executor", "cpu", "--cases", "N=2+N=7"]
    database = tmp_path / "trials.sqlite"
    options = ["--markdown", str(table), "--record", "--db", str(database)]
    done = CliRunner().invoke(app, [*arguments, *options], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "✓ my_op/fp32 zeros: 2 of 2 cases rejected, error ≥ " in done.output
    assert "✗ my_op/fp32 nothing wrong: 0 of 2 cases rejected\n    passed N=2; N=7\n" in done.output
    assert "– my_op/fp32 crash: 0 of 0 cases rejected" in done.output
    assert "2 of 4 mutants rejected wherever they are wrong" in done.output
    written = table.read_text(encoding="utf-8")
    assert "\n| my_op | stale output | 2 of 2 | – |  |  |\n" in written
    with Store(database) as store:
        [proof] = proofs(store, Study.MUTANTS)
    assert [(one.details["mutant"], one.held) for one in proof.trials] == [
        ("no kernel", False),
        ("nothing wrong", False),
        ("stale output", True),
        ("zeros", True),
    ]
    assert proof.trials[1].details["message"] == "Not rejected: N=2; N=7"
    assert check_files([database]) == []
    (tmp_path / "my_op" / FILE).write_text(
        (tmp_path / "my_op" / FILE).read_text(encoding="utf-8").split('    Mutant("nothing')[0] + ")\n",
        encoding="utf-8",
    )
    assert CliRunner().invoke(app, arguments).exit_code == 0


def test_at_hidden_sizes_mutants_are_tried_with_the_usual_scalars() -> None:
    """A mutant that adds 0.1 for epsilon is right where 0.1 is drawn."""
    op = operators.load("elu")
    hidden = operators.heldout(op, 0)
    tried = Mutant("any", ()).wrong_on((*op.cases, *hidden))
    assert all(case.scalars for case in hidden)
    assert [case.scalars for case in tried if case.split is Split.HELDOUT] == [()] * len({c.dims for c in hidden})
    assert (("alpha", 0.5),) in {case.scalars for case in tried}


def test_an_operator_without_mutants_has_none(tmp_path: Path) -> None:
    operators.scaffold("my_op", tmp_path)
    assert operators.mutants(operators.load("my_op", tmp_path)) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("MUTANTS = ()", "declare MUTANTS"),
        ("MUTANTS = ('zeros',)", "declare MUTANTS"),
        (
            "from msbench.operators.mutants import Mutant\nMUTANTS = (Mutant('a', (('no such text', ''),)),)",
            "'a'.*0 times",
        ),
        (
            "from msbench.operators.mutants import Mutant\nMUTANTS = (Mutant('a', ()),) * 2",
            "'a' in fp32, 'a' in bf16 given more than once",
        ),
        ("1 / 0", ":1: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_file_of_mutants_is_named(tmp_path: Path, text: str, problem: str) -> None:
    operators.scaffold("my_op", tmp_path)
    path = tmp_path / "my_op" / FILE
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=rf"{re.escape(str(path))}.*{problem}"):
        operators.mutants(operators.load("my_op", tmp_path))


def test_a_mutant_that_looks_at_samples_has_to_be_found_out_once() -> None:
    here, there, *others = (Case((("N", n),), Split.ODD) for n in range(ENOUGH))
    for everywhere, passed in ((True, False), (False, True)):
        mutant = Mutant("samples", (), everywhere=everywhere)
        assert Verdict(mutant, Precision.FP32, rejected={here: None}, survived=[there]).good is passed
        assert Verdict(mutant, Precision.FP32, rejected={here: None, there: None}).good
        assert not Verdict(mutant, Precision.FP32, survived=[here, there, *others]).good
        assert Verdict(mutant, Precision.FP32, survived=[here]).decided is everywhere


def test_a_mutant_is_tried_on_the_inputs_that_it_names() -> None:
    [case] = Mutant("zeros", (), distribution="patchwork").wrong_on([Case((("N", 3),), Split.ODD, "spiked")])
    assert case.distribution == "patchwork"
