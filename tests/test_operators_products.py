"""Matrix products and the like: two bf16 numbers in place of one of fp32 fail, sums of few terms pass in any order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as pairs
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench.spec import Case, Precision
from tests import turns
from tests.test_operators_bounds import (
    FP32,
    OPERATORS,
    SUMS,
    Arrays,
    case,
    many,
    precisions,
    product_terms,
    ratio,
    rounded_to,
    seeds,
    serial_sum,
    soft,
)


def split(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A product with a sum of two bf16 numbers in place of each fp32 number, without the product of the two small ones."""

    def computed(left: Any, right: Any) -> Any:
        (a, b), (c, d) = ((h, rounded_to(x - h, 8)) for x in (left, right) for h in [rounded_to(x, 8)])
        wide = [x.astype(np.float64) for x in (a, b, c, d)]
        return product(wide[0], wide[2]) + product(wide[0], wide[3]) + product(wide[1], wide[2])

    return computed


def power(matrix: Any, n: int, product: Callable[[Any, Any], Any]) -> Any:
    result = matrix
    for _ in range(n - 1):
        result = product(result, matrix).astype(np.float32)
    return result


def cross_correlation(x: Any, w: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    return windows.reshape(*windows.shape[: -w.ndim], -1) @ w.reshape(-1)


def attention(a: Arrays, first: Callable[[Any, Any], Any], second: Callable[[Any, Any], Any]) -> Any:
    scores = first(a["Q"], a["K"].T).astype(np.float32) / np.float32(np.sqrt(a["Q"].shape[1]))
    return second(soft({"x": scores}, serial_sum), a["V"])


WITH_PRODUCTS: dict[str, tuple[Case, Callable[[Arrays, Callable[..., Any]], Any], Callable[..., Any]]] = {
    "matrix_mul": (case("crossed", M=32, N=100, K=4096), lambda a, p: p(a["A"], a["B"]), np.matmul),
    "square_matrix_mul": (case("crossed", M=256), lambda a, p: p(a["A"], a["B"]), np.matmul),
    "high_order_contraction": (
        case("crossed", a=6, b=7, c=50, x=40, y=30),
        lambda a, p: p(a["A"], a["B"]),
        lambda left, right: np.einsum("axby,xcy->abc", left, right),
    ),
    "matrix_vector_mul": (case("crossed", M=50, N=4096), lambda a, p: p(a["A"], a["x"]), np.matmul),
    "matrix_mul: rows": (case("scattered", M=32, N=100, K=4096), lambda a, p: p(a["A"], a["B"]), np.matmul),
    "matrix_power": (case("scaled_permutation", N=128, P=5), lambda a, p: power(a["A"], 5, p), np.matmul),
    "softmax_attention": (case("few_keys", q=77, kv=203, d=96, dv=80), lambda a, p: attention(a, p, p), np.matmul),
    "softmax_attention: scores": (
        case("few_keys", q=77, kv=203, d=96, dv=80),
        lambda a, p: attention(a, p, np.matmul),
        np.matmul,
    ),
    "softmax_attention: outputs": (
        case("few_keys", q=77, kv=203, d=96, dv=80),
        lambda a, p: attention(a, np.matmul, p),
        np.matmul,
    ),
    "conv_1d": (case("scattered", N=16384, K=128), lambda a, p: p(a["x"], a["w"]), cross_correlation),
    "conv_2d": (case("scattered", H=96, W=90, KH=7, KW=9), lambda a, p: p(a["x"], a["w"]), cross_correlation),
}


@pytest.mark.parametrize("name", WITH_PRODUCTS)
@settings(deadline=None, max_examples=turns.examples(10))
@given(seeds)
def test_two_bf16_numbers_are_no_fp32_number(name: str, seed: int) -> None:
    """In a long sum their errors hide among those of fp32, so there are inputs with few terms, in several cases of each check."""
    here, compute, product = WITH_PRODUCTS[name]
    op = OPERATORS[name.partition(":")[0]]
    assert ratio(op, FP32, here, seed, lambda a: compute(a, product)) <= 0.5
    assert any(ratio(op, FP32, here, seed + n, lambda a: compute(a, split(product))) > 1.25 for n in range(3))


@many
@given(seeds, precisions, st.integers(1, 9), st.integers(1, 600))
def test_sums_of_few_terms_pass_in_any_order(seed: int, precision: Precision, n: int, k: int) -> None:
    for total, distribution in pairs(SUMS, ("scattered", "crossed")):
        here = case(distribution, M=7, N=n, K=k)
        assert ratio(OPERATORS["matrix_mul"], precision, here, seed, lambda a, s=total: s(product_terms(a))) <= 1
