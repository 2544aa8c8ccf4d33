// Fresh input values: two sources, each shifted by some elements around its end, mixed a : 1 - a, bent, and written past the caches,
// so that whoever reads them next fetches them from memory. Types: 0 float32, 1 float64, 2 float16, 3 bfloat16, 4 bytes of
// the first source, shifted alone.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

constexpr long kLine = 64;

void stream(char* target, const char* line) {
#if defined(__SSE2__)
  for (int part = 0; part < 4; ++part) {
    const __m128i value = _mm_load_si128(reinterpret_cast<const __m128i*>(line) + part);
    _mm_stream_si128(reinterpret_cast<__m128i*>(target) + part, value);
  }
#else
  std::memcpy(target, line, kLine);
#endif
}

struct Bfloat {
  std::uint16_t bits;
};

float wide(Bfloat value) {
  const std::uint32_t whole = static_cast<std::uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &whole, sizeof result);
  return result;
}

Bfloat narrow(float value) {
  std::uint32_t whole;
  std::memcpy(&whole, &value, sizeof whole);
  if (value != value) return {0x7fc0};
  return {static_cast<std::uint16_t>((whole + 0x7fff + ((whole >> 16) & 1)) >> 16)};
}

// How values come about: the first one's share of a mix, and how it is bent; see memory.Mix.
struct Curve {
  double share, bend, knee, scale;
};

template <class T> T mixed(T one, T other, const Curve& curve) {
  const T share = static_cast<T>(curve.share), value = one * share + other * (T(1) - share);
  const T beyond = std::max(T(0), std::fabs(value) - static_cast<T>(curve.knee)) * static_cast<T>(curve.bend);
  return (value + std::copysign(beyond, value)) * static_cast<T>(curve.scale);
}
template <> _Float16 mixed(_Float16 one, _Float16 other, const Curve& curve) {
  return static_cast<_Float16>(mixed(static_cast<float>(one), static_cast<float>(other), curve));
}
template <> Bfloat mixed(Bfloat one, Bfloat other, const Curve& curve) { return narrow(mixed(wide(one), wide(other), curve)); }
template <> unsigned char mixed(unsigned char one, unsigned char, const Curve&) { return one; }

// Where in a source of `count` elements the element for target 0 stands, and on from there.
struct Walk {
  long at, count;
  Walk(long shift, long elements) : at(shift == 0 ? 0 : elements - shift), count(elements) {}
  long next() {
    const long here = at;
    if (++at == count) at = 0;
    return here;
  }
  bool straight(long width) const { return at + width < count; }
};

template <class T> void refresh(T* target, const T* one, const T* other, long count, long first, long second, const Curve& curve) {
  constexpr long width = kLine / static_cast<long>(sizeof(T));
  Walk a(first, count), b(second, count);
  const auto value = [&] {
    const long here = a.next(), there = b.next();
    return mixed(one[here], other[there], curve);
  };
  long i = 0;
  while (i < count && reinterpret_cast<std::uintptr_t>(target + i) % kLine) target[i++] = value();
  alignas(kLine) T line[width];
  for (; i + width <= count; i += width) {
    if (a.straight(width) && b.straight(width)) {
      for (long k = 0; k < width; ++k) line[k] = mixed(one[a.at + k], other[b.at + k], curve);
      a.at += width;
      b.at += width;
    } else {
      for (long k = 0; k < width; ++k) line[k] = value();
    }
    stream(reinterpret_cast<char*>(target + i), reinterpret_cast<const char*>(line));
  }
  while (i < count) target[i++] = value();
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

template <class T> void typed(void* target, const void* one, const void* other, long count, long first, long second, const Curve& curve) {
  refresh(static_cast<T*>(target), static_cast<const T*>(one), static_cast<const T*>(other), count, first, second, curve);
}

}  // namespace

extern "C" void refresh(void* target, const void* one, const void* other, long count, long first, long second, int type, double share,
                        double bend, double knee, double scale) {
  const Curve curve{share, bend, knee, scale};
  switch (type) {
    case 0: return typed<float>(target, one, other, count, first, second, curve);
    case 1: return typed<double>(target, one, other, count, first, second, curve);
    case 2: return typed<_Float16>(target, one, other, count, first, second, curve);
    case 3: return typed<Bfloat>(target, one, other, count, first, second, curve);
    default: return typed<unsigned char>(target, one, one, count, first, first, curve);
  }
}
