// Access to arrays in groups of neighbours, 16 bytes at a time, and maps over whole arrays in one launch.
//
// Arrays are aligned to their element only. Where all of a map's arrays miss a 16-byte boundary by the same number of elements,
// these go first, one by one; where they miss it by different numbers, all elements go one by one.
#pragma once

#include <algorithm>
#include <type_traits>

#include "msbench.cuh"

namespace msbench {

// ---------------------------------------------------------------- groups
// kWidth neighbours, a power of two, that a thread moves in accesses of 16 bytes, or of all their bytes where they are fewer.
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T) < 16 ? kWidth * sizeof(T) : 16) Group {
    T lane[kWidth];
};

namespace detail {

template <int kBytes> struct WordOf { using type = uint4; };
template <> struct WordOf<2> { using type = unsigned short; };
template <> struct WordOf<4> { using type = unsigned; };
template <> struct WordOf<8> { using type = uint2; };
template <typename T>
using Word = typename WordOf<sizeof(T)>::type;

template <bool kOnce, int kWidth, typename T>
__device__ Group<T, kWidth> load(const T* array, int64_t index) {
    using W = Word<Group<T, kWidth>>;
    constexpr int kWords = sizeof(Group<T, kWidth>) / sizeof(W);
    Group<T, kWidth> group;
    const W* const from = reinterpret_cast<const W*>(array) + index * kWords;
#pragma unroll
    for (int i = 0; i < kWords; ++i) reinterpret_cast<W*>(&group)[i] = kOnce ? __ldcs(from + i) : from[i];
    return group;
}

template <bool kOnce, typename T, int kWidth>
__device__ void store(T* array, int64_t index, const Group<T, kWidth>& group) {
    using W = Word<Group<T, kWidth>>;
    constexpr int kWords = sizeof(Group<T, kWidth>) / sizeof(W);
    W* const to = reinterpret_cast<W*>(array) + index * kWords;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
        const W word = reinterpret_cast<const W*>(&group)[i];
        if constexpr (kOnce) __stcs(to + i, word);
        else to[i] = word;
    }
}

}  // namespace detail

// Group number `index` of an array that begins on a boundary of groups.
template <int kWidth, typename T>
__device__ Group<T, kWidth> load_group(const T* array, int64_t index) {
    return detail::load<false, kWidth>(array, index);
}

template <typename T, int kWidth>
__device__ void store_group(T* array, int64_t index, const Group<T, kWidth>& group) {
    detail::store<false>(array, index, group);
}

// The same for what is touched once: caches drop it first. It pays where something else has to stay in L2; where nothing has, such loads
// are slower than plain ones (H200, 2026-11-23: 3 to 6 % of a large map, 2 % of a transposition).
template <int kWidth, typename T>
__device__ Group<T, kWidth> load_group_once(const T* array, int64_t index) {
    return detail::load<true, kWidth>(array, index);
}

template <typename T, int kWidth>
__device__ void store_group_once(T* array, int64_t index, const Group<T, kWidth>& group) {
    detail::store<true>(array, index, group);
}

// ---------------------------------------------------------------- arithmetic on groups
// What arithmetic sees of a group: floats of both float types, indices and labels as they are. A word of two bf16 is opened by a shift and a
// mask; conversions one by one take several times as long.
template <typename T, int kWidth>
__device__ auto operands(const Group<T, kWidth>& group) {
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, float>) {
        return group;
    } else {
        Group<float, kWidth> values;
        if constexpr (kWidth == 1) {
            values.lane[0] = to_float(group.lane[0]);
        } else {
#pragma unroll
            for (int i = 0; i < kWidth; i += 2) {
                const unsigned word = reinterpret_cast<const unsigned*>(&group)[i / 2];
                values.lane[i] = __uint_as_float(word << 16);
                values.lane[i + 1] = __uint_as_float(word & 0xffff0000u);
            }
        }
        return values;
    }
}

// Rounds each lane to nearest even; two of bf16 in one instruction.
template <typename T, int kWidth>
__device__ Group<T, kWidth> rounded(const Group<float, kWidth>& values) {
    Group<T, kWidth> result;
    if constexpr (std::is_same_v<T, float> || kWidth == 1) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) result.lane[i] = from_float<T>(values.lane[i]);
    } else {
#pragma unroll
        for (int i = 0; i < kWidth; i += 2) {
            const auto pair = __floats2bfloat162_rn(values.lane[i], values.lane[i + 1]);
            reinterpret_cast<unsigned*>(&result)[i / 2] = reinterpret_cast<const unsigned&>(pair);
        }
    }
    return result;
}

