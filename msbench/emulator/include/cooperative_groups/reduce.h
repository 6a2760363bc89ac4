#include "msbench_cpu/groups.hpp"
