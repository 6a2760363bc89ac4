// cub::DeviceTransform, with few elements and with many by an instance each.
//
// What CUB (3.0, dispatch_transform.cuh) chooses on an instance's first call it keeps for the life of the process, and for fewer
// elements than a tile it chooses the smallest tile: after one short call all later ones would be slow.
#pragma once

#include <cub/device/device_transform.cuh>

namespace msbench {

constexpr int64_t kManyElements = 1 << 15;  // more than CUB's largest tile

template <typename Operation>
struct OnFew : Operation {
    using Operation::operator();
};

// out[i] = operation(inputs[i]) for i below `count`; `inputs` is one iterator or a cuda::std::tuple of several.
template <typename Inputs, typename Output, typename Operation>
cudaError_t transform(Inputs inputs, Output out, int64_t count, Operation operation, cudaStream_t stream) {
    const int elements = static_cast<int>(count);
    if (count < kManyElements) {
        return cub::DeviceTransform::Transform(inputs, out, elements, OnFew<Operation>{operation}, stream);
    }
    return cub::DeviceTransform::Transform(inputs, out, elements, operation, stream);
}

}  // namespace msbench
