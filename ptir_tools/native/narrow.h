/* Scalar conversions of f16 and bf16 to f32, and of f32 values that are exact in f16 or bf16 back. NaN stays NaN. */
#ifndef PTIR_NARROW_H
#define PTIR_NARROW_H
#include <string.h>
#include "common.h"

PTIR_INLINE float from_bits(uint32_t i)
{
    float f;
    memcpy(&f, &i, sizeof f);
    return f;
}

PTIR_INLINE uint32_t to_bits(float f)
{
    uint32_t i;
    memcpy(&i, &f, sizeof i);
    return i;
}

PTIR_INLINE float from_bf16(uint16_t h) { return from_bits((uint32_t)h << 16); }
PTIR_INLINE uint16_t to_bf16(float x) { return (uint16_t)(to_bits(x) >> 16); }

enum { F16_SPECIAL = 0x7c00, SIGN = 0x8000 };

PTIR_INLINE float from_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & SIGN) << 16;
    uint32_t scaled = to_bits(from_bits(magnitude) * 0x1p112f);
    return from_bits(((h & F16_SPECIAL) == F16_SPECIAL ? magnitude | 0x7f800000 : scaled) | sign);
}

PTIR_INLINE uint16_t to_f16(float x)
{
    uint32_t magnitude = to_bits(x) & 0x7fffffff, sign = to_bits(x) >> 16 & SIGN;
    uint32_t scaled = to_bits(from_bits(magnitude) * 0x1p-112f) >> 13, special = magnitude >> 13 & 0x3ff;
    return (uint16_t)((magnitude >= 0x7f800000 ? F16_SPECIAL | special : scaled) | sign);
}
#endif
