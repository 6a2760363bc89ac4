"""Nsight Compute: which metrics are asked for, and what is read from what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from msbench.gpu.profile import ncu
from msbench.gpu.profile.ncu import KernelProfile, NcuError

LISTING = """\
Device NVIDIA H200 (GH100)
------------------------------------------------------------ --------------- ------------------------------------------
Metric Name                                                  Metric Unit     Metric Description
------------------------------------------------------------ --------------- ------------------------------------------
dram__bytes_read                                             byte            # of bytes read from DRAM
gpu__time_duration                                           ns              incremental duration in nanoseconds
lts__t_sector_hit_rate                                       %               proportion of L2 sector lookups that hit
sm__throughput                                               %               SM throughput
"""

OUTPUT = """\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
a line of the program's own, with "quotes"
==PROF== Profiling "rms_norm_kernel" - 0: 0%....50%....100% - 9 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","gpu__time_duration.sum","launch__grid_size","sm__throughput.avg.pct_of_peak_sustained_elapsed","smsp__x.ratio"
"","","","","","","","","","","","byte","ns","","%",""
"0","4711","python3.12","127.0.0.1","rms_norm_kernel(const float *, float *, long)","1","13","(256, 1, 1)","(1,024, 1, 1)","0","9.0","134,217,728","40,000","1,024","12.5","n/a"
"1","4711","python3.12","127.0.0.1","finish(float *)","1","13","(32, 1, 1)","(1, 1, 1)","0","9.0","1,024","10,000.0","1","2.5","nan"
"""

CALLED_TWICE = OUTPUT + OUTPUT.splitlines()[-2].replace('"1","13"', '"1","14"') + "\n"
"""What ncu prints of two calls: the second one's kernel is in another stream."""

ENTRIES = {
    "dram__bytes_read.sum",
    "gpu__time_duration.sum",
    "launch__grid_size",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
}


def test_names_are_read_from_the_listing_and_metrics_chosen_by_them() -> None:
    names = ncu.parse_names(LISTING)
    assert names == {"dram__bytes_read", "gpu__time_duration", "lts__t_sector_hit_rate", "sm__throughput"}
    assert ncu.available(["sm__throughput.avg.x", "sm__nothing.sum", "lts__t_sector_hit_rate.pct"], names) == [
        "sm__throughput.avg.x",
        "lts__t_sector_hit_rate.pct",
    ]


def test_kernels_are_read_from_the_raw_page() -> None:
    first, second = ncu.parse(OUTPUT)
    assert first.name == "rms_norm_kernel(const float *, float *, long)"
    assert first.metrics["dram__bytes_read.sum"] == 134_217_728
    assert set(first.metrics) == ENTRIES
    assert second.time_ns == 10_000


@pytest.mark.parametrize("output", ["", "==ERROR== nothing", '"ID","x"\n"0","1"\n', '"ID"\n'])
def test_output_without_a_table_holds_no_kernel(output: str) -> None:
    assert ncu.parse(output) == []


def test_kernels_are_combined_by_what_their_metrics_mean() -> None:
    combined = ncu.combine(ncu.parse(OUTPUT))
    assert combined["gpu__time_duration.sum"] == 50_000
    assert combined["dram__bytes_read.sum"] == 134_217_728 + 1024
    assert combined["launch__grid_size"] == 1024
    assert combined["sm__throughput.avg.pct_of_peak_sustained_elapsed"] == pytest.approx((4 * 12.5 + 2.5) / 5)
    assert ncu.combine([]) == {}
    assert ncu.combine([KernelProfile("k", {"a__b.pct": 1.0}), KernelProfile("k", {"a__b.pct": 3.0})]) == {
        "a__b.pct": 2.0
    }


VERSION = """\
NVIDIA (R) Nsight Compute Command Line Profiler
Copyright (c) 2018-2025 NVIDIA Corporation
Version 2025.3.1.0 (build 36398880) (public-release)
"""


