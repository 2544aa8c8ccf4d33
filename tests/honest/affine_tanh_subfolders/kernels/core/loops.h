#pragma once
#include "detail/settings.hpp"

namespace core {
void run_rows(const float* in, float* out, long rows, long columns, Settings settings);
}
