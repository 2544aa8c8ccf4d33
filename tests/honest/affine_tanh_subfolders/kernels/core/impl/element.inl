#include <cmath>

namespace core {
static inline float element(float v, Settings s) { return s.gain * std::fmin(std::fmax(std::tanh(v * s.scale + s.shift), -s.bound), s.bound); }
}  // namespace core
