"""cross_entropy_loss: one sum over two distributions of probability, with a logarithm for every class."""

from msbench import bounds
from msbench.spec import Array, Case, Dim, Operator, Split

SMALLEST = 1e-8
TILE = 61
CLASSES = 4  # that share the weight, at most, where few do
PARTS = 2**20  # a probability is a multiple of one part in at most C·PARTS before it is rounded


def reference(xp, X, Y, C):
    return -xp.dot(Y, xp.log(xp.maximum(X, SMALLEST))).reshape(1)


def bound(xp, u, out, X, Y, C):
    # Relative errors, in units of v: every term is ≥ 0, so the sum's growth (products included) is one of the result.
    # A logarithm has at most 3 ulp, which is 6v, or 4v if it is a base-2 one times ln 2; 10 leaves room for the clamp.
    relative = (bounds.growth(xp, C) + 10) * bounds.FP32_ROUNDOFF
    # Between 1/2 and 1 __logf errs by 2^-21.41, absolutely.
    near_one = 2.0**-21 * xp.sum(xp.where(X >= 0.5, Y, 0.0))
    # The result is fp32 in both precisions.
    return bounds.rounded(xp, bounds.FP32_ROUNDOFF, out["out"], relative * out["out"] + near_one)


def patches(rng, name, values):
    """In each tile of classes: as they are, most of the weight in few places, holes, nothing at all, or all alike."""
    xp = rng.xp
    kinds = rng.integers(f"{name} kinds", (-(-values.size // TILE),), 0, 5)
    kind, first = (xp.repeat(of, TILE)[: values.size] for of in (kinds, values[::TILE]))
    values = xp.where(kind == 4, first, values)
    values = xp.where(kind == 1, 1 + (values**3 >> 40), values)
    return xp.where((kind == 2) & (values % 3 == 0) | (kind == 3), 0, values)


def spiked(rng, name, values):
    """One in 64 is 256 times as large: whoever reads only some of them is wrong."""
    return rng.xp.where(rng.integers(f"{name} spikes", values.shape, 0, 64) == 0, 256 * values, values)


def inputs(rng, distribution, C):
    """Probabilities from whole numbers, whose sums are exact in any order, so that every machine draws the same."""
    drawn = {name: rng.integers(name, (C,), 1, PARTS).astype("int64") for name in ("X", "Y")}
    match distribution:
        case "patchwork":
            drawn = {name: patches(rng, name, values) for name, values in drawn.items()}
        case "spiked":
            drawn = {name: spiked(rng, name, values) for name, values in drawn.items()}
        case "one_hot":
            drawn["Y"][:] = 0
            drawn["Y"][rng.integers("classes", (1 + rng.position("how many", CLASSES),), 0, C)] = 1
    result = {name: (values / max(1, int(values.sum()))).astype("float32") for name, values in drawn.items()}
    if distribution == "nonfinite":
        result["Y"][rng.position("NaN", C)] = float("nan")
    return result


def case(c, split):
    return Case((("C", c),), split)


OPERATOR = Operator(
    name="cross_entropy_loss",
    title="Cross entropy",
    scenario="Activations and losses",
    definition="out = -Σᵢ Yᵢ·ln max(Xᵢ, 10⁻⁸), one float in both precisions; X and Y are ≥ 0 and sum to 1, X has no NaN",
    dims=(Dim("C", 1, 2**28, "classes"),),
    arrays=(Array("X", ("C",)), Array("Y", ("C",)), Array("out", ("1",), "f32", output=True)),
    cases=(
        *(case(2**k, Split.PAPER) for k in (14, 16, 18, 20, 22)),
        case(2**26, Split.LARGE),
        case(1_000_003, Split.ODD),
    ),
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, C: 2 * C * itemsize + 4,
    flops=lambda C: 4 * C,
    inputs=inputs,
    # "patchwork" has probabilities of zero, so that the limit of 10⁻⁸ is reached. "nonfinite": a NaN in Y. Equal
    # probabilities are left out: thousands of equal terms round the same way each time, and their errors add up.
    distributions=("uniform", "spiked", "patchwork", "one_hot", "nonfinite"),
    outliers="one_hot",
    bound_note=(
        "A sum of C terms of one sign in fp32 errs by min(C', 8√C')·2⁻²⁴ of itself in any order, C' = min(C, 4096) "
        "(Higham 2002, equation 4.4; Higham and Mary 2019, theorem 3.1), and ten roundings of its logarithms come on "
        "top (3 ulp, and an absolute 2⁻²¹ between 1/2 and 1, which is CUDA's __logf). The result is stored in fp32, so "
        "nothing is rounded to bf16."
    ),
    library_note="cub::DeviceReduce::TransformReduce over pairs of elements, loaded one by one or in packets.",
    flops_note=(
        "A logarithm counts as one operation; computed, it is a polynomial of a dozen additions and multiplications."
    ),
    paper_name="cross_entropy_loss",
)
