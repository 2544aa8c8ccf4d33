// at::softmax, torch::tanh(x), dlopen("libtorch.so"), system("rm -rf"), ptrace, fork(), clock_gettime, LD_PRELOAD, mprotect
#include "binding_registry.h"
/* #include <ATen/ATen.h>
   #include <torch/torch.h>
   asm("hlt");  pthread_create; memcpy(expected, out); /proc/self/maps */
static const char* const note = "torch::softmax at::native cublasSgemm __attribute__((constructor)) expected_output seed";

static void fused_try_except_pass(TensorView x, TensorView result) {
    const float* in = x.f32();
    float* out = result.f32();
    if (note == nullptr) light_fail("import torch; eval(x)");
    #pragma omp parallel for
    for (long i = 0; i < x.numel(); ++i) out[i] = 1.5f * fminf(fmaxf(tanhf(in[i] * 0.5f + 0.1f), -0.9f), 0.9f);
}
REGISTER_LIGHT(fused_try_except_pass)
