// A X with A's entries in equal shares, however long rows are: for few entries and narrow X, where no other work hides a long row.
//
// Rows lie in a line as positions: each row's head, then its entries, so that empty rows are work, too, and row r begins at
// offsets[r] + r. A block has a share of the positions for all columns: its threads look for the heads in it, and bring its heads and
// entries to shared memory, a position a thread. A warp has a part of them and 32 pieces of columns, with 8 rows of X under way that may
// belong to any rows of A, so that short rows keep as many loads in flight as long ones. Sums between two heads of a part go straight to
// Y; those at its ends are added up by the block.
//
// Rows up to `most` long are one block's, that of their head, which reaches beyond its share for them: even matrices need no
// block to wait for another. Of longer rows each share leaves a partial sum, and the last block to arrive adds them up, in order.
//
// Bound: nnz * K * size bytes of X from L2 at 7.5 to 8.8 TB/s (measured), behind three trips to memory, for offsets (one more beyond 1023
// rows), entries and X. spmm_gather has two of them, but a group of lanes has one row there, and waits for the longest in its block.
#pragma once

#include "msbench_head_bits.cuh"
#include "msbench_spmm_gather.cuh"

namespace msbench {

constexpr int kShareThreads = 256, kShareWarps = kShareThreads / 32, kShareBlocks = 3;  // a multiprocessor
constexpr int kMostReach = 64, kMostShare = kShareThreads - kMostReach, kLeastShare = 32;
constexpr int kLeastSharePart = 4;  // positions that are worth a warp of their own
constexpr int kNearRows = 4 * kShareThreads - 1;  // among which heads are looked for all at once

struct SharePlan {
    int share, shares, most;  // positions of each block; blocks; positions of a row that stays whole
    SharePlan(int64_t rows, int64_t total) {
        const int64_t positions = rows + total;
        share = int(std::clamp<int64_t>(ceil_div(positions, 132 * kShareBlocks), kLeastShare, kMostShare));
        shares = int(ceil_div(positions, share));
        most = std::min(share, kMostReach);
    }
};

template <typename Rows>
struct RowHeads {
    const Rows& A;
    __device__ int operator[](int row) const { return A.begin(row) + row; }
};

// By one store, which assigning a Packet<float> is not.
template <int kVec>
__device__ inline void store_sums(scalar_t* p, const float (&sum)[kVec]) {
    if constexpr (kVec == 4) *reinterpret_cast<float4*>(p) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    else Part<kVec>::store(p, sum);
}

// A head, as ~row, or an entry, as where its row of X begins, in bytes: below 2 GiB with 2^18 rows of 1024 columns.
struct alignas(8) ShareItem {
    int where;
    float value;
};

// By a warp: positions [from, to), times this lane's columns of X; `x` and `y` are those of row 0, used if `inside`, and kFlight - 1 items
// behind the last one may be read. Returns the last head's row, -1 if there is none; sums ahead of the first head and behind the last
// go to `ends`, at a distance of K.
template <int kVec, int kFlight>
__device__ inline int add_items(const ShareItem* items, int from, int to, const scalar_t* x, scalar_t* y, float* ends, bool inside,
                                int64_t K) {
    int row = -1;
    float sum[kVec] = {};
    const auto leave = [&](float* at) {
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
            if (inside) at[k] = sum[k];
        }
    };
    for (int e = from; e < to; e += kFlight) {
        Part<kVec> part[kFlight];
#pragma unroll
        for (int u = 0; u < kFlight; ++u) {  // heads load row 0: no branch comes between loads
            part[u].load(reinterpret_cast<const scalar_t*>(reinterpret_cast<const char*>(x) + unsigned(max(items[e + u].where, 0))));
        }
#pragma unroll
        for (int u = 0; u < kFlight; ++u) {
            if (e + u >= to) break;
            const ShareItem item = items[e + u];
            if (item.where >= 0) {
                part[u].add_to(sum, item.value);
                continue;
            }
            if (row < 0) leave(ends);
            else if (inside) store_sums(y + row * K, sum);
            row = ~item.where;
#pragma unroll
            for (int k = 0; k < kVec; ++k) sum[k] = 0;
        }
    }
    leave(row < 0 ? ends : ends + K);
    return row;
}

