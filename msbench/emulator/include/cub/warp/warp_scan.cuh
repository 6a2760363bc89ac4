#include "msbench_cpu/cub/warp.hpp"
