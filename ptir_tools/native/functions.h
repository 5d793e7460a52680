/* Elementary functions without branches, so that loops over them become vector code. Coefficients are fits of this project;
 * errors are at most 2 units in the last place for exp and log, 7 for tanh and erf. No sum is of two products, which a compiler
 * may fuse in two ways: every copy of a function gives the same bits. */
#ifndef PTIR_FUNCTIONS_H
#define PTIR_FUNCTIONS_H
#include <math.h>
#include <stdint.h>
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

enum { EXPONENT = 23, ONE = 127 << EXPONENT }; /* where the exponent begins; the bits of 1 */

/* 2 to the power n, for n in [-126, 127]. */
PTIR_INLINE float power_of_two(int32_t n) { return from_bits(ONE + ((uint32_t)n << EXPONENT)); }

/* The bits of 1.5 * 2^23: a small number added to it is rounded to an integer, which is in the lowest bits. */
enum { SHIFT = 0x4b400000 };

/* e^r for x = n ln 2 + r, |r| <= ln 2 / 2; n is in the lowest bits of `shifted`. */
PTIR_INLINE float reduced_exp(float x, uint32_t *shifted)
{
    float rounded = x * 1.44269504f + from_bits(SHIFT), whole = rounded - from_bits(SHIFT);
    float r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float square = r * r;
    float p = square * (1.381458389e-3f * r + 8.368724096e-3f) + (4.166838874e-2f * r + 1.666652057e-1f);
    *shifted = to_bits(rounded);
    return (p * r + 4.999999344e-1f) * square + r + 1.0f;
}

/* e^x where the result and all on the way are normal. */
PTIR_INLINE int is_near(float x) { return fabsf(x) <= 87.0f; }
PTIR_INLINE float near_exp(float x)
{
    uint32_t n;
    float p = reduced_exp(x, &n);
    return from_bits(to_bits(p) + (n << EXPONENT));
}

/* e^x for any x; the power of two is applied in two steps, so that the ends of the range come out right. */
PTIR_INLINE float fast_exp(float x)
{
    uint32_t shifted;
    float y = x < -105.0f ? -105.0f : x;
    float p = reduced_exp(y > 90.0f ? 90.0f : y, &shifted);
    int32_t n = (int32_t)(shifted - SHIFT), half = n >> 1;
    return p * power_of_two(half) * power_of_two(n - half);
}

/* log x = e ln 2 + log(1 + f) for a normal x, sqrt(1/2) <= 1 + f < sqrt 2; `bias` is added to e. */
PTIR_INLINE float normal_log(float x, float bias)
{
    const uint32_t low = 0x3f3504f3; /* sqrt(1/2) */
    int32_t e = (int32_t)(to_bits(x) - low) >> EXPONENT;
    float f = from_bits(to_bits(x) - ((uint32_t)e << EXPONENT)) - 1.0f;
    float exponent = (float)e + bias;
    float p = 6.746608080e-2f;
    p = p * f + -1.167564144e-1f;
    p = p * f + 1.188817160e-1f;
    p = p * f + -1.240559128e-1f;
    p = p * f + 1.421955133e-1f;
    p = p * f + -1.666799568e-1f;
    p = p * f + 2.000211871e-1f;
    p = p * f + -2.500000960e-1f;
    p = p * f + 3.333331260e-1f;
    float y = f + (p * f - 0.5f) * (f * f);
    y = y - exponent * 2.12194440e-4f;
    return y + exponent * 0.693359375f;
}

PTIR_INLINE int is_normal(float x) { return x >= 1.17549435e-38f && x < INFINITY; }
PTIR_INLINE float near_log(float x) { return normal_log(x, 0.0f); }

/* log x for any x. */
PTIR_INLINE float fast_log(float x)
{
    int denormal = x < 1.17549435e-38f;
    float y = normal_log(denormal ? x * 8388608.0f : x, denormal ? -23.0f : 0.0f);
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0f ? y : NAN;
}

/* Limits as data: where the compiler knows both sides, it makes six instructions of the two that clipping needs. */
typedef struct {
    float one, tanh, erf;
} ptir_limits;
extern ptir_limits ptir_limit;

PTIR_INLINE float clipped(float x, float limit)
{
    float y = x < -limit ? -limit : x;
    return y > limit ? limit : y;
}

PTIR_INLINE float fast_tanh(float x)
{
    float y = clipped(x, ptir_limit.tanh);
    float t = y * y;
    float p = 3.683617833e-11f, q = 2.956608308e-09f;
    p = p * t + 1.113220897e-07f;
    p = p * t + 4.229904046e-05f;
    p = p * t + 4.426928195e-03f;
    p = p * t + 1.409994374e-01f;
    p = p * t + 1.0f;
    q = q * t + 2.606210747e-06f;
    q = q * t + 5.010227313e-04f;
    q = q * t + 2.920451903e-02f;
    q = q * t + 4.743327704e-01f;
    q = q * t + 1.0f;
    return clipped(y * (p / q), ptir_limit.one);
}

PTIR_INLINE float fast_erf(float x)
{
    float y = clipped(x, ptir_limit.erf);
    float t = y * y;
    float p = 1.9867809e-06f, q = 3.7420167e-05f;
    p = p * t + 2.8456606e-04f;
    p = p * t + 3.8833523e-03f;
    p = p * t + 5.3101775e-02f;
    p = p * t + 1.9354526e-01f;
    p = p * t + 1.1283791f;
    q = q * t + 1.1855730e-03f;
    q = q * t + 1.5207269e-02f;
    q = q * t + 1.1535008e-01f;
    q = q * t + 5.0485758e-01f;
    q = q * t + 1.0f;
    return clipped(y * (p / q), ptir_limit.one);
}

/* Narrow floats: 16 bits to f32, the nearest in f32, and what is one in f32 to 16 bits. A NaN stays one. */
PTIR_INLINE float from_bf16(uint16_t h) { return from_bits((uint32_t)h << 16); }
PTIR_INLINE uint16_t to_bf16(float x) { return (uint16_t)(to_bits(x) >> 16); }

PTIR_INLINE float nearest_bf16(float x)
{
    uint32_t u = to_bits(x), near = u + 0x7fff + (u >> 16 & 1);
    return from_bits((x == x ? near : u | 0x400000) & 0xffff0000);
}

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

/* Eleven bits; below 2^-14 multiples of 2^-24, which adding 1/2 leaves; from 65520 on infinity. */
PTIR_INLINE float nearest_f16(float x)
{
    uint32_t u = to_bits(x) & 0x7fffffff, sign = to_bits(x) & 0x80000000;
    float normal = from_bits((u + 0xfff + (u >> 13 & 1)) & 0xffffe000), small = from_bits(u) + 0.5f - 0.5f;
    float near = from_bits(u) < 0x1p-14f ? small : normal;
    near = near > 65504.0f ? INFINITY : near;
    return from_bits((x == x ? to_bits(near) : (u | 0x400000) & 0xffffe000) | sign);
}

/* The larger and the smaller; NaN when either is NaN. */
PTIR_INLINE float larger(float a, float b) { return a > b || a != a ? a : b; }
PTIR_INLINE float smaller(float a, float b) { return a < b || a != a ? a : b; }
#endif
