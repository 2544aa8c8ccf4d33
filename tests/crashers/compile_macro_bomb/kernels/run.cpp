#include "binding_registry.h"

#define A0 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
#define A1 A0 A0 A0 A0 A0 A0 A0 A0 A0 A0
#define A2 A1 A1 A1 A1 A1 A1 A1 A1 A1 A1
#define A3 A2 A2 A2 A2 A2 A2 A2 A2 A2 A2
#define A4 A3 A3 A3 A3 A3 A3 A3 A3 A3 A3
#define A5 A4 A4 A4 A4 A4 A4 A4 A4 A4 A4
#define A6 A5 A5 A5 A5 A5 A5 A5 A5 A5 A5
#define A7 A6 A6 A6 A6 A6 A6 A6 A6 A6 A6
#define A8 A7 A7 A7 A7 A7 A7 A7 A7 A7 A7
static const int table[] = {A8 A8 A8 A8};

static void run(TensorView x, TensorView y) { y.f32()[0] = x.f32()[0] + static_cast<float>(table[x.numel()]); }
REGISTER_LIGHT(run)
