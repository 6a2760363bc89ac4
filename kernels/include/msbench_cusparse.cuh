// What the baselines by cuSPARSE's generic API share: y = A·x and Y = A·X in any format, with the fastest of several ways.
//
// Descriptors, small host objects, are made for each call, and buffers are parts of the workspace. cusparseSpMV_preprocess and
// cusparseSpMM_preprocess are left to baselines of their own (`Analysis`): what they find out belongs to one sparsity pattern,
// and a launcher meets every matrix for the first time.
//
// Sums are fp32 (CUDA_R_32F) in both precisions. Algorithms may add partial sums to their result atomically, which in
// bf16 would round more than once; a way may therefore write fp32 sums, which `round_sums` rounds in a pass of its own.
#pragma once

#include <cusparse.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>

#include "msbench.cuh"
#include "msbench_library.cuh"

#define CUSPARSE(call) MSBENCH_LIBRARY(cusparseGetErrorString, call)

namespace msbench {

// ---------------------------------------------------------------- the workspace

// Parts of the workspace, each aligned to 256 bytes. From a null pointer it only counts, which tells the size needed.
class Parts {
   public:
    explicit Parts(void* workspace) : start_(reinterpret_cast<uintptr_t>(workspace)), end_(start_) {}

    template <typename T>
    T* take(int64_t count) {
        const uintptr_t part = end_;
        end_ += Staging::room(count * sizeof(T));
        return reinterpret_cast<T*>(part);
    }

    size_t bytes() const { return end_ - start_; }

   private:
    uintptr_t start_;
    uintptr_t end_;
};

// ---------------------------------------------------------------- one product

#ifdef MSBENCH_FP32
constexpr cudaDataType_t kElement = CUDA_R_32F;
#else
constexpr cudaDataType_t kElement = CUDA_R_16BF;
#endif

// K = 0: A times a vector, otherwise A times a row-major matrix with K columns.
struct SparseSizes {
    int64_t rows, cols, nnz, K;

    int64_t outputs() const { return rows * (K ? K : 1); }
};

// A format and an algorithm, a cusparseSpMVAlg_t or a cusparseSpMMAlg_t, and the type of the result.
struct Way {
    cusparseFormat_t format;
    int algorithm;
    cudaDataType_t result;
};

// The arrays of a matrix. `lines`: row offsets of CSR, column offsets of CSC, rows of COO (ascending). `indices`: columns, or
// the rows of CSC.
struct SparseArrays {
    const int32_t* lines;
    const int32_t* indices;
    const scalar_t* values;
};

inline cudaError_t cusparse_handle(cudaStream_t stream, cusparseHandle_t* handle) {
    static cusparseHandle_t kept = nullptr;
    if (!kept) CUSPARSE(cusparseCreate(&kept));
    CUSPARSE(cusparseSetStream(kept, stream));
    *handle = kept;
    return cudaSuccess;
}

class Product {
   public:
    Product(const Way& way, const SparseSizes& sizes) : way_(way), sizes_(sizes) {}
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;

    ~Product() {
        if (A_) cusparseDestroySpMat(A_);
        if (x_) cusparseDestroyDnVec(x_);
        if (y_) cusparseDestroyDnVec(y_);
        if (X_) cusparseDestroyDnMat(X_);
        if (Y_) cusparseDestroyDnMat(Y_);
    }

    cudaError_t describe(const SparseArrays& A, const scalar_t* x, void* y) {
        MSBENCH_CUDA(describe_sparse(A));
        if (sizes_.K) {
            CUSPARSE(cusparseCreateConstDnMat(&X_, sizes_.cols, sizes_.K, sizes_.K, x, kElement, CUSPARSE_ORDER_ROW));
            CUSPARSE(cusparseCreateDnMat(&Y_, sizes_.rows, sizes_.K, sizes_.K, y, way_.result, CUSPARSE_ORDER_ROW));
        } else {
            CUSPARSE(cusparseCreateConstDnVec(&x_, sizes_.cols, x, kElement));
            CUSPARSE(cusparseCreateDnVec(&y_, sizes_.rows, y, way_.result));
        }
        return cudaSuccess;
    }

