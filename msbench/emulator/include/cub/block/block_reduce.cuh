#include "msbench_cpu/cub/block.hpp"
