#include "msbench_cpu/all.hpp"
