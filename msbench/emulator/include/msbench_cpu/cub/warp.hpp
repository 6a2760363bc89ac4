// cub::WarpReduce and cub::WarpScan. A logical warp is `width` lanes, 1 to 32.
#ifndef MSBENCH_CPU_CUB_WARP_HPP
#define MSBENCH_CPU_CUB_WARP_HPP

#include "common.hpp"

namespace msbench_cpu {

/// The lanes of the caller's logical warp, and the values that they all gave.
template <class T, int width>
struct WarpValues {
    static_assert(width >= 1 && width <= 32);
    T values[width];
    unsigned mine;

    WarpValues(const T& value, const Site& at) {
        // Warps of a width that is no power of two do not fill the last lanes, as in CUB.
        unsigned first = lane() / width * width;
        mine = lane() - first;
        uint32_t mask = (width == 32 ? ~0u : (1u << width) - 1u) << first;
        if constexpr (sizeof(T) <= slot_bytes) {
            Exchange all = warp_exchange(mask, &value, sizeof(T), Collective::reduce, at);
            for (int i = 0; i < width; ++i) values[i] = from_slot<T>(all.slots[first + i]);
        } else {
            for (int i = 0; i < width; ++i) values[i] = exchange_from(mask, value, first + i, at);
        }
    }
};

}  // namespace msbench_cpu

namespace cub {

template <class T, int width = 32>
class WarpReduce {
    using Site = msbench_cpu::Site;
    using Values = msbench_cpu::WarpValues<T, width>;

public:
    struct TempStorage {};
    explicit WarpReduce(TempStorage&) {}

    /// Defined in the first lane only.
    template <class Op>
    T Reduce(T input, Op op, int valid = width, Site at = Site::current()) {
        Values all(input, at);
        if (all.mine != 0) return msbench_cpu::undefined_value<T>();
        T result = all.values[0];
        for (int i = 1; i < valid && i < width; ++i) result = op(result, all.values[i]);
        return result;
    }
    T Sum(T input, int valid = width, Site at = Site::current()) { return Reduce(input, std::plus<>(), valid, at); }
    T Max(T input, int valid = width, Site at = Site::current()) {
        return Reduce(input, [](const T& a, const T& b) { return a < b ? b : a; }, valid, at);
    }
    T Min(T input, int valid = width, Site at = Site::current()) {
        return Reduce(input, [](const T& a, const T& b) { return b < a ? b : a; }, valid, at);
    }
    /// Over the lanes from the caller (a head) up to the next head.
    template <class Flag, class Op>
    T HeadSegmentedReduce(T input, Flag head, Op op, Site at = Site::current()) {
        Values all(input, at);
        msbench_cpu::WarpValues<int, width> heads(head != 0, at);
        T result = input;
        for (unsigned i = all.mine + 1; i < width && !heads.values[i]; ++i) result = op(result, all.values[i]);
        return result;
    }
    template <class Flag>
    T HeadSegmentedSum(T input, Flag head, Site at = Site::current()) {
        return HeadSegmentedReduce(input, head, std::plus<>(), at);
    }
    /// Over the lanes from the caller up to the next tail, included.
    template <class Flag, class Op>
    T TailSegmentedReduce(T input, Flag tail, Op op, Site at = Site::current()) {
        Values all(input, at);
        msbench_cpu::WarpValues<int, width> tails(tail != 0, at);
        T result = input;
        for (unsigned i = all.mine; i + 1 < width && !tails.values[i]; ++i) result = op(result, all.values[i + 1]);
        return result;
    }
    template <class Flag>
    T TailSegmentedSum(T input, Flag tail, Site at = Site::current()) {
        return TailSegmentedReduce(input, tail, std::plus<>(), at);
    }
};

template <class T, int width = 32>
class WarpScan {
    using Site = msbench_cpu::Site;
    using Values = msbench_cpu::WarpValues<T, width>;

public:
    struct TempStorage {};
    explicit WarpScan(TempStorage&) {}

    template <class Op>
    void InclusiveScan(T input, T& output, Op op, T& aggregate, Site at = Site::current()) {
        Values all(input, at);
        T running = all.values[0];
        for (unsigned i = 0; i < width; ++i) {
            if (i) running = op(running, all.values[i]);
            if (i == all.mine) output = running;
        }
        aggregate = running;
    }
    template <class Op>
    void InclusiveScan(T input, T& output, Op op, Site at = Site::current()) {
        T aggregate;
        InclusiveScan(input, output, op, aggregate, at);
    }
    void InclusiveSum(T input, T& output, Site at = Site::current()) {
        InclusiveScan(input, output, std::plus<>(), at);
    }
    void InclusiveSum(T input, T& output, T& aggregate, Site at = Site::current()) {
        InclusiveScan(input, output, std::plus<>(), aggregate, at);
    }

    /// `aggregate` leaves the initial value out.
    template <class Op>
    void ExclusiveScan(T input, T& output, T initial, Op op, T& aggregate, Site at = Site::current()) {
        Values all(input, at);
        T running = initial;
        output = running;
        for (unsigned i = 0; i < all.mine; ++i) output = running = op(running, all.values[i]);
        aggregate = all.values[0];
        for (unsigned i = 1; i < width; ++i) aggregate = op(aggregate, all.values[i]);
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, T initial, Op op, Site at = Site::current()) {
        T aggregate;
        ExclusiveScan(input, output, initial, op, aggregate, at);
    }
    /// Without an initial value the first lane's result is not defined.
    template <class Op>
    void ExclusiveScan(T input, T& output, Op op, Site at = Site::current()) {
        Values all(input, at);
        T running = all.values[0];
        output = msbench_cpu::undefined_value<T>();
        for (unsigned i = 0; i < all.mine; ++i) output = running = i ? op(running, all.values[i]) : running;
    }
    void ExclusiveSum(T input, T& output, Site at = Site::current()) {
        ExclusiveScan(input, output, T{}, std::plus<>(), at);
    }
    void ExclusiveSum(T input, T& output, T& aggregate, Site at = Site::current()) {
        ExclusiveScan(input, output, T{}, std::plus<>(), aggregate, at);
    }
    T Broadcast(T input, unsigned source, Site at = Site::current()) { return Values(input, at).values[source]; }
};

}  // namespace cub

#endif
