// cuda::std is the C++ library; what cuda:: adds to it for device code is here.
#ifndef MSBENCH_CPU_CUDA_STD_HPP
#define MSBENCH_CPU_CUDA_STD_HPP

#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "all.hpp"

namespace cuda {

namespace std {
using namespace ::std;
}

template <class T = void>
struct maximum {
    constexpr T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <>
struct maximum<void> {
    template <class A, class B>
    constexpr ::std::common_type_t<A, B> operator()(const A& a, const B& b) const {
        return a < b ? b : a;
    }
};
template <class T = void>
struct minimum {
    constexpr T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <>
struct minimum<void> {
    template <class A, class B>
    constexpr ::std::common_type_t<A, B> operator()(const A& a, const B& b) const {
        return b < a ? b : a;
    }
};

template <class A, class B>
constexpr auto ceil_div(A a, B b) {
    return (a + b - 1) / b;
}

}  // namespace cuda

#endif
