// Cooperative groups: of a cluster's blocks, or of a cooperative launch's.
//
// Without libcu++, which the header draws in for collectives that nobody here uses: it makes up two thirds of a compilation.
#pragma once

#define _CG_LIMIT_INCLUDED_DEPENDENCIES
#include <cooperative_groups.h>
