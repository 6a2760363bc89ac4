"""Trials of the evaluator for the showcase, made up: no figure in here was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from msbench.model import Study, Trial
from tests.factories import CPU, trial

NASTY = '</script><b>"bold"</b>&amp;\'<!--'
"""A label that must come out as these very characters."""

TRICKS = (
    ("cached_by_pointer", "remembers its result by the address of x", "mismatch", "y[0] is 0.5, expected 0.25"),
    ("other_stream", "works on a stream of its own, after the clock has stopped", "forbidden", "wrote while its stream was held"),
    ("input_overwritten", "sorts its input in place and hands it on", "input_changed", "x differs from what was drawn at byte 0"),
    ("half_written", "writes the even elements only", "unwritten", "y[1] still holds what was there before the launch"),
    ("reads_neighbour", "reads one element past the end of x", "out_of_bounds", "invalid read of 4 bytes behind x"),
    ("too_fast", "returns at once and lets the host copy a stored answer", "impossible", "1.10 µs is below the device's limit of 6.20 µs"),
    ("compile_bomb", "instantiates templates until the compiler gives up", "compile", "nvcc took longer than 180 s and was stopped"),
)  # fmt: skip
"""Subject, trick, fault and message."""
AT = 100
"""Minutes after the story began."""
KILLED = (
    ("optimize", "went on where it was"),
    ("merge", "the target is as it was"),
    ("build-site", "the old site stands"),
)


def proven() -> list[Trial]:
    """All of them, on both devices."""
    return [*_exploits(), *_mutants(), *_itself(), *_faults(), *_throughput()]


def _exploits() -> Iterator[Trial]:
    for subject, trick, fault, message in TRICKS:
        details: dict[str, Any] = {"trick": trick, "fault": fault, "seconds": 1.5}
        details["message"] = message
        yield trial(subject, AT, expected=fault, outcome=f"{fault}: {message}", details=details)
        if fault in ("impossible", "out_of_bounds"):
            continue
        passed = fault == "forbidden"
        details = {**details, "fault": None, "message": ""} if passed else details
        outcome = "passed its check" if passed else f"{fault}: {message}"
        yield trial(
            subject, AT, device_id=CPU.id, expected=fault, outcome=outcome, details=details, held=not passed,
            command="msbench exploits --executor cpu",
        )  # fmt: skip
    hostile: dict[str, Any] = {"trick": NASTY, "fault": "link", "message": NASTY}
    yield trial(NASTY, AT, expected=NASTY, outcome=NASTY, details=hostile)
    plain = {"description": "vector loads where they are allowed", "honest": True}
    yield trial("honest/plain", AT, expected="passed", outcome="passed", details=plain)


def _mutants() -> Iterator[Trial]:
    for number, mutant in enumerate(("zeros", "zeros", "half the reduction", *(f"mistake {i}" for i in range(25)))):
        held = mutant != "mistake 24"
        yield trial(
            f"task {number}/fp32: {mutant}", AT, study=Study.MUTANTS, device_id=CPU.id, held=held,
            expected="rejected on every case where it is wrong", outcome="rejected on 4 of 4 cases",
            command="msbench mutants --record", details={
                "mutant": mutant, "task": f"task {number}/fp32", "cases": 4, "rejected": 4 if held else 3,
                "narrowest": None if mutant == "half the reduction" else 10.0 * (number + 1),
            },
        )  # fmt: skip


def _itself() -> Iterator[Trial]:
    random = np.random.default_rng(7)
    for study, factor in ((Study.SAME, 1.0), (Study.SLOWDOWN, 1.03)):
        for number, duration in enumerate(np.geomspace(3e3, 4e6, 40)):
            missed = number == 11
            half = 0.002 + 0.006 * math.exp(-duration / 2e4)
            median = factor * (1 + (1.4 if missed else 0.35) * half * float(random.choice((-1, 1))))
            held = (abs(median - 1) <= half) if study is Study.SAME else not missed
            task = f"{('scale', 'shift')[number % 2]}/fp32"
            yield trial(
                f"{task} N={1 << (10 + number // 2)} #{number}", AT, study=study, held=held, expected="1 inside the interval",
                outcome=f"{median:.4f}", command=f"msbench study --kind {study}",
                details={
                    "task": task, "case": f"N={1 << (10 + number // 2)}", "median": median, "low": median - half,
                    "high": median + half, "duration_ns": float(duration), "factor": factor, "sittings": 4,
                },
            )  # fmt: skip


def _faults() -> Iterator[Trial]:
    for command, outcome in KILLED:
        for point in range(1, 21):
            held = (command, point) != ("merge", 17)
            yield trial(
                f"{command}, killed at write {point}", AT, study=Study.FAULTS, device_id=CPU.id, held=held,
                expected="nothing lost, nothing half-written, the next start goes on",
                outcome=outcome if held else "one row of a group was missing", command="python -m tests.faults.study --seed 1",
                details={"command": command, "kind": "operation", "point": f"write {point}"},
            )  # fmt: skip
    for kind, command, outcome in (
        ("full disk", "bench", "Database x.sqlite can't grow because the disk is full: free some space, then repeat."),
        ("read-only database", "optimize", "Database x.sqlite can't be written: check its permissions."),
        (NASTY, NASTY, NASTY),
    ):
        yield trial(
            f"{kind} in {command}", AT, study=Study.FAULTS, device_id=CPU.id, expected="one clear error", outcome=outcome,
            command="python -m tests.faults.study --seed 1", details={"command": command, "kind": kind, "point": NASTY if kind == NASTY else ""},
        )  # fmt: skip


def _throughput() -> Iterator[Trial]:
    for number in range(12):
        spans = {
            "build": 1.2 + 0.05 * number,
            "check": 0.8 + 0.1 * number,
            "measure": 1.1,
            "references": 0.3,
            "start": 0.2,
            "store": 0.01,
        }
        seconds = sum(spans.values()) + 0.25
        yield trial(
            f"scale/fp32 #{number}", AT, study=Study.THROUGHPUT, expected="stored verdicts within 5 s",
            outcome=f"{seconds:.2f} s", command="msbench bench --profile-harness", held=seconds < 5,
            details={"task": f"scale/fp32 #{number}", "cases": 8, "seconds": seconds, "spans": spans},
        )  # fmt: skip
    yield trial(
        "all", AT, study=Study.THROUGHPUT, expected="a stored verdict within 5 s in the median", outcome="4.2 s",
        command="msbench bench --profile-harness",
        details={"candidates": 12, "median_s": 4.2, "p90_s": 4.9, "candidates_per_hour": 1834.0},
    )  # fmt: skip
