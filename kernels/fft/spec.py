"""fft: as many passes over all data as N has bits, or fewer with larger butterflies."""

from math import pi, sqrt

from msbench import bounds
from msbench.operators import patchwork
from msbench.spec import STANDARD_DISTRIBUTIONS, Array, Case, Dim, Operator, Split


def reference(xp, re, im, N):
    """The DFT by two matrix products: cuFFT is what is tested, and need not be installed.

    With n = cols·a + b and k = c + rows·d, ω^(nk) = ω_rows^(ac)·ω_N^(bc)·ω_cols^(bd) (Cooley and Tukey 1965).
    """
    rows = 2 ** (levels(N) // 2)
    cols = N // rows
    inner = roots(xp, rows, rows, rows) @ (re + 1j * im).reshape(rows, cols)
    spectrum = ((inner * roots(xp, N, rows, cols)) @ roots(xp, cols, cols, cols)).T.reshape(N)
    return {"Re": xp.real(spectrum), "Im": xp.imag(spectrum)}


def roots(xp, order, rows, cols):
    """exp(-2πi·a·b / order) for a < rows, b < cols; angles are reduced as integers."""
    turns = xp.outer(xp.arange(rows, dtype="int64"), xp.arange(cols, dtype="int64")) % order
    angle = turns * (-2 * pi / order)
    return xp.cos(angle) + 1j * xp.sin(angle)


def levels(N):
    return N.bit_length() - 1


def bound(xp, u, out, re, im, N):
    norm = xp.sqrt(xp.sum(re * re + im * im))
    largest = xp.sqrt(xp.max(out["Re"] ** 2 + out["Im"] ** 2))
    # Twice and four times what correctly rounded twiddle factors need: their angles may be rounded to fp32, too.
    error = bounds.FP32_ROUNDOFF * sqrt(levels(N)) * (2 * bounds.CONFIDENCE * norm + 4 * largest)
    return {name: bounds.rounded(xp, u, exact, error) for name, exact in out.items()}


def case(n, split):
    return Case((("N", n),), split)


OPERATOR = Operator(
    name="fft",
    title="Fast Fourier transform",
    scenario="Scientific",
    definition="Reₖ + i·Imₖ = Σₙ (reₙ + i·imₙ)·exp(-2πi·nk/N), N a power of two",
    dims=(Dim("N", 1, 2**24, "complex numbers, a power of two"),),
    arrays=(
        Array("re", ("N",)),
        Array("im", ("N",)),
        Array("Re", ("N",), output=True),
        Array("Im", ("N",), output=True),
    ),
    cases=(
        *(case(2**k, Split.PAPER) for k in range(10, 15)),
        case(2**22, Split.LARGE),
        case(2**17, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: 4 * N * itemsize,
    flops=lambda N: 5 * N * levels(N),
    # No "nonfinite": whether a twiddle factor's zero part is multiplied with an infinity is left to the algorithm.
    distributions=tuple(name for name in STANDARD_DISTRIBUTIONS if name != "nonfinite"),
    kinds=patchwork.SMALL,
    valid=lambda N: N & (N - 1) == 0,
    deterministic=True,
    bound_note=(
        "Each of log₂N levels errs by about 2⁻²⁴ of the data's 2-norm (Higham 2002, theorem 24.2), independently, and an "
        "output gets its share ‖x‖₂ = ‖X‖₂/√N of that: 8·2⁻²⁴·√log₂N·‖x‖₂, with 8 as in Higham and Mary 2019. "
        "Where few outputs hold most of the norm, they and their aliases err by 2⁻²⁴·√log₂N·maxₖ|Xₖ| more. Twice the one and "
        "four times the other are granted, for twiddle factors whose angles were rounded to fp32 before sine and cosine."
    ),
    library_note=(
        "cuFFT's complex transform, with kernels that interleave the inputs' parts before and separate the outputs' "
        "after it; bf16 is transformed in fp32."
    ),
    bytes_note=(
        "So many points don't fit on a multiprocessor: the transform takes several passes over memory, and cuFFT's "
        "data is interleaved, so that real and imaginary parts are brought together before and taken apart after "
        "it."
    ),
    flops_note="Radices above 2 need other counts than the conventional 5N·log₂N.",
    paper_name="FFT",
)