namespace detail {

template <typename T, int kWidth, typename F, typename... In>
__device__ Group<T, kWidth> mapped_operands(F f, const Group<In, kWidth>&... in) {
    Group<float, kWidth> values;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values.lane[i] = f(in.lane[i]...);
    return rounded<T>(values);
}

}  // namespace detail
// f of each lane, rounded to T; `f` gets operands and gives a float. Or f of the groups as they are, if it takes groups.
template <typename T, int kWidth, typename F, typename... In>
__device__ Group<T, kWidth> mapped(F f, const Group<In, kWidth>&... in) {
    if constexpr (std::is_invocable_v<F, Group<In, kWidth>...>) return f(in...);
    else return detail::mapped_operands<T>(f, operands(in)...);
}

// ---------------------------------------------------------------- maps
// Elements before the first 16-byte boundary that all arrays have in common, or -1 if they have none.
template <typename... T>
int common_head(const T*... array) {
    for (int head = 0; head < 8; ++head) {
        if (packets_allowed((array + head)...)) return head;
    }
    return -1;
}

namespace detail {

constexpr int kMapThreads = 256;

// A thread has a group, and no hints. Of forty shapes (H200, 2026-11-23: 2^23 to 2^27 packets, 128 to 1024 threads of 1 to 8 groups, resident
// blocks, bulk copies, hints) the fastest, as fast as cudaMemcpyAsync; streaming loads cost 3 to 6 %, four groups a thread another 4 %.
template <int kWidth, typename F, typename Out, typename... In>
__global__ void __launch_bounds__(kMapThreads) map_groups(F f, int64_t groups, Out* out, const In*... in) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
    if (at < groups) store_group(out, at, mapped<Out>(f, load_group<kWidth>(in, at)...));
}

// The same, and the elements before (`head`) and behind the groups, which come after them in the order of threads.
template <int kWidth, typename F, typename Out, typename... In>
__global__ void __launch_bounds__(kMapThreads)
    map_with_edges(F f, int64_t groups, int head, int edges, Out* out, const In*... in) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
    if (at < groups) {
        store_group(out + head, at, mapped<Out>(f, load_group<kWidth>(in + head, at)...));
    } else if (const int64_t edge = at - groups; edge < edges) {
        const int64_t element = edge < head ? edge : edge + groups * kWidth;
        store_group(out, element, mapped<Out>(f, load_group<1>(in, element)...));
    }
}

template <int kWidth, typename F, typename Out, typename... In>
void launch_map(cudaStream_t stream, int64_t count, int head, F f, Out* out, const In*... in) {
    const int64_t groups = (count - head) / kWidth, edges = count - groups * kWidth;
    const auto blocks = static_cast<unsigned>(ceil_div(groups + edges, kMapThreads));
    if (edges == 0) {
        map_groups<kWidth><<<blocks, kMapThreads, 0, stream>>>(f, groups, out, in...);
    } else if constexpr (kWidth > 1) {
        map_with_edges<kWidth><<<blocks, kMapThreads, 0, stream>>>(f, groups, head, static_cast<int>(edges), out, in...);
    }
}

}  // namespace detail

// From here on a map's threads have 16 bytes; below, two elements: a short kernel starts sooner, as its code comes from memory too. That
// counts for functions of many instructions (elu in bf16: 0.3 us at 2^12 elements on an H200); other maps take the same time either way.
constexpr int64_t kManyElements = 1 << 17;

// out[i] = f(in[i]...) rounded to Out, for i below `count`, which is at least 1. `f` gets a float of each float array and an
// int32_t of each index array, and gives a float; or it maps groups of any width, bit by bit if it likes.
template <typename F, typename Out, typename... In>
cudaError_t map(cudaStream_t stream, int64_t count, F f, Out* out, const In*... in) {
    const int head = common_head(out, in...);
    if (head < 0) detail::launch_map<1>(stream, count, 0, f, out, in...);
    else if (count < kManyElements) detail::launch_map<2>(stream, count, std::min<int64_t>(head, count), f, out, in...);
    else detail::launch_map<16 / sizeof(Out)>(stream, count, head, f, out, in...);
    return cudaGetLastError();
}

}  // namespace msbench
