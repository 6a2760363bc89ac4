// A test is a host function that launches kernels and compares with known answers; test_kernels.py calls it by name.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#define TEST(name) extern "C" __attribute__((visibility("default"))) void name(char* message)

// Both sides are evaluated once; the first difference ends the test and says where.
#define EXPECT_EQ(got, expected)                                                                                      \
    do {                                                                                                              \
        auto got_ = (got);                                                                                            \
        auto expected_ = (expected);                                                                                  \
        if (!(got_ == expected_)) {                                                                                   \
            std::snprintf(message, 400, "line %d: %s is %.17g, expected %.17g", __LINE__, #got, double(got_), double(expected_)); \
            return;                                                                                                   \
        }                                                                                                             \
    } while (0)
#define EXPECT(condition) EXPECT_EQ(bool(condition), true)
#define EXPECT_OK() EXPECT_EQ(int(cudaGetLastError()), 0)

// Device memory, filled with one value.
template <typename T>
struct Device {
    T* data = nullptr;
    size_t size;
    explicit Device(size_t n, T value = T()) : size(n) {
        cudaMalloc(&data, n * sizeof(T));
        for (size_t i = 0; i < n; ++i) data[i] = value;
    }
    ~Device() { cudaFree(data); }
    T& operator[](size_t i) { return data[i]; }
    operator T*() { return data; }
};
