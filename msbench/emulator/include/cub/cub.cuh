#include "msbench_cpu/cub/block.hpp"
#include "msbench_cpu/cub/data.hpp"
#include "msbench_cpu/cub/warp.hpp"