    cudaError_t buffer_bytes(cusparseHandle_t handle, size_t* bytes) const {
        if (sizes_.K) {
            CUSPARSE(cusparseSpMM_bufferSize(handle, kPlain, kPlain, &kOne, A_, X_, &kZero, Y_, CUDA_R_32F,
                                             static_cast<cusparseSpMMAlg_t>(way_.algorithm), bytes));
        } else {
            CUSPARSE(cusparseSpMV_bufferSize(handle, kPlain, &kOne, A_, x_, &kZero, y_, CUDA_R_32F,
                                             static_cast<cusparseSpMVAlg_t>(way_.algorithm), bytes));
        }
        return cudaSuccess;
    }

    // Analyses the sparsity pattern. What it finds lies in the descriptors and in the buffer, for `run` with the same.
    cudaError_t preprocess(cusparseHandle_t handle, void* buffer) const {
        if (sizes_.K) {
            CUSPARSE(cusparseSpMM_preprocess(handle, kPlain, kPlain, &kOne, A_, X_, &kZero, Y_, CUDA_R_32F,
                                             static_cast<cusparseSpMMAlg_t>(way_.algorithm), buffer));
        } else {
            CUSPARSE(cusparseSpMV_preprocess(handle, kPlain, &kOne, A_, x_, &kZero, y_, CUDA_R_32F,
                                             static_cast<cusparseSpMVAlg_t>(way_.algorithm), buffer));
        }
        return cudaSuccess;
    }

    cudaError_t run(cusparseHandle_t handle, void* buffer) const {
        if (sizes_.K) {
            CUSPARSE(cusparseSpMM(handle, kPlain, kPlain, &kOne, A_, X_, &kZero, Y_, CUDA_R_32F,
                                  static_cast<cusparseSpMMAlg_t>(way_.algorithm), buffer));
        } else {
            CUSPARSE(cusparseSpMV(handle, kPlain, &kOne, A_, x_, &kZero, y_, CUDA_R_32F,
                                  static_cast<cusparseSpMVAlg_t>(way_.algorithm), buffer));
        }
        return cudaSuccess;
    }

   private:
    static constexpr cusparseOperation_t kPlain = CUSPARSE_OPERATION_NON_TRANSPOSE;
    static constexpr cusparseIndexType_t kIndex = CUSPARSE_INDEX_32I;
    static constexpr cusparseIndexBase_t kBase = CUSPARSE_INDEX_BASE_ZERO;
    static constexpr float kOne = 1, kZero = 0;

    cudaError_t describe_sparse(const SparseArrays& A) {
        const auto [rows, cols, nnz, K] = sizes_;
        switch (way_.format) {
            case CUSPARSE_FORMAT_CSR:
                CUSPARSE(cusparseCreateConstCsr(&A_, rows, cols, nnz, A.lines, A.indices, A.values, kIndex, kIndex, kBase,
                                                kElement));
                return cudaSuccess;
            case CUSPARSE_FORMAT_CSC:
                CUSPARSE(cusparseCreateConstCsc(&A_, rows, cols, nnz, A.lines, A.indices, A.values, kIndex, kIndex, kBase,
                                                kElement));
                return cudaSuccess;
            case CUSPARSE_FORMAT_COO:
                CUSPARSE(cusparseCreateConstCoo(&A_, rows, cols, nnz, A.lines, A.indices, A.values, kIndex, kBase,
                                                kElement));
                return cudaSuccess;
            default:
                return cudaErrorNotSupported;
        }
    }

