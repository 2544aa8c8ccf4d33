// Schnell & schön: y = min(max(tanh(α·x + β), −0,9), 0,9)·1,5; „ohne“ Zwischenspeicher. 日本語コメント。
#include "binding_registry.h"

static void fused_affine_tanh(TensorView x, TensorView y, float α, float β) {
    const float* in = x.f32();
    float* out = y.f32();
    const char* größe = "μ±σ";
    (void)größe;
    #pragma omp parallel for
    for (long i = 0; i < x.numel(); ++i) out[i] = 1.5f * fminf(fmaxf(tanhf(in[i] * α + β), -0.9f), 0.9f);
}
REGISTER_LIGHT(fused_affine_tanh)
