"""msbench's terms as frozen dataclasses. Standard library only, so that anything may import it.

Units are in the names: ``time_ns``, ``bytes_per_s``. A figure that does not exist is ``None`` beside a status that says why.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msbench.spec import Case, Precision


class Origin(StrEnum):
    """Who wrote a version."""

    NAIVE = "naive"
    LIBRARY = "library"
    AGENT = "agent"
    EXPERT = "expert"
    EXTERNAL = "external"


class Stage(StrEnum):
    """The stages of an evaluation, in order."""

    BUILD = "build"
    CHECK = "check"
    MEASURE = "measure"
    PROFILE = "profile"


class Status(StrEnum):
    """An evaluation's result: ``passed``, or the first stage that failed.

    ``unsupported`` is no verdict on the kernel: the executor can't run it.
    """

    PASSED = "passed"
    BUILD_FAILED = "build_failed"
    CHECK_FAILED = "check_failed"
    MEASURE_FAILED = "measure_failed"
    PROFILE_FAILED = "profile_failed"
    UNSUPPORTED = "unsupported"


class Fault(StrEnum):
    """The kind of a failure; the message beside it has the particulars."""

    EMPTY = "empty"
    COMPILE = "compile"
    SIGNATURE = "signature"
    LINK = "link"
    FORBIDDEN = "forbidden"
    UNSUPPORTED = "unsupported"
    LAUNCH = "launch"
    MISMATCH = "mismatch"
    OUT_OF_BOUNDS = "out_of_bounds"
    INPUT_CHANGED = "input_changed"
    UNWRITTEN = "unwritten"
    NONDETERMINISTIC = "nondeterministic"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    IMPOSSIBLE = "impossible"
    DEVICE = "device"


class Outcome(StrEnum):
    """The result of one step of a run.

    ``improved``: passed, and faster than the best before it. ``equal``: passed, and as fast within the
    measurement's resolution. ``slower``: passed, and slower. ``checked``: passed on an
    executor that does not measure. ``failed``: a stage failed. ``duplicate``: a draft that this run already had.
    ``unchanged``: a draft that differs from its parent in comments and blanks only. ``no_kernel``: no usable reply.
    """

    BASELINE = "baseline"
    IMPROVED = "improved"
    EQUAL = "equal"
    SLOWER = "slower"
    CHECKED = "checked"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    UNCHANGED = "unchanged"
    NO_KERNEL = "no_kernel"


DEFAULT_STRATEGY = "cudamaster"
"""How ``msbench optimize`` searches where nothing else is asked for."""


class ProfileView(StrEnum):
    """How much of a profile agents see: what bears on the bottleneck, every counter, or nothing."""

    FILTERED = "filtered"
    FULL = "full"
    NONE = "none"


# ------------------------------------------------------------------ candidates


def normalise(source: str) -> str:
    """The source as it is hashed and stored: LF line ends, no trailing blanks, one final newline."""
    lines = [line.rstrip() for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return "\n".join(lines).strip("\n") + "\n"


def digest(*parts: str | bytes) -> str:
    """The first 128 bits of SHA-256 over length-prefixed parts, as 32 hex digits: the id of anything content-addressed."""
    whole = bytearray()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        whole += len(raw).to_bytes(8, "little") + raw
    return hashlib.sha256(whole).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """How a worker's calls reach the function of a file: C++ that is compiled with it, in the same translation unit.

    ``before`` comes before the file's first line and ``after`` behind its last one; together they define
    ``msbench_launch`` and ``msbench_workspace``. ``function`` is what the file has to define, ``prototype`` how.
    ``link``: vendor libraries. ``counts_memory``: what the file allocates is counted, for ``msbench_live_bytes``.

    Where whole calls are timed (``Plan.whole_calls``), ``msbench_call`` is timed instead of ``msbench_launch`` if there
    is one, between ``msbench_prepare`` and ``msbench_finish``.
    """

    before: str
    after: str
    function: str
    prototype: str
    link: tuple[str, ...] = ()
    counts_memory: bool = False


_DIRECTIVE = re.compile(r"^\s*//\s*msbench:\s*(\w+)\s+(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Candidate:
    """One source text for a task. Its id is the hash of the task and the normalised source, regardless of author.

    A source may carry directives, one a line: ``// msbench: link cublas cublasLt`` and ``// msbench: precisions fp32``.
    ``entry``: how its function is called; None stands for the kernel contract.
    """

    operator: str
    precision: Precision
    source: str
    origin: Origin = Origin.EXTERNAL
    label: str = ""
    parents: tuple[str, ...] = ()
    entry: Entry | None = None

    def __post_init__(self) -> None:
        # Without a byte order mark, which compilers skip: with it and without it is one version.
        object.__setattr__(self, "source", normalise(self.source.removeprefix("\ufeff")))

    @property
    def id(self) -> str:
        """32 hex digits."""
        return digest(self.operator, self.precision, self.source)

    @property
    def directives(self) -> dict[str, tuple[str, ...]]:
        """For example ``{"link": ("cublas",)}``."""
        return {m[1]: tuple(m[2].replace(",", " ").split()) for m in _DIRECTIVE.finditer(self.source)}

    @property
    def link(self) -> tuple[str, ...]:
        """The libraries that the source asks to be linked with."""
        return self.directives.get("link", ()) or (self.entry.link if self.entry else ())


# ------------------------------------------------------------------ devices


@dataclass(frozen=True)
class Device:
    """What ran a kernel. ``kind`` is ``"cuda"`` or ``"cpu"``; a cpu device never has times.

    ``uuid`` and ``host`` say which unit it was; each evaluation keeps its own.
    """

    kind: str
    name: str
    uuid: str
    arch: str = ""
    multiprocessors: int = 0
    memory_bytes: int = 0
    l2_bytes: int = 0
    driver: str = ""
    runtime: str = ""
    host: str = ""

    @property
    def id(self) -> str:
        """A model under a driver and a CUDA release. Another driver is another device; another unit is not.

        Ratios are always of times measured together, so they never mix units either.
        """
        return digest(self.kind, self.name, self.arch, self.driver, self.runtime)


@dataclass(frozen=True)
class Ceilings:
    """A device's measured ceilings: the roof of every roofline."""

    copy_bytes_per_s: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    fp32_flops: float
    tf32_flops: float
    bf16_flops: float
    fp64_flops: float
    launch_ns: float
    graph_node_ns: float
    l2_copy_bytes_per_s: float
    measured_at: str
    sm_clock_mhz: float | None = None

    def flops(self, compute: str) -> float:
        """The measured rate for ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp64"`` arithmetic, in FLOP/s."""
        return float(getattr(self, f"{compute}_flops"))


