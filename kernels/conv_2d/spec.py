"""conv_2d: an image and one filter, with enough products for each pixel to be bound by arithmetic."""

from itertools import product

from msbench import bounds, weighted
from msbench.operators import patchwork
from msbench.spec import Array, Case, Dim, Operator, Split

NEARLY = 2.0**-15
"""How far a filter is from one of rank one, at most: who takes it for one errs by several bounds."""


def taps(x, w, H, W, KH, KW):
    """Each element of the filter, and the pixels that it is multiplied with."""
    rows, columns = H - KH + 1, W - KW + 1
    return ((w[a, b], x[a : a + rows, b : b + columns]) for a, b in product(range(KH), range(KW)))


def reference(xp, x, w, H, W, KH, KW):
    y, error = weighted.weighted_sum(xp, taps(x, w, H, W, KH, KW), KH * KW, (H - KH + 1, W - KW + 1))
    return {"y": y, "error": error}


def bound(xp, u, out, x, w, H, W, KH, KW):
    return bounds.rounded(xp, u, out["y"], out["error"])


def inputs(rng, distribution, H, W, KH, KW):
    """In patches, sums have few terms: everywhere, as the filter has few, or in one tile of the image. Of ``dotted`` ones the filter is
    of rank one but for one element, of ``scattered`` ones every other time but for NEARLY."""
    x = rng.floats("x", (H, W), distribution, tile=(2 * KH, 2 * KW), kinds=patchwork.TERMS)
    if distribution == "patchwork":
        return {"x": x, "w": rng.few("w", KH * KW, 1).reshape(KH, KW)}
    if distribution == "scattered" and rng.position("separable", 2):
        down, across = rng.floats("down", (KH, 1), "uniform"), rng.floats("across", (KW,), "uniform")
        return {"x": x, "w": down * across + rng.floats("w", (KH, KW), "uniform") * rng.xp.float32(NEARLY)}
    drawn = "uniform" if distribution == "scattered" else distribution
    return {"x": x, "w": rng.floats("w", (KH, KW), drawn, kinds=("uniform", "ties"))}


def case(side, filter_side, split):
    return Case((("H", side), ("W", side), ("KH", filter_side), ("KW", filter_side)), split)


OPERATOR = Operator(
    name="conv_2d",
    title="Convolution in two dimensions",
    scenario="LLM",
    definition="yᵢⱼ = Σₐ Σᵦ wₐᵦ·xᵢ₊ₐ,ⱼ₊ᵦ, a from 0 to KH-1, b from 0 to KW-1 (valid cross-correlation, one channel)",
    dims=(
        Dim("H", 1, 2**14, "rows of the image"),
        Dim("W", 1, 2**14, "columns of the image"),
        Dim("KH", 1, 32, "rows of the filter, at most H"),
        Dim("KW", 1, 32, "columns of the filter, at most W"),
    ),
    arrays=(
        Array("x", ("H", "W")),
        Array("w", ("KH", "KW")),
        Array("y", ("max(H - KH + 1, 0)", "max(W - KW + 1, 0)"), output=True),
    ),
    cases=(
        *(case(side, filter_side, Split.PAPER) for side in (256, 1024, 4096) for filter_side in (8, 16, 32)),
        case(8192, 16, Split.LARGE),
        case(1003, 7, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, H, W, KH, KW: (H * W + KH * KW + (H - KH + 1) * (W - KW + 1)) * itemsize,
    flops=lambda H, W, KH, KW: 2 * KH * KW * (H - KH + 1) * (W - KW + 1),
    compute="precision",
    inputs=inputs,
    valid=lambda H, W, KH, KW: KH <= H and KW <= W,
    bound_note=(
        "A sum of n = KH·KW products in fp32, in any order, errs by 8·2⁻²⁴·√n times its largest partial sum, √t if all but t "
        "of them are zero (Higham and Mary 2019, theorem 3.1); that is taken as the largest of eight partial sums plus √Σ(wx)². It counts for each output alone, which rules out inputs rounded to TF32, two bf16 numbers in "
        "place of one of fp32, and convolutions by FFT where pixels differ in size."
    ),
    library_note=(
        "cuDNN's convolution with one channel, with the algorithms and engines that sum products in fp32 tried "
        "for at most a second a size; fp32 without TF32."
    ),
    paper_name="conv_2d",
)