// `partial`: [2][shares][K], of the row that a share begins amid, and of the one that it ends amid.
template <int kVec, int kFlight, typename Rows>
__global__ void __launch_bounds__(kShareThreads, kShareBlocks)
    multiply_shares(const __grid_constant__ Rows A, const scalar_t* __restrict__ X, scalar_t* Y, int64_t K,
                    const __grid_constant__ SharePlan plan, int panels, float* partial) {
    constexpr int kLoads = (kNearRows + 1) / kShareThreads + 1;
    extern __shared__ __align__(16) float ends[];  // [part][2][K]
    __shared__ HeadBits<kShareThreads> heads;
    __shared__ ShareItem items[kShareThreads + kFlight];
    __shared__ int last_row[kShareWarps], earlier, begun, is_last;
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, t = blockIdx.x;
    const int start = t * plan.share, size = min(plan.share, A.rows + A.total - start);

    // Heads from the share's first position on; one stands behind the last row.
    FindLine<kShareThreads> find(A.rows, start);
    while (find.high - find.low > kNearRows) {
        const bool before = find.probe(RowHeads<Rows>{A});
        find.narrow(__syncthreads_count(before));
    }
    int head[kLoads];
    const int until = min(find.high + kShareThreads, A.rows);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int row = find.low + i * kShareThreads + tid;
        head[i] = row <= until ? RowHeads<Rows>{A}[row] - start : kShareThreads;
    }
    if (tid < heads.kWords) heads.word[tid] = 0;
    if (tid == 0) earlier = 0, begun = -start;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const unsigned mask = __ballot_sync(~0u, head[i] <= 0);
        if (mask && lane == 31 - __clz(mask)) {
            atomicAdd(&earlier, __popc(mask));
            atomicMax(&begun, head[i]);
        }
        if (head[i] >= 0 && head[i] < kShareThreads) heads.mark(head[i]);
    }
    __syncthreads();

    // Positions [from, to) are the block's. `joins`, `leaves`: they begin or end amid a row that is in shares.
    const int low = find.low + earlier - 1;  // the row of the first position
    const int second = heads.next(begun == 0 ? 0 : 1);
    const bool joins = begun < 0 && (second == kShareThreads || second - begun > plan.most);
    const int from = joins ? 0 : second;
    if (from >= size) return;
    const int last = heads.last(size - 1), next = heads.next(size);
    const bool leaves = next > size && (next == kShareThreads || next - (last < 0 ? begun : last) > plan.most);
    const int to = leaves ? size : next;
    ShareItem item = {-1, 0.0f};
    if (tid >= from && tid < to) {
        const int row = low + heads.count(tid);
        item.where = ~row;
        if (!heads.is_head(tid)) {
            const Entry entry = A.entry(start + tid - row - 1);
            item = {entry.column * int(K * sizeof(scalar_t)), entry.value};
        }
    }
    items[tid] = item;
    if (tid < kFlight) items[kShareThreads + tid] = {-1, 0.0f};
    __syncthreads();

    const int parts = max(1, min(kShareWarps / panels, (to - from) / kLeastSharePart));
    for (int i = warp; i < parts * panels; i += kShareWarps) {
        const int part = i / panels, panel = i % panels;
        const int begin = from + (to - from) * part / parts, end = from + (to - from) * (part + 1) / parts;
        const int column = (panel * 32 + lane) * kVec;
        const bool inside = column < K;
        const int row = add_items<kVec, kFlight>(items, begin, end, X + (inside ? column : 0), Y + column, ends + part * 2 * K + column,
                                                 inside, K);
        if (panel == 0 && lane == 0) last_row[part] = row;
    }
    __syncthreads();
    for (int k = tid; k < K; k += kShareThreads) {
        int row = -1;
        float sum = 0;
        for (int part = 0; part < parts; ++part) {
            sum += ends[part * 2 * K + k];
            if (last_row[part] < 0) continue;
            if (row >= 0) Y[row * K + k] = from_float<scalar_t>(sum);
            else if (joins) __stcg(partial + t * K + k, sum);
            row = last_row[part];
            sum = ends[(part * 2 + 1) * K + k];
        }
        if (row < 0) __stcg(partial + t * K + k, sum);
        else if (leaves) __stcg(partial + (plan.shares + t) * K + k, sum);
        else Y[row * K + k] = from_float<scalar_t>(sum);
    }

#pragma unroll 1
    for (int end = 0; end < 2; ++end) {
        if (end == 0 ? !joins : !leaves || last < 0) continue;
        const int row = end == 0 ? low : low + heads.count(last);
        const int first = (start + (end == 0 ? begun : last)) / plan.share, final = (A.end(row) + row) / plan.share;
        __threadfence();
        __syncthreads();
        if (tid == 0) {
            is_last = atomicInc(shares_arrived + first, final - first) == unsigned(final - first);  // which sets it back to zero
            __threadfence();
        }
        __syncthreads();
        if (!is_last) continue;
        for (int k = tid; k < K; k += kShareThreads) {
            float sum = __ldcg(partial + (plan.shares + first) * K + k);
            constexpr int kBatch = 32;
            for (int i = first + 1; i <= final; i += kBatch) {
                float more[kBatch];
#pragma unroll
                for (int u = 0; u < kBatch; ++u) more[u] = i + u <= final ? __ldcg(partial + (i + u) * K + k) : 0.0f;
#pragma unroll
                for (int u = 0; u < kBatch; ++u) sum += more[u];
            }
            Y[row * K + k] = from_float<scalar_t>(sum);
        }
    }
}

// Beyond these, entries are enough to hide long rows, or X is wide enough for tiles. By reckoning, not yet measured: even matrices of up to
// 2496 columns that lie below would rather have tiles.
constexpr int64_t kMostSharedEntries = 1 << 19, kMostSharedColumns = 1024;

inline bool worth_shares(int64_t total, int64_t K) {
    return total <= kMostSharedEntries && K <= kMostSharedColumns;
}

inline size_t shares_bytes(int64_t rows, int64_t total, int64_t K) {
    return 2 * SharePlan(rows, total).shares * K * sizeof(float);
}

template <int kVec, int kFlight, typename Rows>
cudaError_t launch_shares(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    const SharePlan plan(A.rows, A.total);
    const int panels = int(ceil_div(K, 32 * kVec)), parts = std::max(1, kShareWarps / panels);
    return Launch(plan.shares, kShareThreads, stream).shared(parts * 2 * K * sizeof(float))(
        multiply_shares<kVec, kFlight, Rows>, A, X, Y, K, plan, panels, static_cast<float*>(workspace));
}

// One launch, not early. `workspace`: shares_bytes(rows, total, K).
template <typename Rows>
cudaError_t multiply_by_shares(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    static_assert(Rows::kUneven, "positions need offsets");
    const bool pieces = packets_allowed(X, Y) && K % kPiece == 0 && K >= 16 * kPiece;  // at least half of a warp has a piece
    return pieces ? launch_shares<kPiece, 8>(A, X, Y, K, workspace, stream) : launch_shares<1, 16>(A, X, Y, K, workspace, stream);
}

}  // namespace msbench
