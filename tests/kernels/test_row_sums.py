"""Blocks that kernels for sparse matrices times vectors share: lines of entries, sums of lanes by row, items brought together by rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_block_sums.cuh>
#include <msbench_cluster_sums.cuh>
#include <msbench_find_line.cuh>
#include <msbench_launch.cuh>
#include <msbench_long_lines.cuh>
#include <msbench_row_bins.cuh>
#include <msbench_sum_products.cuh>

using namespace msbench;

constexpr int kThreads = 64;

__global__ void lines_of(const int32_t* offsets, int lines, int begin, int end, int32_t* found) {
    __shared__ int scratch[kThreads];
    const LinesOfTile<kThreads> line(offsets, lines, begin, end, scratch);
    for (int k = begin + int(threadIdx.x); k < end; k += kThreads) found[k] = line(k);
}
EXPORTED lines(const int32_t* offsets, int32_t* found, int64_t count, int64_t total, int64_t tile) {
    for (int64_t begin = 0; begin < total; begin += tile)
        lines_of<<<1, kThreads>>>(offsets, int(count), int(begin), int(std::min(begin + tile, total)), found);
    return cudaGetLastError();
}

__global__ void long_lines_of(const int32_t* offsets, int lines, int total, int least, int part, int32_t* found, int32_t* owners) {
    __shared__ LongLines<kThreads, 20> list;
    const int count = list.find(offsets, lines, total, least, part);
    if (int(threadIdx.x) < count) found[threadIdx.x] = list.sorted.lines[threadIdx.x];
    if (count == 0 || threadIdx.x >= 32) return;
    for (int p = 0; p < list.sorted.first[count]; ++p) {
        const int at = list.line_of(p);
        if (threadIdx.x == 0) owners[p] = list.sorted.lines[at];
    }
}
EXPORTED long_lines(const int32_t* offsets, int32_t* found, int32_t* owners, int64_t count, int64_t total, int64_t least, int64_t part) {
    long_lines_of<<<1, kThreads>>>(offsets, int(count), int(total), int(least), int(part), found, owners);
    return cudaGetLastError();
}

__global__ void combined(const int32_t* row, const float* term, float* sums, int32_t* additions) {
    float sum = term[threadIdx.x];
    if (!combine_rows(row[threadIdx.x], sum)) return;
    sums[row[threadIdx.x]] = sum;
    atomicAdd(additions + row[threadIdx.x], 1);
}
EXPORTED combine(const int32_t* row, const float* term, float* sums, int32_t* additions) {
    combined<<<1, 32>>>(row, term, sums, additions);
    return cudaGetLastError();
}

template <bool kStored>
__global__ void in_blocks(const int32_t* row, const float* term, int count, float* sums, const __grid_constant__ BlockSums blocks) {
    extern __shared__ __align__(16) float shared[];
    blocks.clear(shared);
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i - int(threadIdx.x) % 32 < count; i += gridDim.x * blockDim.x)
        blocks.add(blocks.own(shared), i < count ? row[i] : -1, i < count ? term[i] : 0.0f);
    const auto add_quad = [](float4* at, const float4& x) {
        atomicAdd(&at->x, x.x), atomicAdd(&at->y, x.y), atomicAdd(&at->z, x.z), atomicAdd(&at->w, x.w);
    };
    blocks.collect<kStored>(shared, add_quad, [&](int r, float sum) { sums[r] = sum; });
}
EXPORTED block_sums(const int32_t* row, const float* term, float* sums, char* workspace, int64_t count, int64_t rows, int64_t most) {
    const BlockSums blocks(workspace, rows, count, int(most));
    auto* const kernel = BlockSums::stored(rows) ? in_blocks<true> : in_blocks<false>;
    return blocks.launch(0, 0)(kernel, row, term, int(count), sums, blocks);
}

__global__ void in_clusters(const int32_t* row, const float* term, int count, float* sums, const __grid_constant__ ClusterSums clusters) {
    extern __shared__ __align__(16) float shared[];
    clusters.begin(shared);
    clusters.clear(shared, sums);
    __syncthreads();
    const int lane = threadIdx.x % 32, step = clusters.shares() * blockDim.x;
    for (int i = clusters.share() * blockDim.x + threadIdx.x; i - lane < count; i += step)
        clusters.add(shared, (i < count ? row[i] : -1) - clusters.first_row(), i < count ? term[i] : 0.0f);
    clusters.collect(shared, [&](int r, float sum) { sums[r] = sum; });
}
EXPORTED cluster_sums(const int32_t* row, const float* term, float* sums, int64_t count, int64_t rows, int64_t bands, int64_t groups) {
    const ClusterSums clusters(rows, 3, int(bands), int(groups), 2);
    return clusters.launch(64, 0, 0, in_clusters, row, term, int(count), sums, clusters);
}

__global__ void fill(const int32_t* row, const float* term, int count, const __grid_constant__ RowBins<float, 256> bins) {
    extern __shared__ __align__(16) char memory[];
    int own[8];
    float item[8];
    for (int i = 0; i < 8; ++i) {
        const int at = blockIdx.x * bins.kTile + i * 256 + int(threadIdx.x);
        own[i] = at < count ? row[at] : -1;
        item[i] = at < count ? term[at] : 0.0f;
    }
    store_tile(bins, blockIdx.x, own, item, *reinterpret_cast<TileScratch<float, 256>*>(memory));
}
EXPORTED binned_sums(const int32_t* row, const float* term, float* sums, char* workspace, int64_t count, int64_t rows) {
    const RowBins<float, 256> bins(workspace, rows, count);
    const cudaError_t error = Launch(bins.tiles, 256, 0).shared(sizeof(TileScratch<float, 256>))(fill, row, term, int(count), bins);
    if (error != cudaSuccess) return error;
    return Launch(bins.kBins, 256, 0)(sum_bins<float, 256>, bins, sums, rows);
}

using Products = ProductBins<128, 4>;

__global__ void fill_products(const int32_t* row, const float* term, int count, const __grid_constant__ Products bins) {
    __shared__ ProductTile<128, 4> products;
    products.begin(bins);
    for (int tile = blockIdx.x; tile < bins.tiles; tile += gridDim.x) {
        int own[4];
        for (int i = 0; i < 4; ++i) {
            const int at = tile * bins.kTile + i * 128 + int(threadIdx.x);
            own[i] = at < count ? row[at] : -1;
        }
        products.clear();
        __syncthreads();
        ProductTile<128, 4>::Ranks ranks;
        products.count(bins, own, ranks);
        __syncthreads();
        products.place(bins, tile);
        __syncthreads();
        for (int i = 0; i < 4; ++i) {
            if (own[i] >= 0) products.put(bins, own[i], ranks[i], term[tile * bins.kTile + i * 128 + int(threadIdx.x)]);
        }
        __syncthreads();
        products.store(bins, tile);
        __syncthreads();
    }
    products.finish();
}
EXPORTED product_sums(const int32_t* row, const float* term, float* sums, char* workspace, int64_t count, int64_t rows) {
    const Products bins(workspace, rows, ceil_div(count, Products::kTile));
    fill_products<<<3, 128>>>(row, term, int(count), bins);
    return launch_sums<128, 2>(bins, sums, rows, 0);
}
EXPORTED room(int64_t* bytes, int64_t count, int64_t rows) {
    *bytes = int64_t(Products::bytes(rows, ceil_div(count, Products::kTile)));
    return 0;
}
"""


