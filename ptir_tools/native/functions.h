/* Elementary functions without branches, so that loops over them become vector code. Coefficients are fits of this project;
 * errors are at most 2 units in the last place for exp and log, 7 for tanh and erf. */
#ifndef PTIR_FUNCTIONS_H
#define PTIR_FUNCTIONS_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "common.h"

PTIR_INLINE float from_bits(int32_t i)
{
    float f;
    memcpy(&f, &i, sizeof f);
    return f;
}

PTIR_INLINE int32_t to_bits(float f)
{
    int32_t i;
    memcpy(&i, &f, sizeof i);
    return i;
}

/* 2 to the power n, for n in [-126, 127]. */
PTIR_INLINE float power_of_two(int32_t n) { return from_bits((n + 127) << 23); }

/* e^x = 2^n e^r with |r| <= ln 2 / 2; the power is applied in two steps, so that the ends of the range come out right. */
PTIR_INLINE float fast_exp(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float y = x < -105.0f ? -105.0f : x;
    y = y > 90.0f ? 90.0f : y;
    float rounded = y * 1.44269504f + shift;
    int32_t n = to_bits(rounded) - to_bits(shift);
    float whole = rounded - shift;
    float r = y - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 1.381458389e-3f;
    p = p * r + 8.368724096e-3f;
    p = p * r + 4.166838874e-2f;
    p = p * r + 1.666652057e-1f;
    p = p * r + 4.999999344e-1f;
    p = (p * r) * r + r + 1.0f;
    int32_t half = n >> 1;
    return p * power_of_two(half) * power_of_two(n - half);
}

/* log x = e ln 2 + log(1 + f), sqrt(1/2) <= 1 + f < sqrt 2. */
PTIR_INLINE float fast_log(float x)
{
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float bias = x < 1.17549435e-38f ? 23.0f : 0.0f;
    int32_t bits = to_bits(scaled);
    int32_t e = (bits - 0x3f3504f3) >> 23;
    float f = from_bits(bits - (e << 23)) - 1.0f;
    float exponent = (float)e - bias;
    float p = 6.746608080e-2f;
    p = p * f + -1.167564144e-1f;
    p = p * f + 1.188817160e-1f;
    p = p * f + -1.240559128e-1f;
    p = p * f + 1.421955133e-1f;
    p = p * f + -1.666799568e-1f;
    p = p * f + 2.000211871e-1f;
    p = p * f + -2.500000960e-1f;
    p = p * f + 3.333331260e-1f;
    float square = f * f;
    float y = p * f * square - exponent * 2.12194440e-4f;
    y = y - 0.5f * square;
    y = f + y + exponent * 0.693359375f;
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0f ? y : NAN;
}

PTIR_INLINE float clipped(float x, float limit)
{
    float y = x < -limit ? -limit : x;
    return y > limit ? limit : y;
}

PTIR_INLINE float fast_tanh(float x)
{
    float y = clipped(x, 9.0f);
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
    return clipped(y * (p / q), 1.0f);
}

PTIR_INLINE float fast_erf(float x)
{
    float y = clipped(x, 4.0f);
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
    return clipped(y * (p / q), 1.0f);
}

/* The larger and the smaller; NaN when either is NaN. */
PTIR_INLINE float larger(float a, float b) { return a > b || a != a ? a : b; }
PTIR_INLINE float smaller(float a, float b) { return a < b || a != a ? a : b; }
#endif
