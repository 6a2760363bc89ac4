"""An audit on the processor, from files to report: good and bad kernels in another project's convention."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from msbench import emulator, operators
from msbench.audit import abi, files, subjects
from msbench.audit.markdown import report
from msbench.audit.run import Settings, audit, see_that_cases_are_known
from msbench.audit.subjects import Kind, planned
from msbench.audit.verdict import Speed, Tally, Verdict
from msbench.cli import app
from msbench.errors import UnknownNameError
from msbench.executors import cpu
from msbench.executors.cpu import CpuExecutor
from msbench.model import Study
from msbench.store.store import Store

KERNELS = Path(__file__).with_name("kernels")
ABI = abi.load("mskernelbench")
HANGS = "bad/prefix_sum.cu"
SIZES = "smallest+heldout"


class Silence:
    def started(self, text: str) -> None: ...

    def advanced(self, done: int, total: int, text: str) -> None: ...


@pytest.fixture(scope="module")
def executor() -> Iterator[CpuExecutor]:
    with CpuExecutor(emulator.find()) as executor:
        yield executor


@pytest.fixture(scope="module")
def verdicts(executor: CpuExecutor) -> Mapping[str, Verdict]:
    """Of every sample but the one that hangs, by its path; on hidden sizes that take no seconds on a processor."""
    found = [file for file in files.find(KERNELS, ABI) if file.name != HANGS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subjects, "HELDOUT_ELEMENTS", 40_000)
        return {v.file: v for v in audit(executor, found, Settings(SIZES), Silence())}


@pytest.mark.parametrize("path", sorted((KERNELS / "good").glob("*.cu")), ids=lambda path: path.stem)
def test_a_good_file_is_right_everywhere(verdicts: Mapping[str, Verdict], path: Path) -> None:
    verdict = verdicts[f"good/{path.name}"]
    assert verdict.symbol == path.stem
    assert verdict.held, verdict
    assert verdict.paper.tried == 1 and verdict.unseen.tried >= 3
    assert verdict.inputs.right, verdict.inputs
    assert verdict.ours is None and not verdict.times  # a processor has no times


def test_a_file_that_is_right_on_the_papers_sizes_alone_is_found_out(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/vector_add_optimized.cu"]
    assert verdict.paper.right and not verdict.unseen.right and not verdict.held
    assert any("still holds what was there before" in why for why in verdict.unseen.wrong.values())
    assert "needs arrays that are aligned to more than their element" in verdict.remarks
    assert verdict.outcome == "right on 1 of 1 paper sizes, on 2 of 4 unseen sizes"


def test_what_a_file_does_on_hidden_sizes_takes_no_paper_size_from_it(executor: CpuExecutor) -> None:
    source = (KERNELS / "bad" / "vector_add_optimized.cu").read_bytes()
    found = files.identify("a.cu", source.replace(b"int N) {", b"int N) { if (N % 512) __builtin_trap();", 1), ABI)
    (verdict,) = audit(executor, [found], Settings("paper+heldout"), Silence())
    assert verdict.paper == Tally(tried=5)
    assert verdict.outcome == "right on 5 of 5 paper sizes, on 0 of 3 unseen sizes"


def test_a_file_that_does_what_no_file_may_is_not_said_not_to_build(executor: CpuExecutor) -> None:
    source = (KERNELS / "good" / "RELU_optimized.cu").read_bytes()
    taken = b'#include "/etc/hostname"\n'
    (verdict,) = audit(executor, [files.identify("a.cu", taken + source, ABI)], Settings("N=5"), Silence())
    assert verdict.outcome.startswith("Refused before it ran: the file includes")
    assert verdict.built is None and not verdict.held
    assert "- 1 of 1 could not be judged, for the reasons above" in report("Audit", "Made here.", [verdict])


def test_a_file_that_is_wrong_is_wrong(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/MSE_loss_bf16.cu"]
    assert not verdict.paper.right and not verdict.unseen.right
    assert "times the bound" in next(iter(verdict.paper.wrong.values()))


def test_a_file_that_does_not_build_alone_says_where(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/gelu_bf16.cu"]
    assert verdict.built is False
    assert verdict.outcome == "does not build alone: bad/gelu_bf16.cu line 7: 'gelu_of' was not declared in this scope."


def test_the_right_name_with_other_parameters_is_no_kernel_of_the_convention(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/rms_norm.cu"]
    assert verdict.problem.startswith("rms_norm takes other parameters than it should.")
    assert verdict.symbol == "rms_norm" and verdict.built is None and not verdict.held


def test_a_leak_is_a_remark(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/reverse_array.cu"]
    assert verdict.held
    assert any(remark.startswith("leaks ") and remark.endswith(" bytes a call at N=1024") for remark in verdict.remarks)
    allocating = verdicts["good/softmax_bf16.cu"]
    assert allocating.remarks == ("calls cudaDeviceSynchronize, cudaFree, cudaMalloc",)


def test_a_crash_costs_its_file_three_processes_and_nobody_else_anything(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/row_tanh_optimized.cu"]
    wrong = {**verdict.paper.wrong, **verdict.unseen.wrong}
    assert len(wrong) == 3 and all("SIGABRT" in why for why in wrong.values())
    assert verdict.unseen.left_out == 4 - len(verdict.unseen.wrong)
    assert "was not tried further after it had failed in 3 processes" in verdict.remarks


def test_a_file_that_hangs_is_not_tried_again() -> None:
    found = [file for file in files.find(KERNELS, ABI) if file.name == HANGS]
    with CpuExecutor(emulator.find(), launch_limit_s=1.0) as impatient:
        (verdict,) = audit(impatient, found, Settings(SIZES), Silence())
    assert verdict.paper.tried + verdict.unseen.tried == 1
    assert "was not tried further after it hung" in verdict.remarks


def test_a_write_beside_an_array_is_found(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/sigmoid_optimized.cu"]
    assert not verdict.paper.right
    assert all("outside its arrays: 4 bytes just after y" in why for why in verdict.paper.wrong.values())


def test_a_file_of_nothing_known_has_one_line(verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts["bad/helpers.cu"]
    assert verdict.symbol is None and verdict.outcome.startswith("It defines no function of the convention")


def test_cases_with_scalars_that_a_function_does_not_take_are_not_tried(executor: CpuExecutor) -> None:
    found = files.identify("elu.cu", (KERNELS / "good" / "elu_optimized.cu").read_bytes(), ABI)
    (verdict,) = audit(executor, [found], Settings("N=1003+N=1003,alpha=0.5"), Silence())
    assert verdict.unseen == Tally(tried=1)


def test_hidden_scalars_are_those_that_every_function_takes() -> None:
    def hidden(name: str) -> list[tuple[str, ...]]:
        symbol = ABI.symbols()[name]
        items, _ = planned(operators.load(symbol.function.operator), symbol, "heldout", 3, None)
        return [tuple(n for n, _ in i.case.scalars) for i in items if i.kind is Kind.UNSEEN]

    assert hidden("elu") == [()] * 4  # alpha may be left out
    assert hidden("rms_norm") == [("epsilon",)] * 4


def test_a_scalar_that_is_passed_in_bf16_is_one_that_bf16_has(executor: CpuExecutor) -> None:
    found = files.identify("a.cu", (KERNELS / "good" / "matrix_scalar_mul_bf16.cu").read_bytes(), ABI)
    source = found.source.replace("__bfloat162float(scalar)", "__bfloat162float(scalar) * 1.01f")
    wrong = files.identify("b.cu", source.encode(), ABI)
    right, off = audit(executor, [found, wrong], Settings("M=5,N=7"), Silence())
    assert right.unseen == Tally(tried=1)
    assert list(off.unseen.wrong) == ["M=5,N=7,a=1.296875"]


def test_a_case_that_an_operator_lacks_is_left_out(executor: CpuExecutor) -> None:
    found = [files.identify(f"{name}.cu", (KERNELS / "good" / f"{name}.cu").read_bytes(), ABI)
             for name in ("RELU_optimized", "softmax_bf16")]  # fmt: skip
    relu, softmax = audit(executor, found, Settings("N=64+N=5,C=3"), Silence())
    assert (relu.unseen, softmax.unseen) == (Tally(tried=1, left_out=1), Tally(tried=1, left_out=1))
    assert relu.outcome == "right on 1 of 1 unseen sizes, not tried on paper sizes"
    (softmax,) = audit(executor, found[1:], Settings("N=64"), Silence())
    assert softmax.outcome == "not tried on paper sizes, not tried on unseen sizes" and not softmax.held


@given(parts=st.lists(st.sampled_from(["paper", "odd", "smallest", "N=64", "N=5,C=3", "N=0", "papr", ""]), min_size=1))
def test_a_case_that_no_operator_has_is_refused(parts: list[str]) -> None:
    relu, softmax = (
        files.identify("a.cu", f'extern "C" void {name}() {{ }}'.encode(), ABI) for name in ("RELU", "softmax")
    )
    nobodys = [part for part in parts if part in ("N=0", "papr", "")]
    for found, refused in (([relu, softmax], nobodys), ([softmax], [p for p in parts if p in (*nobodys, "N=64")])):
        if refused:
            with pytest.raises(UnknownNameError, match=f"There is no case of .* '{refused[0]}'"):
                see_that_cases_are_known(found, "+".join(parts))
        else:
            see_that_cases_are_known(found, " + ".join(parts))
    see_that_cases_are_known([files.identify("a.cu", b"", ABI)], "papr")  # there is nothing to try it on


def test_a_verdict_survives_being_stored(verdicts: Mapping[str, Verdict]) -> None:
    for verdict in verdicts.values():
        assert Verdict.from_json(json.loads(json.dumps(verdict.as_json()))) == verdict


# ------------------------------------------------------------------ the report


def test_the_report_has_a_row_for_each_file_and_totals(verdicts: Mapping[str, Verdict]) -> None:
    text = report("Audit", "Made here.", list(verdicts.values()))
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(verdicts) == 17
    assert all(row.count("|") == 9 for row in rows)
    assert "| `bad/vector_add_optimized.cu` | vector_add/fp32 | yes | 1 of 1 | 2 of 4 | " in text
    totals = text.partition("## Totals")[2].strip().splitlines()
    assert totals == [
        "- 17 files, of which 16 have a function of the convention",
        "- 1 of 16 could not be judged, for the reasons above",
        "- 14 of 15 build alone",
        "- 11 of 14 are right on all the paper's sizes",
        "- 10 of 14 are right on all unseen sizes",
        "- 11 of 13 are right on inputs of all other distributions",
        "- 10 of 15 build alone and are right on all sizes, the paper's and unseen ones",
    ]


def test_a_bar_in_a_name_ends_no_cell() -> None:
    (row,) = (line for line in report("Audit", "", [Verdict("a|b.cu", "")]).splitlines() if "b.cu" in line)
    assert row.startswith("| `a\\|b.cu` | ")


def test_speeds_are_reported_with_their_interval() -> None:
    fast = Verdict("a.cu", "", "gelu", "gelu/fp32", built=True, paper=Tally(3), unseen=Tally(3),
                   ours=Speed("best", 0.5, 0.45, 0.55), library=Speed("cub, cudnn", 2.0, 1.9, 2.1))  # fmt: skip
    text = report("Audit", "Made here.", [fast])
    assert "| 0.50× (0.45–0.55) best | 2.00× (1.90–2.10) cub, cudnn |" in text
    assert "- 1 file timed against our version: 0.50× as fast in the geometric mean, 0 of them faster" in text
    assert "- 1 file timed against the fastest library baseline: 2.00× as fast in the geometric mean, 1 of them" in text
    assert fast.outcome.endswith("0.50× as fast as best, 2.00× as fast as cub, cudnn")


# ------------------------------------------------------------------ the command


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files, in a folder beside the current one."""
    folder = tmp_path / "theirs"
    (folder / "sub").mkdir(parents=True)
    for name, to in (("good/RELU_optimized.cu", "r.cu"), ("bad/gelu_bf16.cu", "sub/g.cu"), ("bad/helpers.cu", "h.cu")):
        (folder / to).write_bytes((KERNELS / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    words = ["audit", "theirs", "--executor", "cpu", "--cases", "N=1024+N=77", "--db", "found.sqlite", *arguments]
    monkeypatch.setattr("sys.argv", ["msbench", *words])
    return CliRunner().invoke(app, words)


def test_the_command_reports_and_records_without_source(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch)
    assert done.exit_code == 1  # not all files are right
    assert "| `r.cu` | relu/fp32 | yes | 1 of 1 | 1 of 1 | 6 of 6 | – | – |" in done.stdout
    assert re.search(r"Made by `msbench audit theirs --executor cpu --cases N=1024\+N=77 --seed \d+` on ", done.stdout)
    with Store("found.sqlite", read_only=True) as store:
        trials = store.trials(Study.AUDIT)
        assert store.versions() == []
    assert {t.subject: t.held for t in trials} == {"r.cu": True, "sub/g.cu": False, "h.cu": False}
    assert len({t.created_at for t in trials}) == 1
    stored = Path("found.sqlite").read_bytes()
    for path in collection.rglob("*.cu"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert len(line) < 20 or line.encode() not in stored, line


def test_an_audit_goes_on_where_it_was_ended(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = CpuExecutor.build
    built: list[str] = []

    def build(self: CpuExecutor, op: Any, candidate: Any) -> Any:
        built.append(candidate.label)
        if candidate.label == "r.cu" and built.count("r.cu") == 1:
            raise KeyboardInterrupt
        return real(self, op, candidate)

    monkeypatch.setattr(cpu.CpuExecutor, "build", build)
    assert run(monkeypatch, "--json").exit_code == 130
    done = run(monkeypatch, "--resume", "--json")
    assert done.exit_code == 1
    assert "2 of 3 files are done already." in done.stderr
    assert sorted(built) == ["r.cu", "r.cu", "sub/g.cu"]
    assert {f["file"]: f["held"] for f in json.loads(done.stdout)["files"]} == {
        "h.cu": False,
        "r.cu": True,
        "sub/g.cu": False,
    }
    with Store("found.sqlite", read_only=True) as store:
        trials = store.trials(Study.AUDIT)
    assert len({(t.command, t.details["seed"], t.created_at) for t in trials}) == 1
    assert trials[0].command.endswith(f" --seed {trials[0].details['seed']}")
    assert "0 of 3 files are done already." in run(monkeypatch, "--json", "--resume", "--seed", "3").stderr
    (collection / "h.cu").write_text("// changed\n", encoding="utf-8")
    assert "2 of 3 files are done already." in run(monkeypatch, "--json", "--resume").stderr


def test_the_report_goes_to_a_file_with_json_beside_it(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (collection / "h.cu", collection / "sub" / "g.cu"):
        path.unlink()
    done = run(monkeypatch, "--report", "out/audit.md")
    assert done.exit_code == 0, done.output
    assert Path("out/audit.md").read_text(encoding="utf-8").startswith("# Audit of theirs: mskernelbench\n")
    (file,) = json.loads(Path("out/audit.json").read_text(encoding="utf-8"))["files"]
    assert (file["file"], file["outcome"]) == ("r.cu", "right on 1 of 1 paper sizes, on 1 of 1 unseen sizes")
    assert "|" not in done.stdout


def test_the_report_names_what_ran_the_files(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, "--executor", "recorded")
    assert re.search(r"^Made by .* \(cpu executor\), ", done.stdout, re.MULTILINE)


def test_a_case_that_no_operator_has_is_refused_before_work(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = run(monkeypatch, "--cases", "paper+papr").exception
    assert "There is no case of gelu 'papr'. Did you mean 'paper'?" in str(error)
    assert not Path("found.sqlite").exists()


def test_the_file_is_named_as_its_folder_names_it(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not build alone: sub/g.cu line 7: 'gelu_of' was not" in run(monkeypatch).stdout


def test_a_wrong_folder_or_convention_is_one_line(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no calling convention 'other'" in str(run(monkeypatch, "--abi", "other").exception)
    for path in collection.rglob("*.cu"):
        path.unlink()
    assert "There is no .cu file in theirs" in str(run(monkeypatch).exception)
