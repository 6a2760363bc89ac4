// cub::BlockLoad, cub::BlockStore, cub::BlockExchange and cub::BlockRadixSort: moving a tile of items between
// arrangements.
//
// Blocked: thread t holds items t * items … of the tile. Striped: item i of thread t is number i * threads + t.
#ifndef MSBENCH_CPU_CUB_DATA_HPP
#define MSBENCH_CPU_CUB_DATA_HPP

#include <algorithm>

#include "common.hpp"

namespace cub {

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};

template <class T, int items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&out)[items]) {
    for (int i = 0; i < items; ++i) out[i] = from[thread * items + i];
}
template <class T, int items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&out)[items], int valid) {
    for (int i = 0; i < items; ++i)
        if (thread * items + i < valid) out[i] = from[thread * items + i];
}
template <int threads, class T, int items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&out)[items]) {
    for (int i = 0; i < items; ++i) out[i] = from[i * threads + thread];
}
template <int threads, class T, int items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&out)[items], int valid) {
    for (int i = 0; i < items; ++i)
        if (i * threads + thread < valid) out[i] = from[i * threads + thread];
}
template <class T, int items, class Iterator>
void StoreDirectBlocked(int thread, Iterator to, T (&in)[items]) {
    for (int i = 0; i < items; ++i) to[thread * items + i] = in[i];
}
template <class T, int items, class Iterator>
void StoreDirectBlocked(int thread, Iterator to, T (&in)[items], int valid) {
    for (int i = 0; i < items; ++i)
        if (thread * items + i < valid) to[thread * items + i] = in[i];
}
template <int threads, class T, int items, class Iterator>
void StoreDirectStriped(int thread, Iterator to, T (&in)[items]) {
    for (int i = 0; i < items; ++i) to[i * threads + thread] = in[i];
}
template <int threads, class T, int items, class Iterator>
void StoreDirectStriped(int thread, Iterator to, T (&in)[items], int valid) {
    for (int i = 0; i < items; ++i)
        if (i * threads + thread < valid) to[i * threads + thread] = in[i];
}

template <class T, int block_x, int items, BlockLoadAlgorithm algorithm = BLOCK_LOAD_DIRECT, int block_y = 1,
          int block_z = 1>
class BlockLoad {
    static constexpr int threads = block_x * block_y * block_z;
    /// The algorithms that go through shared memory also synchronise.
    static constexpr bool collective = algorithm >= BLOCK_LOAD_TRANSPOSE;
    using Site = msbench_cpu::Site;

public:
    struct TempStorage {};
    BlockLoad() = default;
    explicit BlockLoad(TempStorage&) {}

    template <class Iterator>
    void Load(Iterator from, T (&out)[items], Site at = Site::current()) {
        load(from, out, threads * items, at);
    }
    /// Items from `valid` on keep their values.
    template <class Iterator>
    void Load(Iterator from, T (&out)[items], int valid, Site at = Site::current()) {
        load(from, out, valid, at);
    }
    template <class Iterator, class Default>
    void Load(Iterator from, T (&out)[items], int valid, Default otherwise, Site at = Site::current()) {
        for (T& item : out) item = static_cast<T>(otherwise);
        load(from, out, valid, at);
    }

private:
    template <class Iterator>
    void load(Iterator from, T (&out)[items], int valid, const Site& at) {
        int thread = static_cast<int>(msbench_cpu::thread_rank());
        if constexpr (algorithm == BLOCK_LOAD_STRIPED)
            LoadDirectStriped<threads>(thread, from, out, valid);
        else
            LoadDirectBlocked(thread, from, out, valid);
        if constexpr (collective) msbench_cpu::block_barrier(at);
    }
};

template <class T, int block_x, int items, BlockStoreAlgorithm algorithm = BLOCK_STORE_DIRECT, int block_y = 1,
          int block_z = 1>
class BlockStore {
    static constexpr int threads = block_x * block_y * block_z;
    static constexpr bool collective = algorithm >= BLOCK_STORE_TRANSPOSE;
    using Site = msbench_cpu::Site;

public:
    struct TempStorage {};
    BlockStore() = default;
    explicit BlockStore(TempStorage&) {}

    template <class Iterator>
    void Store(Iterator to, T (&in)[items], Site at = Site::current()) {
        Store(to, in, threads * items, at);
    }
    template <class Iterator>
    void Store(Iterator to, T (&in)[items], int valid, Site at = Site::current()) {
        int thread = static_cast<int>(msbench_cpu::thread_rank());
        if constexpr (collective) msbench_cpu::block_barrier(at);
        if constexpr (algorithm == BLOCK_STORE_STRIPED)
            StoreDirectStriped<threads>(thread, to, in, valid);
        else
            StoreDirectBlocked(thread, to, in, valid);
    }
};

template <class T, int block_x, int items, bool timesliced = false, int block_y = 1, int block_z = 1>
class BlockExchange {
    static constexpr int threads = block_x * block_y * block_z;
    using Site = msbench_cpu::Site;

public:
    using TempStorage = msbench_cpu::Storage<T, static_cast<size_t>(threads) * items>;

private:
    TempStorage& storage_;

