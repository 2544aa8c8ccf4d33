#include "binding_registry.h"

#define TEN(x) x x x x x x x x x x
#define WRONG(...) _Pragma("message(\"a long message that repeats itself\")") static_assert(sizeof(int) == 1, "wrong size of int, again and again");
TEN(TEN(TEN(TEN(WRONG(a)))))

static void run(TensorView x, TensorView y) { y.f32()[0] = x.f32()[0]; }
REGISTER_LIGHT(run)
