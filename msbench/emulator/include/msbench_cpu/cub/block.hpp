// cub::BlockReduce and cub::BlockScan.
#ifndef MSBENCH_CPU_CUB_BLOCK_HPP
#define MSBENCH_CPU_CUB_BLOCK_HPP

#include "common.hpp"

namespace cub {

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS,
    BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC,
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int block_x, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int block_y = 1, int block_z = 1>
class BlockReduce {
    static constexpr int threads = block_x * block_y * block_z;
    using Site = msbench_cpu::Site;

public:
    using TempStorage = msbench_cpu::Storage<T, threads>;

private:
    TempStorage& storage_;

public:
    BlockReduce() : storage_(msbench_cpu::private_storage<TempStorage>()) {}
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

    /// Over the first `valid` threads; defined in thread 0 only.
    template <class Op>
    T Reduce(T input, Op op, int valid, Site at = Site::current()) {
        unsigned rank = msbench_cpu::thread_rank();
        storage_.values()[rank] = input;
        msbench_cpu::block_barrier(at);
        if (rank != 0) return msbench_cpu::undefined_value<T>();
        T result = storage_.values()[0];
        for (int i = 1; i < valid && i < threads; ++i) result = op(result, storage_.values()[i]);
        return result;
    }
    template <class Op>
    T Reduce(T input, Op op, Site at = Site::current()) {
        return Reduce(input, op, threads, at);
    }
    template <int items, class Op>
    T Reduce(T (&inputs)[items], Op op, Site at = Site::current()) {
        return Reduce(ThreadReduceItems(inputs, op), op, threads, at);
    }
    T Sum(T input, Site at = Site::current()) { return Reduce(input, std::plus<>(), threads, at); }
    T Sum(T input, int valid, Site at = Site::current()) { return Reduce(input, std::plus<>(), valid, at); }
    template <int items>
    T Sum(T (&inputs)[items], Site at = Site::current()) {
        return Reduce(inputs, std::plus<>(), at);
    }
};

template <class T, int block_x, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int block_y = 1, int block_z = 1>
class BlockScan {
    static constexpr int threads = block_x * block_y * block_z;
    using Site = msbench_cpu::Site;

public:
    /// One value a thread, and a prefix that a callback gives.
    struct TempStorage {
        msbench_cpu::Storage<T, threads> values;
        msbench_cpu::Storage<T, 1> prefix;
    };

private:
    TempStorage& storage_;

    /// Leaves the inclusive scan of all threads' totals in the storage; returns the sum of the threads before the
    /// caller (of thread 0: an undefined value).
    template <class Op>
    T before(const T& total, Op op, T& aggregate, const Site& at) {
        unsigned rank = msbench_cpu::thread_rank();
        T* values = storage_.values.values();
        values[rank] = total;
        msbench_cpu::block_barrier(at);
        if (rank == 0)
            for (int i = 1; i < threads; ++i) values[i] = op(values[i - 1], values[i]);
        msbench_cpu::block_barrier(at);
        aggregate = values[threads - 1];
        return rank ? values[rank - 1] : msbench_cpu::undefined_value<T>();
    }

    template <int items, class Op>
    void inclusive(const T (&input)[items], T (&output)[items], Op op, T& aggregate, const T* prefix, const Site& at) {
        T prior = before(ThreadReduceItems(input, op), op, aggregate, at);
        bool first = msbench_cpu::thread_rank() == 0;
        if (prefix) prior = first ? *prefix : op(*prefix, prior);
        T running = first && !prefix ? input[0] : op(prior, input[0]);
        for (int i = 0; i < items; ++i) {
            if (i) running = op(running, input[i]);
            T value = running;
            output[i] = value;
        }
    }

    template <int items, class Op>
    void exclusive(const T (&input)[items], T (&output)[items], Op op, T& aggregate, const T* initial, const Site& at) {
        T total = ThreadReduceItems(input, op);
        T prior = before(total, op, aggregate, at);
        bool first = msbench_cpu::thread_rank() == 0;
        if (initial) prior = first ? *initial : op(*initial, prior);
        for (int i = 0; i < items; ++i) {
            T value = input[i];  // input and output may be the same array
            output[i] = prior;
            prior = i == 0 && first && !initial ? value : op(prior, value);
        }
    }

    /// What the callback of warp 0 answers in its first lane, for every thread.
    template <class Callback>
    T prefix_from(Callback& callback, const T& aggregate, const Site& at) {
        if (msbench_cpu::thread_rank() < 32) {
            T prefix = callback(aggregate);
            if (msbench_cpu::thread_rank() == 0) *storage_.prefix.values() = prefix;
        }
        msbench_cpu::block_barrier(at);
        return *storage_.prefix.values();
    }

public:
    BlockScan() : storage_(msbench_cpu::private_storage<TempStorage>()) {}
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}

    // ---------------------------------------------------------------- inclusive