    Way way_;
    SparseSizes sizes_;
    cusparseConstSpMatDescr_t A_ = nullptr;
    cusparseConstDnVecDescr_t x_ = nullptr;
    cusparseDnVecDescr_t y_ = nullptr;
    cusparseConstDnMatDescr_t X_ = nullptr;
    cusparseDnMatDescr_t Y_ = nullptr;
};

// The largest buffer that any of these ways asks for. That depends on sizes only: the library gets addresses that it does
// not read from, but refuses null pointers. Asked once for a shape.
template <size_t N>
size_t buffer_room(const Way (&ways)[N], const SparseSizes& sizes) {
    static std::map<std::array<int64_t, 4>, size_t> known;
    const auto [found, fresh] = known.try_emplace({sizes.rows, sizes.cols, sizes.nnz, sizes.K}, 0);
    cusparseHandle_t handle = nullptr;
    if (!fresh || cusparse_handle(nullptr, &handle) != cudaSuccess) return found->second;
    alignas(256) static char somewhere[256];
    const auto* indices = reinterpret_cast<const int32_t*>(somewhere);
    const auto* values = reinterpret_cast<const scalar_t*>(somewhere);
    for (const Way& way : ways) {
        Product product(way, sizes);
        size_t bytes = 0;
        const bool good = product.describe({indices, indices, values}, values, somewhere) == cudaSuccess &&
                          product.buffer_bytes(handle, &bytes) == cudaSuccess;
        if (good && bytes > found->second) found->second = bytes;
    }
    return found->second;
}

// ---------------------------------------------------------------- products that were prepared

// A product with what cuSPARSE found out about its pattern.
struct Prepared {
    Way way;
    SparseSizes sizes;
    Product product;
    void* buffer = nullptr;
    double took_ns = 0;  // to find it out

    Prepared(const Way& way, const SparseSizes& sizes) : way(way), sizes(sizes), product(way, sizes) {}
    ~Prepared() { cudaFree(buffer); }

    cudaError_t prepare(cusparseHandle_t handle, const SparseArrays& A, const scalar_t* x, void* y, cudaStream_t stream) {
        // Twice: kernels may be loaded the first time. Not of the same product, of which the second analysis might find nothing to do.
        Product other(way, sizes);
        for (Product* one : {&other, &product}) {
            size_t bytes = 0;
            MSBENCH_CUDA(one->describe(A, x, y));
            if (!buffer) {
                MSBENCH_CUDA(one->buffer_bytes(handle, &bytes));
                MSBENCH_CUDA(cudaMalloc(&buffer, bytes + 1));
            }
            MSBENCH_CUDA(cudaStreamSynchronize(stream));
            const auto start = std::chrono::steady_clock::now();
            MSBENCH_CUDA(one->preprocess(handle, buffer));
            MSBENCH_CUDA(cudaStreamSynchronize(stream));
            took_ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
        }
        return cudaSuccess;
    }
};

// The product of these arrays by one way, prepared on the first call with them since arrays of integers stay as they are. Null if
// cuSPARSE refuses.
inline const Prepared* prepared(cusparseHandle_t handle, const Way& way, const SparseSizes& sizes, const SparseArrays& A,
                                const scalar_t* x, void* y, cudaStream_t stream) {
    using Key = std::array<int64_t, 12>;
    static std::map<Key, std::unique_ptr<Prepared>>& known = *new std::map<Key, std::unique_ptr<Prepared>>;
    static Due due;
    if (due.take()) known.clear();  // of arrays that may have changed since
    const auto address = [](const void* pointer) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer)); };
    const Key key{way.format, way.algorithm, way.result, sizes.rows, sizes.cols, sizes.nnz, sizes.K,
                  address(A.lines), address(A.indices), address(A.values), address(x), address(y)};
    std::unique_ptr<Prepared>& product = known[key];
    if (!product) {
        auto made = std::make_unique<Prepared>(way, sizes);
        if (made->prepare(handle, A, x, y, stream) == cudaSuccess) product = std::move(made);
    }
    return product.get();
}

// ---------------------------------------------------------------- rounding sums