class Fake:
    """An ncu that logs how it is called, refuses metrics, and prints OUTPUT."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ncu"
        self.calls = folder / "calls"
        self.cache = folder / "cache"
        self.write()

    def write(
        self, refuses: str = "", code: int = 0, says: str = "", listing: str = LISTING, sleeps: float = 0,
        version: str = VERSION, output: str = OUTPUT,
    ) -> None:  # fmt: skip
        self.path.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys, time\n"
            "open(os.environ['TMPDIR'] + '/NVIDIA-left', 'w').close()\n"
            f"open({str(self.calls)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
            f"if '--version' in sys.argv: print({version!r}); sys.exit(not {version!r})\n"
            f"if '--query-metrics' in sys.argv: print({listing!r}); sys.exit()\n"
            f"time.sleep({sleeps})\n"
            f"refused = [m for m in sys.argv[sys.argv.index('--metrics') + 1].split(',') if m in {refuses!r}.split()]\n"
            "if refused: print('==ERROR== Failed to find metric ' + refused[0]); sys.exit(9)\n"
            f"if {code}: print({says!r}); sys.exit({code})\n"
            f"print({output!r})\n"
        )
        self.path.chmod(0o755)

    def collect(self, limit_s: float = 30.0) -> list[KernelProfile]:
        """One call's kernels."""
        (found,) = self.collect_all(1, limit_s)
        return found

    def collect_all(self, calls: int, limit_s: float = 30.0) -> list[list[KernelProfile]]:
        environment = {"PATH": "/usr/bin:/bin"}
        return ncu.collect(self.path, ["worker", "--profile"], environment, (9, 0), self.cache, limit_s, calls)

    def logged(self) -> list[list[str]]:
        return [json.loads(line) for line in self.calls.read_text().splitlines()]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def asked(call: list[str]) -> list[str]:
    return call[call.index("--metrics") + 1].split(",")


def test_kernels_belong_to_the_call_that_launched_them(fake: Fake) -> None:
    fake.write(output=CALLED_TWICE)
    assert [[kernel.time_ns for kernel in call] for call in fake.collect_all(2)] == [[40_000, 10_000], [40_000]]
    with pytest.raises(NcuError, match="saw no kernel"):
        fake.collect_all(3)


def test_only_what_the_chip_has_is_asked_for(fake: Fake) -> None:
    assert len(fake.collect()) == 2
    run = fake.logged()[-1]
    assert set(asked(run)) == {
        "gpu__time_duration.sum",
        "dram__bytes_read.sum",
        "lts__t_sector_hit_rate.pct",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        *ncu.LAUNCH_METRICS,
    }
    assert run[run.index("--clock-control") + 1] == "none"
    assert run[-2:] == ["worker", "--profile"]


def test_the_chip_is_asked_once(fake: Fake) -> None:
    fake.collect()
    fake.collect()
    assert sum("--query-metrics" in call for call in fake.logged()) == 1


def test_a_refused_metric_is_left_out(fake: Fake) -> None:
    fake.write(refuses="launch__grid_size launch__block_size")
    assert len(fake.collect()) == 2
    assert not {"launch__grid_size", "launch__block_size"} & set(asked(fake.logged()[-1]))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"code": 1, "says": "==ERROR== ERR_NVGPUCTRPERM - no permission"}, "only administrators"),
        ({"code": 3, "says": "msbench worker: the kernel ended with x"}, "code 3: msbench worker: the kernel ended"),
        ({"listing": "==ERROR== no such chip"}, "does not say which metrics"),
        ({"sleeps": 30}, "did not finish within 1 s"),
    ],
)
def test_why_there_are_no_counters(fake: Fake, how: dict[str, object], says: str) -> None:
    fake.write(**how)  # type: ignore[arg-type]
    with pytest.raises(NcuError, match=says):
        fake.collect(limit_s=1.0 if "sleeps" in how else 30.0)


def test_what_ncu_leaves_in_its_temporary_folder_goes_also_after_a_kill(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    fake.write(sleeps=60)
    script = (
        "import sys, pathlib; from msbench.gpu.profile import ncu\n"
        "ncu.collect(pathlib.Path(sys.argv[1]), ['worker'], {}, (9, 0), pathlib.Path(sys.argv[2]), 60)"
    )
    argv = [sys.executable, "-c", script, str(fake.path), str(fake.cache)]
    killed = subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(temporary)})
    while not (fake.calls.exists() and any("--metrics" in call for call in fake.logged()[-1:])):
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert [file.name for file in temporary.glob("*/*")] == ["NVIDIA-left"]
    fake.write()
    fake.collect()
    assert not list(temporary.iterdir())


def test_an_ncu_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NcuError, match=r"^ncu can't be started: No such file or directory$"):
        ncu.collect(tmp_path / "ncu", [], {}, (9, 0), tmp_path, 1.0)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (VERSION, "Nsight Compute 2025.3.1.0"),
        ("Version 2024.1 (build 1)\n", "Nsight Compute 2024.1"),
        ("No such version\nVersion of nothing\n", "Nsight Compute"),
        ("", "Nsight Compute"),
    ],
)
def test_a_profile_names_the_version_and_no_place(fake: Fake, version: str, name: str) -> None:
    fake.write(version=version)
    assert ncu.tool_name(fake.path) == name


def test_the_version_is_asked_once_and_an_ncu_that_is_not_there_has_none(fake: Fake, tmp_path: Path) -> None:
    assert ncu.tool_name(fake.path) == ncu.tool_name(fake.path)
    fake.collect()
    assert sum("--version" in call for call in fake.logged()) == 1
    assert ncu.tool_name(tmp_path / "nothing") == ncu.tool_name(None) == "Nsight Compute"
