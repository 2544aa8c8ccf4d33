#pragma once
namespace core {
struct Settings {
    float scale, shift, bound, gain;
};
}  // namespace core