// y = sums, rounded to the element type: 16 bytes of y a thread where y is aligned to them, an element a thread otherwise.
template <bool kPackets>
__global__ void round_sums_kernel(const float* sums, scalar_t* y, int64_t count) {
    constexpr int kSize = Packet<scalar_t>::kSize;
    const int64_t index = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    const int64_t first = kPackets ? index * kSize : index;
    if (kPackets && first + kSize <= count) {
        Packet<scalar_t> packet;
        for (int part = 0; part < kSize / 4; ++part) {
            const Packet<float> four = load_packet(sums, index * (kSize / 4) + part);
            for (int i = 0; i < 4; ++i) packet.lane[4 * part + i] = from_float<scalar_t>(four.lane[i]);
        }
        store_packet(y, index, packet);
        return;
    }
    for (int64_t i = first; i < count && i < first + (kPackets ? kSize : 1); ++i) y[i] = from_float<scalar_t>(sums[i]);
}

inline cudaError_t round_sums(const float* sums, scalar_t* y, int64_t count, cudaStream_t stream) {
    constexpr int kThreads = 256;
    if (packets_allowed(y)) {
        const int64_t blocks = ceil_div(count, static_cast<int64_t>(kThreads) * Packet<scalar_t>::kSize);
        round_sums_kernel<true><<<blocks, kThreads, 0, stream>>>(sums, y, count);
    } else {
        round_sums_kernel<false><<<ceil_div(count, kThreads), kThreads, 0, stream>>>(sums, y, count);
    }
    return cudaGetLastError();
}

// ---------------------------------------------------------------- a product in the workspace

// Whether cuSPARSE analyses the sparsity pattern apart from the product: never, in each call, or once for all calls with the
// same arrays where integers stay as they are.
enum class Analysis { kNone, kEachCall, kOnce };

// How to analyse where it is done at all: a copy in the workspace, of what is not aligned, is of another array next time.
template <typename... T>
Analysis analysis_of(const T*... arrays) {
    return (Due::promised() && ... && (alignment(arrays) >= 16)) ? Analysis::kOnce : Analysis::kEachCall;
}

// What a product needs besides the matrix: aligned copies of dense arrays that are not, fp32 sums, the library's buffer.
class Multiplication {
   public:
    template <size_t N>
    Multiplication(Parts& parts, const Way (&ways)[N], const SparseSizes& sizes) : sizes_(sizes) {
        staging_ = parts.take<char>(Staging::room(x_bytes()) + Staging::room(y_bytes()));
        sums_ = parts.take<float>(kElement == CUDA_R_32F ? 0 : sizes.outputs());
        room_ = buffer_room(ways, sizes);
        buffer_ = parts.take<char>(room_);
    }

    // y = A·x by one way, from a matrix in arrays that are aligned to 16 bytes. `first`: whether the way is only being tried,
    // and fails with cudaErrorNotSupported if its buffer would be too small.
    cudaError_t run(const Way& way, const SparseArrays& A, const scalar_t* x, scalar_t* y, bool first,
                    cudaStream_t stream, Analysis analysis = Analysis::kNone) const {
        cusparseHandle_t handle = nullptr;
        MSBENCH_CUDA(cusparse_handle(stream, &handle));
        Staging staging(staging_, stream);
        const scalar_t* aligned_x = staging.input(x, x_bytes());
        const bool rounded = way.result == kElement;
        void* result = sums_;
        if (rounded) result = staging.output(y, y_bytes());
        if (analysis == Analysis::kOnce) {
            const Prepared* known = prepared(handle, way, sizes_, A, aligned_x, result, stream);
            if (!known) return cudaErrorNotSupported;
            untimed_ns() = known->took_ns;
            MSBENCH_CUDA(known->product.run(handle, known->buffer));
        } else {
            Product product(way, sizes_);
            MSBENCH_CUDA(product.describe(A, aligned_x, result));
            if (first) {
                size_t bytes = 0;
                MSBENCH_CUDA(product.buffer_bytes(handle, &bytes));
                if (bytes > room_) return cudaErrorNotSupported;
            }
            if (analysis == Analysis::kEachCall) MSBENCH_CUDA(product.preprocess(handle, buffer_));
            MSBENCH_CUDA(product.run(handle, buffer_));
        }
        if constexpr (kElement != CUDA_R_32F) {
            if (!rounded) MSBENCH_CUDA(round_sums(sums_, y, sizes_.outputs(), stream));
        }
        return staging.finish();
    }

