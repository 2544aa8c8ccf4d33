#include <exception>
#include <string>

#include "binding_registry.h"

class ShapeError : public std::exception {
 public:
    ShapeError(long got, long wanted) : text_("got " + std::to_string(got) + " elements, wanted " + std::to_string(wanted)) {}
    const char* what() const noexcept override { return text_.c_str(); }

 private:
    std::string text_;
};

static void check(long got, long wanted) {
    if (got != wanted) throw ShapeError(got, wanted);
}

static void run(TensorView x, TensorView y) {
    check(y.numel(), x.numel());
    long block = 1024;
    try {
        check(x.numel() % 4096, 0);  // an optional fast path: throws for sizes that 4096 does not divide
        block = 4096;
        throw 1;
    } catch (const ShapeError&) {
        block = 512;
    } catch (int) {
    }
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for schedule(static)
    for (long start = 0; start < x.numel(); start += block)
        for (long i = start; i < start + block && i < x.numel(); ++i) out[i] = 1.5f * fminf(fmaxf(tanhf(in[i] * 0.5f + 0.1f), -0.9f), 0.9f);
}
REGISTER_LIGHT(run)
