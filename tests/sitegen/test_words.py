"""Sentences and explanations: they follow from the figures, and a figure that isn't there is not invented."""

from __future__ import annotations

import pytest

from msbench.figures.ratios import Ratio
from msbench.gpu.profile import bottleneck as profile
from msbench.gpu.profile import ncu
from msbench.model import BuildResult
from msbench.sitegen import metrics, sources, verdict
from msbench.sitegen.entries import Version
from msbench.sitegen.facts import Site
from msbench.sitegen.format import SPACE
from msbench.store.tables import ProfileRow
from tests.sitegen.showcase import NASTY


def version(site: Site, name: str, task: str = "rms_scale/fp32") -> Version:
    (found,) = (v for v in site.versions.values() if v.name == name and v.task.id == task)
    return found


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (Ratio(3.1, 3.0, 3.2, None), "3.10× (3.00 to 3.20) as fast as it"),
        (Ratio(0.82, 0.8, 0.84, None), "slower than it, 0.82× (0.80 to 0.84) its speed"),
        (Ratio(1.005, 1.004, 1.006, None), "as fast as it, 1.00× (1.00 to 1.01)"),
        (Ratio(1.3, 0.9, 1.9, None), "not clearly faster or slower than it, 1.30× (0.90 to 1.90)"),
    ],
)
def test_a_ratio_in_words(ratio: Ratio, said: str) -> None:
    assert verdict.compared(ratio, "it") == said


def test_a_version_is_told_by_its_gains_its_roofline_and_its_bottleneck(site: Site) -> None:
    said = verdict.version(site, version(site, "vector loads"))
    assert "as fast as the naive kernel" in said
    assert ") of the roofline" in said
    assert said.endswith("on N=1000003 its bottleneck moved from latency to memory.")
    assert "its parent" not in said  # the parent is the naive kernel: said once


def test_a_version_after_a_broken_one_is_compared_with_what_last_worked(site: Site) -> None:
    repaired = version(site, "grid stride, repaired")
    assert site.predecessor(repaired) == version(site, "vector loads")
    assert site.parent(repaired) == version(site, "grid stride")


def test_a_failed_version_says_why(site: Site) -> None:
    said = verdict.version(site, version(site, "grid stride"))
    assert said == "Did not compile: Line 3: identifier 'blockIdy' is undefined."


def test_a_check_on_the_cpu_claims_no_speed(site: Site) -> None:
    checked = version(site, "naive", "cpu_only/fp32")
    assert (
        verdict.version(site, checked)
        == "Passed 8 checks on 4 cases on the cpu executor; it was not timed, so no speed is claimed."
    )
    assert not checked.measured
    assert version(site, "inline ptx", "cpu_only/fp32").state == "not run here"
    assert verdict.task(site, "cpu_only/fp32") == "Nothing has been timed on a GPU yet."


def test_a_replay_shows_the_recorded_evaluation(site: Site) -> None:
    shown = version(site, "vector loads")
    assert shown.evaluation is not None and shown.evaluation.executor == "cuda"
    assert {e.executor for e in shown.evaluations} == {"cuda", "recorded"}


def test_a_run_counts_its_rounds(site: Site) -> None:
    said = verdict.run(site, site.runs["5f0c1f0e7d"])
    assert said.startswith(
        "In 7 rounds, 3 made it faster, 1 made it slower, 1 failed and 2 produced no new kernel. The best is "
    )


def test_versions_are_compared_in_a_session_that_has_both_and_not_at_all_without_one(site: Site) -> None:
    best, large, fixed = (version(site, name) for name in ("small blocks", "large blocks", "grid stride, repaired"))
    assert site.compared(best, large).overall is None
    compared = site.compared(best, fixed)
    assert compared.overall is not None
    assert compared.overall.low < compared.overall.value < compared.overall.high
    assert {case.name for case, _ in compared.cases} == {c.case.name for c in best.cases}
    assert {case.name: ratio.value for case, ratio in compared.cases}["N=16777216"] == pytest.approx(
        0.91 / 0.70, rel=0.03
    )


def test_the_counters_that_moved_the_most_come_first() -> None:
    before = {
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": 24.0,
        "launch__registers_per_thread": 32.0,
        "old": 1.0,
        "same": 7.0,
    }
    after = {
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": 92.0,
        "launch__registers_per_thread": 64.0,
        "same": 7.0,
    }
    found = metrics.changes(before, after)
    assert [c.metric.split(".")[0] for c in found] == [
        "dram__throughput",
        "launch__registers_per_thread",
        "same",
        "old",
    ]
    assert [c.times for c in found] == ["+68 points", "×2.00", "×1.00", "–"]
    name = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    assert metrics.changes({name: 50.0}, {name: 51.0})[0].times == "+1 point"


def test_of_a_profile_each_counter_is_shown_once_with_its_unit() -> None:
    forms = {"avg": 10.9e6, "max": 11.5e6, "min": 9.1e6, "sum": 2.0**30}
    found = metrics.counters(
        {
            **{f"dram__bytes_read.{form}": value for form, value in forms.items()},
            **{f"vendor__new.{form}": value for form, value in forms.items()},
            "launch__grid_size": 16384.0,
            "launch__grid_dim_x": 16384.0,
            "launch__shared_mem_per_block": 1152.0,
            "device__attribute_chip": 384.0,
            "nvlink__max_count": 18.0,
        }
    )
    shown = [(one.metric, one.shown.replace(SPACE, " ")) for one in found]
    assert shown == [
        ("dram__bytes_read.sum", "1.00 GiB"),
        ("launch__shared_mem_per_block", "1.12 KiB"),
        ("launch__grid_size", "16 384"),
        ("launch__grid_dim_x", "16 384"),
        ("vendor__new.sum", "1 073 741 824"),
    ]


def test_a_metric_is_explained_by_the_longest_beginning_that_is_known() -> None:
    assert metrics.meaning("dram__bytes_read.sum").name == "Bytes read from DRAM"
    stall = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
    assert metrics.meaning(stall).name == "Stalled on global memory"
    assert metrics.meaning("dram__bytes_reader.sum").name == "dram__bytes_reader.sum"
    assert metrics.meaning("brand_new.pct").percent


def test_every_metric_that_profiles_hold_is_explained() -> None:
    build = BuildResult("", "", "", (), 0.0, False, kernels=({"name": "k"},), sass={"LDG.E.128": 1, "HGMMA": 2})
    static = profile.static_metrics(build, profile.Achieved(0.5, 0.1, 2.0))
    for metric in (*ncu.METRICS, *ncu.LAUNCH_METRICS, *static):
        assert metrics.meaning(metric).says, metric


@pytest.mark.parametrize(
    ("source", "tool", "said"),
    [
        ("ncu", "Nsight Compute 2025.3.1.0", "Nsight Compute 2025.3.1.0"),
        ("ncu", "Nsight Compute at /usr/local/cuda-13.0/bin/ncu", "Nsight Compute"),
        ("static", "no counters: ncu ended", "Static facts and achieved figures (no counters: ncu ended)"),
        ("static", "", "Static facts and achieved figures"),
    ],
)
def test_a_profile_names_its_tool_and_no_place_on_a_machine(source: str, tool: str, said: str) -> None:
    assert sources.tool(ProfileRow(source=source, tool=tool)) == said


def test_a_label_is_never_cleaned_up(site: Site) -> None:
    assert NASTY in verdict.task(site, "hostile/fp32")
