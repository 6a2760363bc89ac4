// cooperative_groups: the block, its tiles, the lanes that are together, the grid.
#ifndef MSBENCH_CPU_GROUPS_HPP
#define MSBENCH_CPU_GROUPS_HPP

#include "all.hpp"

namespace cooperative_groups {

namespace detail {
using Site = msbench_cpu::Site;
}

// ------------------------------------------------------------------ the block

class thread_block {
public:
    static void sync(detail::Site at = detail::Site::current()) { msbench_cpu::block_barrier(at); }
    static unsigned thread_rank() { return msbench_cpu::thread_rank(); }
    static unsigned num_threads() { return msbench_cpu::block_size(); }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
    struct arrival_token {};
    static arrival_token barrier_arrive() { return {}; }
    static void barrier_wait(arrival_token&&, detail::Site at = detail::Site::current()) {
        msbench_cpu::block_barrier(at);
    }
};
inline thread_block this_thread_block() { return {}; }

// ------------------------------------------------------------------ lanes of one warp

/// What every group of lanes of one warp can do. `mask` names its lanes; ranks count them from the lowest.
class lanes {
protected:
    uint32_t mask_;
    explicit lanes(uint32_t mask) : mask_(mask) {}

    /// The lane that has a rank in the group.
    unsigned lane_of(unsigned rank) const { return __fns(mask_, 0, static_cast<int>(rank) + 1); }
    /// A mask of lanes as a mask of ranks.
    unsigned by_rank(unsigned of_lanes) const {
        unsigned result = 0;
        for (unsigned rank = 0, left = mask_; left; ++rank, left &= left - 1)
            result |= (of_lanes >> __builtin_ctz(left) & 1u) << rank;
        return result;
    }

public:
    uint32_t msbench_mask() const { return mask_; }
    unsigned thread_rank() const {
        return static_cast<unsigned>(__builtin_popcount(mask_ & ((1u << msbench_cpu::lane()) - 1u)));
    }
    unsigned num_threads() const { return static_cast<unsigned>(__builtin_popcount(mask_)); }
    unsigned size() const { return num_threads(); }
    void sync(detail::Site at = detail::Site::current()) const { __syncwarp(mask_, at); }

    template <class T>
    T shfl(T value, int rank, detail::Site at = detail::Site::current()) const {
        return msbench_cpu::exchange_from(mask_, value, lane_of(static_cast<unsigned>(rank) % num_threads()), at);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, detail::Site at = detail::Site::current()) const {
        unsigned rank = thread_rank();
        return msbench_cpu::exchange_from(mask_, value, lane_of(rank < delta ? rank : rank - delta), at);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, detail::Site at = detail::Site::current()) const {
        unsigned rank = thread_rank();
        return msbench_cpu::exchange_from(mask_, value, lane_of(rank + delta < num_threads() ? rank + delta : rank),
                                          at);
    }
    template <class T>
    T shfl_xor(T value, unsigned bits, detail::Site at = detail::Site::current()) const {
        unsigned rank = thread_rank() ^ bits;
        return msbench_cpu::exchange_from(mask_, value, lane_of(rank < num_threads() ? rank : thread_rank()), at);
    }
    unsigned ballot(int predicate, detail::Site at = detail::Site::current()) const {
        return by_rank(msbench_cpu::ballot(mask_, predicate != 0, at));
    }
    int any(int predicate, detail::Site at = detail::Site::current()) const {
        return msbench_cpu::ballot(mask_, predicate != 0, at) != 0;
    }
    int all(int predicate, detail::Site at = detail::Site::current()) const {
        return msbench_cpu::ballot(mask_, predicate == 0, at) == 0;
    }
    template <class T>
    unsigned match_any(T value, detail::Site at = detail::Site::current()) const {
        return by_rank(__match_any_sync(mask_, value, at));
    }
    template <class T>
    unsigned match_all(T value, int& equal, detail::Site at = detail::Site::current()) const {
        return by_rank(__match_all_sync(mask_, value, &equal, at));
    }
};

/// `size` neighbouring lanes: 1, 2, 4, 8, 16 or 32.
template <unsigned tile_size, class Parent = void>
class thread_block_tile : public lanes {
    static_assert(tile_size > 0 && (tile_size & (tile_size - 1)) == 0, "the size of a tile is a power of two");
    static_assert(tile_size <= 32, "msbench_unsupported: cooperative groups tiles of more than one warp");

public:
    thread_block_tile()
        : lanes((tile_size == 32 ? ~0u : (1u << tile_size) - 1u) << (msbench_cpu::lane() & ~(tile_size - 1u))) {}
    template <class Other>
    thread_block_tile(const thread_block_tile<tile_size, Other>&) : thread_block_tile() {}
    static constexpr unsigned num_threads() { return tile_size; }
    static constexpr unsigned size() { return tile_size; }
    static unsigned thread_rank() { return msbench_cpu::lane() & (tile_size - 1u); }
    static unsigned meta_group_rank() { return msbench_cpu::thread_rank() / tile_size; }
    static unsigned meta_group_size() { return (msbench_cpu::block_size() + tile_size - 1) / tile_size; }
};

/// Any lanes of a warp.
class coalesced_group : public lanes {
    unsigned rank_, groups_;

public:
    explicit coalesced_group(uint32_t mask, unsigned rank = 0, unsigned groups = 1)
        : lanes(mask), rank_(rank), groups_(groups) {}
    unsigned meta_group_rank() const { return rank_; }
    unsigned meta_group_size() const { return groups_; }
};
inline coalesced_group coalesced_threads(detail::Site at = detail::Site::current()) {
    return coalesced_group(msbench_cpu::active_mask(at));
}

template <unsigned tile_size, class Parent>
thread_block_tile<tile_size, Parent> tiled_partition(const Parent&) {
    return {};
}
/// With a size that is known at run time only.
template <class Parent>
coalesced_group tiled_partition(const Parent&, unsigned size) {
    unsigned first = msbench_cpu::lane() & ~(size - 1u);
    return coalesced_group((size == 32 ? ~0u : (1u << size) - 1u) << first, msbench_cpu::thread_rank() / size,
                           (msbench_cpu::block_size() + size - 1) / size);
}
/// The lanes of a group that have the same label.
template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label, detail::Site at = detail::Site::current()) {
    return coalesced_group(__match_any_sync(group.msbench_mask(), static_cast<long long>(label), at));
}
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate, detail::Site at = detail::Site::current()) {
    return labeled_partition(group, static_cast<int>(predicate), at);
}

