#include "msbench_cpu/cub/data.hpp"