   private:
    size_t x_bytes() const { return sizes_.cols * (sizes_.K ? sizes_.K : 1) * sizeof(scalar_t); }
    size_t y_bytes() const { return sizes_.outputs() * sizeof(scalar_t); }

    SparseSizes sizes_;
    char* staging_;
    float* sums_;
    size_t room_;
    char* buffer_;
};

// Whether `launch` only enqueues work, so that a graph can be made of it: some algorithms wait for the device, or allocate.
template <typename Launch>
bool only_enqueues(cudaStream_t stream, Launch launch) {
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        cudaGetLastError();
        return true;  // the default stream, of which no graph is made
    }
    const cudaError_t launched = launch();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    return launched == cudaSuccess && ended == cudaSuccess;
}

// Tries every way once: `run(way, first)` enqueues all of its work; for what is to be timed, all of them have to. Synchronises. Null
// if none works.
template <size_t N, typename Run>
const Way* fastest_way(const Way (&ways)[N], cudaStream_t stream, Run run) {
    const Way* fastest = nullptr;
    float best = std::numeric_limits<float>::infinity();
    for (const Way& way : ways) {
        const auto launch = [&] { return run(way, true); };
        const float time = milliseconds(stream, launch);
        if (time < best && (!Due::promised() || only_enqueues(stream, launch))) {
            best = time;
            fastest = &way;
        }
    }
    return fastest;
}

// Runs the fastest way for these sizes; where a choice is due, it finds that out.
template <size_t N, typename Run>
cudaError_t run_fastest(const Way (&ways)[N], const SparseSizes& sizes, cudaStream_t stream, Run run) {
    struct Choice {
        Due due;
        const Way* way = nullptr;
    };
    static std::map<std::array<int64_t, 4>, Choice> choices;
    Choice& choice = choices[{sizes.rows, sizes.cols, sizes.nnz, sizes.K}];
    if (choice.due.take()) choice.way = fastest_way(ways, stream, run);
    return choice.way ? run(*choice.way, false) : cudaErrorNotSupported;
}

// ---------------------------------------------------------------- a matrix in CSR

// What a product with a matrix in CSR needs of the workspace: copies of what is not aligned, and the multiplication's part.
struct CsrRoom {
    Parts parts;
    char* staging;
    Multiplication multiplication;

    template <size_t N>
    CsrRoom(void* workspace, const Way (&ways)[N], const SparseSizes& sizes)
        : parts(workspace),
          staging(parts.take<char>(Staging::room(sizes.nnz * sizeof(scalar_t)) + Staging::room(sizes.nnz * sizeof(int32_t)) +
                                   Staging::room((sizes.rows + 1) * sizeof(int32_t)))),
          multiplication(parts, ways, sizes) {}
};

// y = A·x by the fastest way. `analysed`: after cuSPARSE has analysed the pattern (see `analysis_of`).
template <size_t N>
cudaError_t multiply_csr(const Way (&ways)[N], const SparseSizes& sizes, const SparseArrays& A, const scalar_t* x, scalar_t* y,
                         bool analysed, void* workspace, cudaStream_t stream) {
    const CsrRoom room(workspace, ways, sizes);
    const Analysis analysis = analysed ? analysis_of(A.lines, A.indices, A.values, x) : Analysis::kNone;
    return run_fastest(ways, sizes, stream, [&](const Way& way, bool first) {
        Staging staging(room.staging, stream);
        const SparseArrays aligned{staging.input(A.lines, (sizes.rows + 1) * sizeof(int32_t)),
                                   staging.input(A.indices, sizes.nnz * sizeof(int32_t)),
                                   staging.input(A.values, sizes.nnz * sizeof(scalar_t))};
        MSBENCH_CUDA(staging.finish());
        return room.multiplication.run(way, aligned, x, y, first, stream, analysis);
    });
}

}  // namespace msbench
