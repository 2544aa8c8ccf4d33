// Fresh input values: `source` shifted by some elements around its end and scaled, written past the caches, so that whoever
// reads them next fetches them from memory. Types: 0 float32, 1 float64, 2 float16, 3 bfloat16, 4 bytes as they are.
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

float wide(std::uint16_t bits) {
  const std::uint32_t whole = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &whole, sizeof value);
  return value;
}

std::uint16_t narrow(float value) {
  std::uint32_t whole;
  std::memcpy(&whole, &value, sizeof whole);
  if (value != value) return 0x7fc0;
  return static_cast<std::uint16_t>((whole + 0x7fff + ((whole >> 16) & 1)) >> 16);
}

struct Bfloat {
  std::uint16_t bits;
};

template <class T> T scaled(T value, double factor) { return static_cast<T>(value * static_cast<T>(factor)); }
template <> Bfloat scaled(Bfloat value, double factor) { return {narrow(wide(value.bits) * static_cast<float>(factor))}; }
template <> unsigned char scaled(unsigned char value, double) { return value; }

template <class T> void refresh(T* target, const T* source, long count, long shift, double factor) {
  constexpr long width = kLine / static_cast<long>(sizeof(T));
  long from = count - shift;
  long i = 0;
  const auto next = [&] {
    const T value = scaled(source[from], factor);
    if (++from == count) from = 0;
    return value;
  };
  if (from == count) from = 0;
  while (i < count && reinterpret_cast<std::uintptr_t>(target + i) % kLine) target[i++] = next();
  alignas(kLine) T line[width];
  for (; i + width <= count; i += width) {
    if (from + width <= count) {
      for (long k = 0; k < width; ++k) line[k] = scaled(source[from + k], factor);
      from = from + width == count ? 0 : from + width;
    } else {
      for (long k = 0; k < width; ++k) line[k] = next();
    }
    stream(reinterpret_cast<char*>(target + i), reinterpret_cast<const char*>(line));
  }
  while (i < count) target[i++] = next();
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace

extern "C" void refresh(void* target, const void* source, long count, long shift, int type, double factor) {
  switch (type) {
    case 0: return refresh(static_cast<float*>(target), static_cast<const float*>(source), count, shift, factor);
    case 1: return refresh(static_cast<double*>(target), static_cast<const double*>(source), count, shift, factor);
    case 2: return refresh(static_cast<_Float16*>(target), static_cast<const _Float16*>(source), count, shift, factor);
    case 3: return refresh(static_cast<Bfloat*>(target), static_cast<const Bfloat*>(source), count, shift, factor);
    default: return refresh(static_cast<unsigned char*>(target), static_cast<const unsigned char*>(source), count, shift, 1.0);
  }
}
