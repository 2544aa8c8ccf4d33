#include <cmath>

extern "C" void affine_tanh_launcher(float* out, const float* in, long n, float scale, float shift, float limit, float gain) {
    #pragma omp parallel for
    for (long i = 0; i < n; ++i) out[i] = gain * std::fmin(std::fmax(std::tanh(in[i] * scale + shift), -limit), limit);
}
