// Clusters: blocks of one processing cluster (GPC) that run at once and reach each other's shared memory, in kernels by
// cooperative_groups::this_cluster().
#pragma once

#include "msbench_groups.cuh"

#include "msbench_launch.cuh"

namespace msbench {

// Launches a grid of clusters of `size` neighbouring blocks, up to 16; the grid's width is a multiple of it.
//
//     return launch_clusters(8, Launch(blocks, threads, stream), kernel, arguments...);
template <typename... Parameter, typename... Argument>
cudaError_t launch_clusters(int size, Launch launch, void (*kernel)(Parameter...), Argument&&... argument) {
    constexpr int kPortable = 8;
    if (size > kPortable) {
        const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (status != cudaSuccess) return status;
    }
    cudaLaunchAttribute shape{};
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim.x = static_cast<unsigned>(size);
    shape.val.clusterDim.y = shape.val.clusterDim.z = 1;
    return launch.with(shape)(kernel, std::forward<Argument>(argument)...);
}

}  // namespace msbench