    /// Item i of this thread goes to place `to(i)` of the tile, and comes from place `from(i)`.
    template <class U, class To, class From>
    void move(const T (&in)[items], U (&out)[items], To to, From from, const Site& at) {
        for (int i = 0; i < items; ++i) storage_.values()[to(i)] = in[i];
        msbench_cpu::block_barrier(at);
        for (int i = 0; i < items; ++i) out[i] = storage_.values()[from(i)];
    }
    static int thread() { return static_cast<int>(msbench_cpu::thread_rank()); }
    static int blocked(int i) { return thread() * items + i; }
    static int striped(int i) { return i * threads + thread(); }
    static int warp_striped(int i) { return thread() / 32 * 32 * items + i * 32 + thread() % 32; }

public:
    BlockExchange() : storage_(msbench_cpu::private_storage<TempStorage>()) {}
    explicit BlockExchange(TempStorage& storage) : storage_(storage) {}

    template <class U>
    void StripedToBlocked(const T (&in)[items], U (&out)[items], Site at = Site::current()) {
        move(in, out, striped, blocked, at);
    }
    template <class U>
    void BlockedToStriped(const T (&in)[items], U (&out)[items], Site at = Site::current()) {
        move(in, out, blocked, striped, at);
    }
    template <class U>
    void WarpStripedToBlocked(const T (&in)[items], U (&out)[items], Site at = Site::current()) {
        move(in, out, warp_striped, blocked, at);
    }
    template <class U>
    void BlockedToWarpStriped(const T (&in)[items], U (&out)[items], Site at = Site::current()) {
        move(in, out, blocked, warp_striped, at);
    }
    template <class U, class Rank>
    void ScatterToBlocked(const T (&in)[items], U (&out)[items], Rank (&ranks)[items], Site at = Site::current()) {
        move(in, out, [&](int i) { return ranks[i]; }, blocked, at);
    }
    template <class U, class Rank>
    void ScatterToStriped(const T (&in)[items], U (&out)[items], Rank (&ranks)[items], Site at = Site::current()) {
        move(in, out, [&](int i) { return ranks[i]; }, striped, at);
    }
};

/// Radix sort orders by bits, so -0.0 comes before +0.0 and NaN after every number; so does this.
template <class Key, int block_x, int items, class Value = void, int radix_bits = 4>
class BlockRadixSort {
    static constexpr bool pairs = !std::is_void_v<Value>;
    using Stored = std::conditional_t<pairs, Value, char>;
    using Site = msbench_cpu::Site;
    struct Item {
        Key key;
        Stored value;
    };

public:
    using TempStorage = msbench_cpu::Storage<Item, static_cast<size_t>(block_x) * items>;

private:
    TempStorage& storage_;

    using Bits = std::conditional_t<
        sizeof(Key) == 1, uint8_t,
        std::conditional_t<sizeof(Key) == 2, uint16_t, std::conditional_t<sizeof(Key) == 4, uint32_t, uint64_t>>>;

    /// An unsigned number in the same order.
    static Bits order(const Key& key) {
        Bits bits;
        std::memcpy(&bits, &key, sizeof bits);
        constexpr Bits top = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
        if constexpr (std::is_integral_v<Key>)
            return std::is_signed_v<Key> ? static_cast<Bits>(bits ^ top) : bits;
        else
            return bits & top ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | top);
    }

    void sort(Key (&keys)[items], Stored* values, bool descending, int begin, int end, bool striped, const Site& at) {
        int thread = static_cast<int>(msbench_cpu::thread_rank());
        Item* all = storage_.values();
        for (int i = 0; i < items; ++i) all[thread * items + i] = {keys[i], values ? values[i] : Stored{}};
        msbench_cpu::block_barrier(at);
        if (thread == 0) {
            int bits = std::min<int>(end, 8 * sizeof(Key)) - begin;
            Bits mask = bits >= static_cast<int>(8 * sizeof(Bits)) ? static_cast<Bits>(~Bits{0})
                                                                   : static_cast<Bits>((Bits{1} << bits) - 1);
            std::stable_sort(all, all + block_x * items, [=](const Item& a, const Item& b) {
                Bits x = order(a.key) >> begin & mask, y = order(b.key) >> begin & mask;
                return descending ? y < x : x < y;
            });
        }
        msbench_cpu::block_barrier(at);
        for (int i = 0; i < items; ++i) {
            const Item& item = all[striped ? i * block_x + thread : thread * items + i];
            keys[i] = item.key;
            if (values) values[i] = item.value;
        }
    }

public:
    BlockRadixSort() : storage_(msbench_cpu::private_storage<TempStorage>()) {}
    explicit BlockRadixSort(TempStorage& storage) : storage_(storage) {}

#define MSBENCH_CPU_SORT(name, descending, striped)                                                     \
    void name(Key(&keys)[items], int begin = 0, int end = 8 * sizeof(Key), Site at = Site::current()) { \
        sort(keys, nullptr, descending, begin, end, striped, at);                                       \
    }                                                                                                   \
    void name(Key(&keys)[items], Stored(&values)[items], int begin = 0, int end = 8 * sizeof(Key),      \
              Site at = Site::current()) {                                                              \
        sort(keys, values, descending, begin, end, striped, at);                                        \
    }
    MSBENCH_CPU_SORT(Sort, false, false)
    MSBENCH_CPU_SORT(SortDescending, true, false)
    MSBENCH_CPU_SORT(SortBlockedToStriped, false, true)
    MSBENCH_CPU_SORT(SortDescendingBlockedToStriped, true, true)
#undef MSBENCH_CPU_SORT
};

}  // namespace cub

#endif