// ------------------------------------------------------------------ the grid

class grid_group {
public:
    static void sync(detail::Site at = detail::Site::current()) { msbench_cpu::grid_barrier(at); }
    static bool is_valid() { return msbench_cpu::cooperative(); }
    static unsigned long long block_rank() {
        return blockIdx.x + static_cast<unsigned long long>(gridDim.x) *
                                (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
    }
    static unsigned long long num_blocks() {
        return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
    }
    static unsigned long long thread_rank() {
        return block_rank() * msbench_cpu::block_size() + msbench_cpu::thread_rank();
    }
    static unsigned long long num_threads() { return num_blocks() * msbench_cpu::block_size(); }
    static unsigned long long size() { return num_threads(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
};
inline grid_group this_grid() { return {}; }

template <class Group>
void sync(const Group& group, detail::Site at = detail::Site::current()) {
    group.sync(at);
}

// ------------------------------------------------------------------ reduce and scan

template <class T>
struct plus {
    T operator()(const T& a, const T& b) const { return a + b; }
};
template <class T>
struct less {
    T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
    T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
    T operator()(const T& a, const T& b) const { return a & b; }
};
template <class T>
struct bit_or {
    T operator()(const T& a, const T& b) const { return a | b; }
};
template <class T>
struct bit_xor {
    T operator()(const T& a, const T& b) const { return a ^ b; }
};

/// Over the group's lanes, in every lane.
template <class Group, class T, class Op>
T reduce(const Group& group, T value, Op op, detail::Site at = detail::Site::current()) {
    return msbench_cpu::fold(group.msbench_mask(), value, op, at);
}

template <class Group, class T, class Op = plus<T>>
T inclusive_scan(const Group& group, T value, Op op = {}, detail::Site at = detail::Site::current()) {
    auto all =
        msbench_cpu::warp_exchange(group.msbench_mask(), &value, sizeof value, msbench_cpu::Collective::reduce, at);
    T result = value;
    bool first = true;
    for (unsigned i = 0; i <= msbench_cpu::lane(); ++i) {
        if (!(all.present >> i & 1)) continue;
        T next = msbench_cpu::from_slot<T>(all.slots[i]);
        result = first ? next : op(result, next);
        first = false;
    }
    return result;
}
/// The first rank gets T{}.
template <class Group, class T, class Op = plus<T>>
T exclusive_scan(const Group& group, T value, Op op = {}, detail::Site at = detail::Site::current()) {
    T inclusive = inclusive_scan(group, value, op, at);
    T before = group.shfl_up(inclusive, 1, at);
    return group.thread_rank() == 0 ? T{} : before;
}

}  // namespace cooperative_groups

#endif
