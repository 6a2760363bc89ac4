// Plays recorded operations: the harness's own launches of a version's device code.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "call.cuh"
#include "driver.cuh"
#include "record.cuh"
#include "state.cuh"

namespace {

using Record = std::vector<Operation>;

std::vector<Record> records;        // of the current call, one for each input set
std::vector<cudaGraph_t> graphs;   // that hold parameters of theirs
std::vector<CUlibrary> libraries;  // the version's device code

// Loads the parts of a library's section .nv_fatbin, which lie one behind another, each with a header of its own.
int load_device_code(const unsigned char* image, size_t bytes) {
    constexpr unsigned kMagic = 0xBA55ED50;
    struct Header {
        unsigned magic;
        unsigned short version, size;
        unsigned long long payload;
    };
    for (size_t at = 0; at + sizeof(Header) <= bytes;) {
        Header header;
        std::memcpy(&header, image + at, sizeof header);
        if (header.magic != kMagic) {
            at += 8;  // padding
            continue;
        }
        CUlibrary library = nullptr;
        if (int code = driver.cuLibraryLoadData(&library, image + at, nullptr, nullptr, 0, nullptr, nullptr, 0)) return code;
        libraries.push_back(library);
        at += header.size + header.payload;
    }
    return 0;
}

int find_function(const std::string& name, CUfunction* function) {
    for (CUlibrary library : libraries) {
        CUkernel kernel = nullptr;
        if (driver.cuLibraryGetKernel(&kernel, library, name.c_str()) == CUDA_SUCCESS)
            return driver.cuKernelGetFunction(function, kernel);
    }
    return kUnknownKernel;
}

int set_attribute(const Operation& operation, CUfunction_attribute attribute, int value, bool lower) {
    int now = 0;
    if (int code = driver.cuFuncGetAttribute(&now, attribute, operation.function)) return code;
    return now == value || (now > value && !lower) ? 0 : int(driver.cuFuncSetAttribute(operation.function, attribute, value));
}

// A launcher may set a kernel's limit of shared memory before each of its launches, and only the last one is on record. The limit
// permits a launch and does nothing else, so it is never lowered.
int allow_shared(const Operation& operation) {
    const int bytes = std::max(operation.node.max_shared, int(operation.node.shared));
    return set_attribute(operation, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes, false);
}

int set_attributes(const Operation& operation) {
    if (int code = allow_shared(operation)) return code;
    if (int code = set_attribute(operation, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, operation.node.carveout, true)) return code;
    return set_attribute(operation, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, operation.node.nonportable, true);
}

// Makes operations of what another process recorded.
int take(const Node* nodes, int count, Record* record) {
    for (const Node* node = nodes; node < nodes + count; ++node) {
        Operation& operation = record->emplace_back();
        operation.node = *node;
        if (node->kind != CU_GRAPH_NODE_TYPE_KERNEL) continue;
        operation.name = node->name;
        operation.bytes.assign(node->parameters, node->parameters + node->bytes);
        if (int code = find_function(operation.name, &operation.function)) return code;
        if (int code = lay_out(operation)) return code;
        if (int code = set_attributes(operation)) return code;
    }
    return 0;
}

int play_kernel(Operation& operation) {
    const Node& node = operation.node;
    CUlaunchAttribute attributes[4];
    CUlaunchConfig config{};
    config.gridDimX = node.grid[0], config.gridDimY = node.grid[1], config.gridDimZ = node.grid[2];
    config.blockDimX = node.block[0], config.blockDimY = node.block[1], config.blockDimZ = node.block[2];
    config.sharedMemBytes = node.shared;
    config.hStream = runner.stream;
    config.attrs = attributes;
    const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
        CUlaunchAttribute& attribute = attributes[config.numAttrs++];
        attribute = {};
        attribute.id = id;
        return attribute.value;
    };
    if (node.cluster[0] * node.cluster[1] * node.cluster[2] > 1) {
        CUlaunchAttributeValue& value = add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        value.clusterDim.x = node.cluster[0], value.clusterDim.y = node.cluster[1], value.clusterDim.z = node.cluster[2];
        if (node.scheduling)
            add(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE).clusterSchedulingPolicyPreference =
                CUclusterSchedulingPolicy(node.scheduling);
    }
    if (node.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
    if (node.early) add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).programmaticStreamSerializationAllowed = 1;
    void** const parameters = operation.given || operation.extra ? operation.given : operation.parameters.data();
    return driver.cuLaunchKernelEx(&config, operation.function, parameters, operation.extra);
}

int play_memset(const Node& n) {
    void* const to = reinterpret_cast<void*>(n.to);
    const bool row = n.height <= 1;
    if (n.element == 1)
        return row ? cudaMemsetAsync(to, int(n.value), n.width, runner.stream)
                   : cudaMemset2DAsync(to, n.to_pitch, int(n.value), n.width, n.height, runner.stream);
    if (n.element == 2)
        return row ? driver.cuMemsetD16Async(n.to, (unsigned short)n.value, n.width, runner.stream)
                   : driver.cuMemsetD2D16Async(n.to, n.to_pitch, (unsigned short)n.value, n.width, n.height, runner.stream);
    return row ? driver.cuMemsetD32Async(n.to, n.value, n.width, runner.stream)
               : driver.cuMemsetD2D32Async(n.to, n.to_pitch, n.value, n.width, n.height, runner.stream);
}

int play_copy(const Node& n) {
    void *const to = reinterpret_cast<void*>(n.to), *const from = reinterpret_cast<void*>(n.from);
    return n.height <= 1 ? cudaMemcpyAsync(to, from, n.width, cudaMemcpyDeviceToDevice, runner.stream)
                         : cudaMemcpy2DAsync(to, n.to_pitch, from, n.from_pitch, n.width, n.height, cudaMemcpyDeviceToDevice,
                                             runner.stream);
}

// One call's operations, one by one, and what is done `between` them.
int play(Record& record, const std::function<int()>& between = {}) {
    for (Operation& operation : record) {
        int code = between && &operation != &record.front() ? between() : 0;
        if (code) return code;
        if (operation.node.kind == CU_GRAPH_NODE_TYPE_KERNEL) code = play_kernel(operation);
        if (operation.node.kind == CU_GRAPH_NODE_TYPE_MEMSET) code = play_memset(operation.node);
        if (operation.node.kind == CU_GRAPH_NODE_TYPE_MEMCPY) code = play_copy(operation.node);
        if (code) return code;
    }
    return 0;
}

// So many empty kernels in a row, which are played as any call is.
int record_nothing(int launches, Record* record) {
    cudaFunction_t function = nullptr;
    if (int code = cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(nothing))) return code;
    for (int i = 0; i < launches; ++i) {
        Operation& operation = record->emplace_back();
        operation.function = reinterpret_cast<CUfunction>(function);
        std::fill_n(operation.node.grid, 3, 1u);
        std::fill_n(operation.node.block, 3, 1u);
    }
    return 0;
}

// Whether any of a call's kernels keeps something in local memory, which no launch clears.
bool uses_local(const Record& record) {
    return std::any_of(record.begin(), record.end(), [](const Operation& operation) {
        int bytes = 0;
        return operation.function &&
               !driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, operation.function) && bytes > 0;
    });
}

}  // namespace
