// Sums over one or more arrays by cub::DeviceReduce::TransformReduce, for the baselines of reductions.
//
// CUB loads what an iterator gives it, one by one, unless the input is a bare pointer. So that a sum over two arrays is loaded
// in 16-byte packets too, what CUB reduces is either single terms or sums of a packet of terms. Where a choice is due for a
// size, both are timed and the faster is kept; arrays that are not aligned to 16 bytes take the first.
#pragma once

#include <cub/device/device_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>

#include <algorithm>
#include <cuda/std/functional>
#include <cuda/std/tuple>
#include <map>
#include <utility>

#include "msbench.cuh"
#include "msbench_library.cuh"

namespace msbench {

// Number `chunk` is the sum of term(i, array[i]...) over kWidth neighbours i, as many of them as are below `count`.
template <int kWidth, typename Term, typename... T>
struct Chunks {
    Term term;
    int64_t count;
    cuda::std::tuple<const T*...> arrays;

    __device__ float operator()(int chunk) const {
        return cuda::std::apply([&](const T*... array) { return sum(chunk, array...); }, arrays);
    }

    __device__ float sum(int64_t chunk, const T*... array) const {
        if constexpr (kWidth == 1) {
            return term(chunk, to_float(array[chunk])...);
        } else {
            const int64_t first = chunk * kWidth;
            if (first + kWidth <= count) return sum_packet(first, load_packet(array, chunk)...);
            float total = 0;
            for (int64_t i = first; i < count; ++i) total += term(i, to_float(array[i])...);
            return total;
        }
    }

    __device__ float sum_packet(int64_t first, const Packet<T>&... packet) const {
        float total = 0;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) total += term(first + lane, to_float(packet.lane[lane])...);
        return total;
    }
};

// out[0] = finish(Σ term(i, array[i]...)), i from 0 to count-1, or the bytes of storage for it if `storage` is null.
template <int kWidth, typename Out, typename Term, typename Finish, typename... T>
cudaError_t sum_chunks(void* storage, size_t& bytes, Out* out, int64_t count, Term term, Finish finish,
                       cudaStream_t stream, const T*... array) {
    return cub::DeviceReduce::TransformReduce(
        storage, bytes, thrust::make_counting_iterator<int>(0), thrust::make_transform_output_iterator(out, finish),
        static_cast<int>(ceil_div(count, kWidth)), cuda::std::plus<float>{},
        Chunks<kWidth, Term, T...>{term, count, cuda::std::make_tuple(array...)}, 0.0f, stream);
}

// The workspace that `sum` with the same arguments needs, at most 2^31 terms.
template <typename Out, typename Term, typename Finish, typename... T>
size_t sum_workspace(Out* out, int64_t count, Term term, Finish finish, const T*... array) {
    size_t narrow = 0, wide = 0;
    sum_chunks<1>(nullptr, narrow, out, count, term, finish, nullptr, array...);
    sum_chunks<Packet<scalar_t>::kSize>(nullptr, wide, out, count, term, finish, nullptr, array...);
    return std::max(narrow, wide);
}

// out[0] = finish(Σ term(i, array[i]...)), i from 0 to count-1; the arrays are of scalar_t.
template <typename Out, typename Term, typename Finish, typename... T>
cudaError_t sum(void* workspace, size_t workspace_bytes, Out* out, int64_t count, Term term, Finish finish,
                cudaStream_t stream, const T*... array) {
    static std::map<int64_t, std::pair<Due, bool>> choices;
    const auto run = [&](bool packets) {
        size_t bytes = workspace_bytes;
        return packets ? sum_chunks<Packet<scalar_t>::kSize>(workspace, bytes, out, count, term, finish, stream, array...)
                       : sum_chunks<1>(workspace, bytes, out, count, term, finish, stream, array...);
    };
    if (!packets_allowed(array...)) return run(false);
    auto& [due, packets] = choices[count];
    if (due.take()) {
        packets = milliseconds(stream, [&] { return run(true); }) < milliseconds(stream, [&] { return run(false); });
    }
    return run(packets);
}

}  // namespace msbench
