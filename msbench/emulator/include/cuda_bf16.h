#include "msbench_cpu/bf162.hpp"