    template <int items, class Op>
    void InclusiveScan(T (&input)[items], T (&output)[items], Op op, T& aggregate, Site at = Site::current()) {
        inclusive(input, output, op, aggregate, static_cast<const T*>(nullptr), at);
    }
    template <int items, class Op>
    void InclusiveScan(T (&input)[items], T (&output)[items], Op op, Site at = Site::current()) {
        T aggregate;
        InclusiveScan(input, output, op, aggregate, at);
    }
    template <int items, class Op, class Callback>
        requires std::is_invocable_v<Callback&, T>
    void InclusiveScan(T (&input)[items], T (&output)[items], Op op, Callback& callback, Site at = Site::current()) {
        T aggregate;
        before(ThreadReduceItems(input, op), op, aggregate, at);
        T prefix = prefix_from(callback, aggregate, at);
        inclusive(input, output, op, aggregate, &prefix, at);
    }
    template <class Op, class... Rest>
    void InclusiveScan(T input, T& output, Op op, Rest&&... rest) {
        T in[1] = {input}, out[1];
        InclusiveScan(in, out, op, std::forward<Rest>(rest)...);
        output = out[0];
    }
    void InclusiveSum(T input, T& output, Site at = Site::current()) {
        InclusiveScan(input, output, std::plus<>(), at);
    }
    void InclusiveSum(T input, T& output, T& aggregate, Site at = Site::current()) {
        InclusiveScan(input, output, std::plus<>(), aggregate, at);
    }
    template <class Callback>
        requires std::is_invocable_v<Callback&, T>
    void InclusiveSum(T input, T& output, Callback& callback, Site at = Site::current()) {
        InclusiveScan(input, output, std::plus<>(), callback, at);
    }
    template <int items, class... Rest>
    void InclusiveSum(T (&input)[items], T (&output)[items], Rest&&... rest) {
        InclusiveScan(input, output, std::plus<>(), std::forward<Rest>(rest)...);
    }

    // ---------------------------------------------------------------- exclusive

    template <int items, class Op>
    void ExclusiveScan(T (&input)[items], T (&output)[items], T initial, Op op, T& aggregate,
                       Site at = Site::current()) {
        exclusive(input, output, op, aggregate, &initial, at);
    }
    template <int items, class Op>
    void ExclusiveScan(T (&input)[items], T (&output)[items], T initial, Op op, Site at = Site::current()) {
        T aggregate;
        ExclusiveScan(input, output, initial, op, aggregate, at);
    }
    /// Without an initial value thread 0's first result is not defined.
    template <int items, class Op>
        requires std::is_invocable_v<Op&, T, T>
    void ExclusiveScan(T (&input)[items], T (&output)[items], Op op, Site at = Site::current()) {
        T aggregate;
        exclusive(input, output, op, aggregate, static_cast<const T*>(nullptr), at);
    }
    template <int items, class Op, class Callback>
        requires(std::is_invocable_v<Op&, T, T> && std::is_invocable_v<Callback&, T>)
    void ExclusiveScan(T (&input)[items], T (&output)[items], Op op, Callback& callback, Site at = Site::current()) {
        T aggregate;
        before(ThreadReduceItems(input, op), op, aggregate, at);
        T prefix = prefix_from(callback, aggregate, at);
        exclusive(input, output, op, aggregate, &prefix, at);
    }
    template <class... Rest>
    void ExclusiveScan(T input, T& output, Rest&&... rest) {
        T in[1] = {input}, out[1];
        ExclusiveScan(in, out, std::forward<Rest>(rest)...);
        output = out[0];
    }
    void ExclusiveSum(T input, T& output, Site at = Site::current()) {
        ExclusiveScan(input, output, T{}, std::plus<>(), at);
    }
    void ExclusiveSum(T input, T& output, T& aggregate, Site at = Site::current()) {
        ExclusiveScan(input, output, T{}, std::plus<>(), aggregate, at);
    }
    template <class Callback>
        requires std::is_invocable_v<Callback&, T>
    void ExclusiveSum(T input, T& output, Callback& callback, Site at = Site::current()) {
        ExclusiveScan(input, output, std::plus<>(), callback, at);
    }
    template <int items>
    void ExclusiveSum(T (&input)[items], T (&output)[items], Site at = Site::current()) {
        ExclusiveScan(input, output, T{}, std::plus<>(), at);
    }
    template <int items>
    void ExclusiveSum(T (&input)[items], T (&output)[items], T& aggregate, Site at = Site::current()) {
        ExclusiveScan(input, output, T{}, std::plus<>(), aggregate, at);
    }
    template <int items, class Callback>
        requires std::is_invocable_v<Callback&, T>
    void ExclusiveSum(T (&input)[items], T (&output)[items], Callback& callback, Site at = Site::current()) {
        ExclusiveScan(input, output, std::plus<>(), callback, at);
    }
};

}  // namespace cub

#endif