# ------------------------------------------------------------------ results of the stages


@dataclass(frozen=True)
class Failure:
    """Why a stage failed: one sentence for people, and the tool's own log where there is one."""

    fault: Fault
    message: str
    log: str = ""


@dataclass(frozen=True)
class BuildResult:
    """A build. ``binary`` is a path on this machine only and is never stored."""

    id: str
    candidate_id: str
    toolchain: str
    flags: tuple[str, ...]
    seconds: float
    cached: bool
    log: str = ""
    binary: str | None = None
    kernels: tuple[dict[str, Any], ...] = ()
    sass: dict[str, int] | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class CheckResult:
    """One check of one case. ``worst`` is the largest error over its bound (1.0 is the limit)."""

    case: Case
    variant: str
    seed: int
    passed: bool
    worst: float | None
    max_abs_error: float | None = None
    bitwise_repeatable: bool | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Measurement:
    """The times of one version on one case. ``group`` names the measurements that were interleaved with it.

    ``samples_ns`` holds one tuple per round: its cold repetitions, in order; an empty one where the version took no part.
    Rounds of one group pair by index. They come from ``sittings`` sessions of equal length, each in its own processes.
    ``throttle`` says what disturbed the measurement (clocks held down or drifting, others on the GPU), "" if nothing did.
    """

    case: Case
    group: str
    seed: int
    samples_ns: tuple[tuple[float, ...], ...]
    hot_ns: float | None
    host_ns: float | None
    floor_ns: float | None
    noisy: bool
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: str | None = None
    hot_note: str = ""
    failure: Failure | None = None
    sittings: int = 1


@dataclass(frozen=True)
class Profile:
    """Counters of one version on one case: ``source`` is ``"ncu"`` or ``"static"``; a metric that does not exist is absent."""

    case: Case
    source: str
    metrics: dict[str, float]
    bottleneck: str
    evidence: tuple[tuple[str, float, float], ...]
    tool: str = ""
    kernels: tuple[dict[str, Any], ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True)
class Evaluation:
    """The four stages of one version on one device. ``executor`` says who ran it.

    ``recorded_from``: the id of the evaluation whose times these are, where they were not measured now. ``note``: what a
    reader should know beside the status, in whole sentences. ``record``: what a call puts into its stream, on one case: ``case``,
    ``summary`` ("2 kernels, 1 memset") and ``nodes``; None where that was not recorded.
    """

    candidate: Candidate
    device: Device
    executor: str
    status: Status
    started_at: str
    seconds: float
    command: str
    seed: int
    build: BuildResult | None = None
    checks: tuple[CheckResult, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    profiles: tuple[Profile, ...] = ()
    failure: Failure | None = None
    harness: str = ""
    recorded_from: str | None = None
    note: str = ""
    record: dict[str, Any] | None = None


# ------------------------------------------------------------------ trials of msbench itself


class Study(StrEnum):
    """Experiments on the evaluator itself, which show how far its figures can be trusted.

    ``exploits``: kernels that cheat. ``mutants``: kernels that are wrong. ``same``: a kernel against itself. ``slowdown``: a kernel against itself slowed down
    by a known factor. ``faults``: msbench killed, or its disk or device failing. ``throughput``: how long a verdict takes.
    ``audit``: kernels of a published collection; what held is that one is right.
    """

    EXPLOITS = "exploits"
    MUTANTS = "mutants"
    SAME = "same"
    SLOWDOWN = "slowdown"
    FAULTS = "faults"
    THROUGHPUT = "throughput"
    AUDIT = "audit"


@dataclass(frozen=True)
class Trial:
    """One experiment on the evaluator, and whether it held. The trials of one recording share ``created_at``.

    ``subject`` is unique within a recording. ``expected`` and ``outcome`` are one line each. ``details`` is JSON: samples,
    figures, messages. ``device_id`` is a ``Device.id``, a processor's too; ``harness`` is the digest of the evaluator's
    source; ``command`` is what a person types to repeat the recording; ``created_at`` is ISO 8601 in UTC.
    """

    study: Study
    subject: str
    expected: str
    outcome: str
    held: bool
    details: Mapping[str, Any]
    device_id: str
    harness: str
    command: str
    created_at: str