@pytest.mark.parametrize(("empty", "tile"), [(0.0, 100), (0.9, 1000), (0.999, 7)])
def test_lines(empty: float, tile: int) -> None:
    """Most lines may be empty: then a tile's are more than a block has threads."""
    rng = np.random.default_rng(1)
    lengths = np.where(rng.random(5000) < empty, 0, rng.integers(1, 9, 5000))
    lengths[[0, 4999]] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    total = int(offsets[-1])
    _, found = called("float", SOURCE, "lines", offsets, np.full(total, -1, np.int32), 5000, total, tile)
    np.testing.assert_array_equal(found, np.repeat(np.arange(5000), lengths))


@pytest.mark.parametrize("lines", [1, 20, 63, 1000, 5001])
def test_long_lines(lines: int) -> None:
    """Up to all of them; where they are, others that are almost as long, and many empty ones."""
    rng = np.random.default_rng(lines)
    lengths = np.where(rng.random(lines) < 0.5, 0, rng.integers(1, 9, lines))
    lengths[rng.integers(0, lines, 19)] = rng.integers(90, 300, 19)
    lengths[-1] = 100
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    total = int(offsets[-1])
    none = np.full(20, -1, np.int32)
    _, found, owners = called(
        "float", SOURCE, "long_lines", offsets, none, np.full(1000, -1, np.int32), lines, total, 100, 30
    )
    long = np.flatnonzero(lengths >= 100)
    np.testing.assert_array_equal(found[: long.size], long)
    assert (found[long.size :] == -1).all()
    expected = np.repeat(long, -(-lengths[long] // 30))
    np.testing.assert_array_equal(owners[: expected.size], expected)
    assert (owners[expected.size :] == -1).all()


def test_no_line_is_long() -> None:
    offsets = np.arange(501, dtype=np.int32) * 3
    none = np.full(20, -1, np.int32)
    _, found, owners = called("float", SOURCE, "long_lines", offsets, none, none.copy(), 500, 1500, 100, 30)
    assert (found == -1).all()
    assert (owners == -1).all()


@pytest.mark.parametrize("rows", [1, 3, 31])
def test_each_row_is_added_once_a_warp(rows: int) -> None:
    rng = np.random.default_rng(rows)
    row = rng.integers(-1, rows, 32).astype(np.int32)
    terms = rng.integers(-8, 9, 32).astype(np.float32)
    *_, sums, additions = called(
        "float", SOURCE, "combine", row, terms, np.zeros(rows, np.float32), np.zeros(rows, np.int32)
    )
    np.testing.assert_array_equal(sums, np.bincount(row[row >= 0], terms[row >= 0], rows))
    np.testing.assert_array_equal(additions, np.isin(np.arange(rows), row))


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("rows", [1, 300, 3000])
@pytest.mark.parametrize("function", ["binned_sums", "product_sums"])
def test_sums_by_row(function: str, rows: int, skewed: bool) -> None:
    """Twice, in a workspace that holds NaN; one row may have most of the terms."""
    rng = np.random.default_rng(rows)
    row = rng.integers(0, rows, 5000).astype(np.int32)
    if skewed:
        row[rng.random(5000) < 0.8] = rows // 2
    terms = rng.integers(-8, 9, 5000).astype(np.float32)
    given = [row, terms, np.full(rows, np.nan, np.float32), np.full(1 << 18, 255, np.uint8)]
    sums = called("float", SOURCE, function, *given, 5000, rows, times=2)[2]
    np.testing.assert_array_equal(sums, np.bincount(row, terms, rows))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("count", "rows"), [(24_000, 100), (90_000, 3000), (200_000, 129)])
def test_sums_of_uneven_bins(count: int, rows: int, share: float) -> None:
    """Three times, in a workspace that holds NaN: bins that are one block's, or cut into pieces, or all empty but one."""
    rng = np.random.default_rng(rows)
    row = np.where(rng.random(count) < share, rng.integers(0, 2, count), rng.integers(0, rows, count)).astype(np.int32)
    terms = rng.integers(-8, 9, count).astype(np.float32)
    room = int(called("float", SOURCE, "room", np.zeros(1, np.int64), count, rows)[0][0])
    given = [row, terms, np.full(rows, np.nan, np.float32), np.full(room, 255, np.uint8)]
    sums = called("float", SOURCE, "product_sums", *given, count, rows, times=3)[2]
    np.testing.assert_array_equal(sums, np.bincount(row, terms, rows))


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("rows", "most"), [(1, 1), (7, 3), (2048, 40), (4096, 2), (4097, 3), (32768, 9)])
def test_sums_of_blocks(rows: int, most: int, skewed: bool) -> None:
    """Twice, in a workspace that holds NaN, and with sums in memory that have to be as they were; two copies in a block or one."""
    rng = np.random.default_rng(rows)
    row = rng.integers(0, rows, 5000).astype(np.int32)
    if skewed:
        row[rng.random(5000) < 0.8] = rows // 2
    terms = rng.integers(-8, 9, 5000).astype(np.float32)
    given = [row, terms, np.full(rows, np.nan, np.float32), np.full(128 * 16 * -(-rows // 4), 255, np.uint8)]
    sums = called("float", SOURCE, "block_sums", *given, 5000, rows, most, times=2)[2]
    np.testing.assert_array_equal(sums, np.bincount(row, terms, rows))


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(
    ("rows", "bands", "groups"),
    [(1, 1, 1), (7, 3, 2), (2048, 16, 1), (4095, 5, 8), (4096, 1, 4), (9000, 2, 1), (3, 8, 3)],
)
def test_sums_of_clusters(rows: int, bands: int, groups: int, skewed: bool) -> None:
    """Twice, with mail that has to be as it was; rows that are no multiple of the bands, and bands without any."""
    rng = np.random.default_rng(rows)
    row = rng.integers(0, rows, 5000).astype(np.int32)
    if skewed:
        row[rng.random(5000) < 0.8] = rows // 2
    terms = rng.integers(-8, 9, 5000).astype(np.float32)
    given = [row, terms, np.full(rows, np.nan, np.float32)]
    sums = called("float", SOURCE, "cluster_sums", *given, 5000, rows, bands, groups, times=2)[2]
    np.testing.assert_array_equal(sums, np.bincount(row, terms, rows))
