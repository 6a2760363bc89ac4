// B = A^P by as few products as there are, one after another: binary powering from the highest bit down, but 15 = 3 * 5.
//
// Idea: every product is the one of matrix_mul: bf16 by msbench_bf16_product.cuh, with intermediate powers in bf16; fp32 by two scaled
// fp16 parts a number (msbench_split_product.cuh), where the columns of a right factor that comes back are split once; up to 704 by three
// bf16 in one launch (msbench_joined_slices.cuh), or by plain arithmetic (msbench_small_product.cuh) where that is most of the time. All
// launches but the first start early, behind the one before.
//
// fp32 in one launch (H100, cold; before, with a launch that adds up layers): N = 512 11.8 us for 14.7, three products 28.8 for 36.2, five 45.9 for
// 58.2. N = 640 18.9 for 21.8; 384 10.0 for 14.8 by plain arithmetic, 256 8.5 for 6.5. Lost: tiles of 128 columns, 35.7 us for 28.4 at 1024, where a
// split of its own pays.
//
// Bound: a launch or two a product, 1.3 us each behind another, and 2 N^3 flops (fp32: 6 N^3) on the tensor cores.
#include <vector>

#if MSBENCH_BF16
#include "msbench_bf16_product.cuh"
#else
#include "msbench_joined_slices.cuh"
#include "msbench_small_product.cuh"
#include "msbench_split_product.cuh"
#endif

namespace {

// Power 0 is A; step number i makes power i + 1.
struct Step {
    int left, right;
};

std::vector<Step> steps(int64_t P) {
    if (P == 15) return {{0, 0}, {1, 0}, {2, 2}, {3, 3}, {4, 2}};  // 2, 3, 6, 12, 15
    int64_t bit = 1;
    while (bit <= P / 2) bit *= 2;
    std::vector<Step> all;
    for (bit /= 2; bit > 0; bit /= 2) {
        const int latest = int(all.size());
        all.push_back({latest, latest});
        if (P & bit) all.push_back({latest + 1, 0});
    }
    return all;
}

// Rows of intermediate powers start on 16 bytes. The workspace has them first, then what products need.
int64_t pitch_of(int64_t N) {
    return msbench::ceil_div(N, 8) * 8;
}

int64_t power_bytes(int64_t N) {
    return msbench::ceil_div(N * pitch_of(N) * int64_t(sizeof(scalar_t)), 256) * 256;
}

#if MSBENCH_BF16

size_t product_bytes(int64_t N, int64_t) {
    return msbench::multiply_bf16_bytes(N, N, N);
}

struct Products {
    char* space;
    int64_t N;
    cudaStream_t stream;

    Products(void* space, int64_t N, int64_t, cudaStream_t stream) : space(static_cast<char*>(space)), N(N), stream(stream) {}
    cudaError_t operator()(Step, const scalar_t* left, int64_t left_pitch, const scalar_t* right, int64_t right_pitch, scalar_t* to,
                           int64_t pitch, bool behind) {
        return msbench::multiply_bf16({left, N, N, left_pitch}, {right, N, N, right_pitch}, to, pitch, space, behind, stream);
    }
};

#else

using msbench::split_product::Layout;

constexpr int64_t kSmall = 320;  // 2^25 multiply-adds

// What a block has of a product in one launch (msbench_joined_slices.cuh); kNone: there are too many tiles.
enum class Joined { kNone, kHalves, kWhole };

Joined joined(int64_t N) {
    constexpr int64_t kAtOnce = 132;  // multiprocessors
    const int64_t side = msbench::ceil_div(N, 64), tiles = side * side;
    return 2 * tiles <= kAtOnce ? Joined::kHalves : tiles <= kAtOnce ? Joined::kWhole : Joined::kNone;
}

// Rows of a left factor are split for each product, columns of a right one once.
size_t product_bytes(int64_t N, int64_t steps) {
    return N <= kSmall || joined(N) != Joined::kNone ? 0 : size_t(Layout(N, N, N).bytes * steps);
}

class Products {
   public:
    Products(void* space, int64_t N, int64_t steps, cudaStream_t stream)
        : space_(static_cast<char*>(space)), N_(N), layout_(N, N, N), split_(steps), stream_(stream) {}

    cudaError_t operator()(Step step, const float* left, int64_t left_pitch, const float* right, int64_t right_pitch, float* to, int64_t pitch,
                           bool behind) {
        using namespace msbench;
        if (N_ <= kSmall) {
            return multiply_small(RowMajor<float>{left, left_pitch}, RowMajor<float>{right, right_pitch}, to, pitch, N_, N_, N_, behind, stream_);
        }
        Lines A = rows_of(left, N_, N_), B = columns_of(right, N_, N_);
        A.line_step = left_pitch, B.k_step = right_pitch;
        switch (joined(N_)) {
            case Joined::kHalves: return joined_slices::launch<joined_slices::Plan<64, 2, 2, 4, 2>>(A, B, to, pitch, behind, stream_);
            case Joined::kWhole: return joined_slices::launch<joined_slices::Plan<64, 2, 1, 4, 1>>(A, B, to, pitch, behind, stream_);
            case Joined::kNone: break;
        }
        const Planes a = layout_.a_planes(space_), b = layout_.b_planes(space_ + step.right * layout_.bytes);
        const int slices = split_product::slices(N_, N_, N_);
        const Lines none{};
        cudaError_t status = split_product::split(A, split_[step.right] ? none : B, a, b, layout_.panels, to, slices > 1 ? N_ * pitch : 0,
                                                  behind, stream_);
        split_[step.right] = true;
        return status != cudaSuccess ? status : split_product::product(A, B, a, b, layout_.panels, to, pitch, slices, stream_);
    }

   private:
    char* space_;
    int64_t N_;
    Layout layout_;
    std::vector<bool> split_;
    cudaStream_t stream_;
};

#endif

}  // namespace

extern "C" size_t matrix_power_workspace(int64_t N, int64_t P) {
    const int64_t count = int64_t(steps(P).size());
    if (count == 0) return 0;
    return size_t((count - 1) * power_bytes(N)) + product_bytes(N, count);
}

extern "C" cudaError_t matrix_power(const scalar_t* A, scalar_t* B, int64_t N, int64_t P, void* workspace, size_t, cudaStream_t stream) {
    using namespace msbench;
    const std::vector<Step> all = steps(P);
    const int count = int(all.size());
    if (count == 0) return cudaMemcpyAsync(B, A, N * N * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
    char* base = static_cast<char*>(workspace);
    const auto power = [&](int i) { return i == count ? B : reinterpret_cast<scalar_t*>(base + (i - 1) * power_bytes(N)); };
    const auto factor = [&](int i) { return i == 0 ? A : power(i); };
    const auto pitch = [&](int i) { return i == 0 || i == count ? N : pitch_of(N); };
    Products products(base + (count - 1) * power_bytes(N), N, count, stream);
    for (int i = 0; i < count; ++i) {
        const auto [left, right] = all[i];
        const cudaError_t status = products(all[i], factor(left), pitch(left), factor(right), pitch(right), power(i + 1), pitch(i + 1), i > 0);
        if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
}
