"""A working template of an operator: what ``msbench new-op`` writes."""

from __future__ import annotations

from pathlib import Path
from string import Template

from msbench.errors import SpecError
from msbench.operators.loader import SPEC, names, taken
from msbench.operators.validate import check_name
from msbench.operators.versions import NAIVE

_SPEC = Template('''\
"""$name: y = a·x. Change it into your operator; docs/adding_an_operator.md explains every field."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Scalar, Split


def reference(xp, x, a, N):
    """The truth, in float64 as the inputs are. ``xp`` is numpy or cupy."""
    return a * x


def bound(xp, u, out, x, a, N):
    """How far a right kernel may be off, element by element. ``u`` is the precision's unit roundoff."""
    error_of_the_scalar = bounds.FP32_ROUNDOFF * xp.abs(out["y"])  # the kernel gets it rounded to fp32
    return bounds.rounded(xp, u, out["y"], error_of_the_scalar)


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="$name",
    title="$title",
    scenario="Dense algebra",
    definition="yᵢ = a·xᵢ",
    dims=(Dim("N", 1, 2**28, "elements"),),
    arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
    scalars=(Scalar("a", "float", 1.5, low=-4.0, high=4.0),),
    cases=(
        case(2**10, Split.PAPER),
        case(2**16, Split.PAPER),
        case(2**24, Split.LARGE),
        case(100_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 2 * N * itemsize,
    flops=lambda N: N,
    bound_note="A scalar that was rounded to fp32, one product, and one rounding to the element type.",
)
''')

_NAIVE = Template("""\
// One thread per element. `scalar_t` is float or __nv_bfloat16; the arithmetic is fp32 in both.

__global__ void ${name}_kernel(const scalar_t* x, scalar_t* y, float a, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < N) y[i] = static_cast<scalar_t>(a * static_cast<float>(x[i]));
}

extern "C" cudaError_t $name(const scalar_t* x, scalar_t* y, float a, int64_t N,
                             void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    ${name}_kernel<<<(N + threads - 1) / threads, threads, 0, stream>>>(x, y, a, N);
    return cudaGetLastError();
}
""")


def scaffold(name: str, folder: Path | str) -> list[Path]:
    """Writes ``<folder>/<name>/spec.py`` and ``naive.cu``, an operator that runs, and returns their paths.

    Raises:
        SpecError: ``name`` can't be an operator's name or is a built-in one's, or one of the files is there already.
    """
    check_name(name)
    if name in names():
        raise SpecError(f"{taken(name)} Take another name, such as {f'my_{name}'!r}.")
    values = {"name": name, "title": name.replace("_", " ").capitalize()}
    texts = {SPEC: _SPEC.substitute(values), NAIVE: _NAIVE.substitute(values)}
    target = Path(folder) / name
    for file in texts:
        if (target / file).exists():
            raise SpecError(f"{target / file} exists and is left as it is. Take another name, or remove it first.")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (target / file).write_text(text, encoding="utf-8")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise SpecError(f"{target} can't be written: {why}. Give a folder that can be with --ops-dir.") from None
    return [target / file for file in texts]
