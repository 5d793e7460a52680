/* Elementary functions on vectors of W floats, without branches. The coefficients were fitted for this project. Errors are at most
 * 2 ulp for exp and log, 7 ulp for tanh and erf. No sum has two products, because a compiler may fuse either of them into the
 * addition: so every compiled copy of a function gives the same bits. */

enum { EXPONENT = 23, ONE = 127 << EXPONENT }; /* lowest bit of the exponent; the bits of 1.0f */
enum { MAGNITUDE = 0x7fffffff, QUIET = 0x400000 };
#define HAS_SCALING (PTIR_X86 && W == 16)

/* Force a product to be rounded: the compiler must not fuse it into a sum. */
PTIR_INLINE floats rounded(floats x)
{
#if PTIR_X86
    __asm__("" : "+v"(x));
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__("" : "+w"(x));
#endif
    return x;
}

PTIR_INLINE floats all(float x) { return x - (floats){0}; }

/* Rotate a vector: elements n, n + 1, … of v, modulo W. */
#define FOUR_FROM(n) (n) % W, ((n) + 1) % W, ((n) + 2) % W, ((n) + 3) % W
#if W == 4
#define FROM(v, n) __builtin_shufflevector(v, v, FOUR_FROM(n))
#elif W == 8
#define FROM(v, n) __builtin_shufflevector(v, v, FOUR_FROM(n), FOUR_FROM(n + 4))
#else
#define FROM(v, n) __builtin_shufflevector(v, v, FOUR_FROM(n), FOUR_FROM(n + 4), FOUR_FROM(n + 8), FOUR_FROM(n + 12))
#endif

/* a where `mask` is set, b elsewhere. */
PTIR_INLINE floats pick(ints mask, floats a, floats b) { return (floats)((mask & (ints)a) | (~mask & (ints)b)); }
PTIR_INLINE floats one_where(ints mask) { return (floats)(mask & ONE); }
PTIR_INLINE floats absolute(floats x) { return (floats)((ints)x & MAGNITUDE); }

/* The nearest integer, ties to even; a result of 0 has the sign of x. */
#if HAS_SCALING
PTIR_INLINE floats round_even(floats x) { return (floats)_mm512_roundscale_ps((__m512)x, 0); }
#else
PTIR_INLINE floats round_even(floats x)
{
    const floats size = absolute(x), near = (size + 0x1p23f) - 0x1p23f;
    return (floats)((ints)pick(size < 0x1p23f, near, size) | ((ints)x & ~MAGNITUDE));
}
#endif

PTIR_INLINE int is_any(ints mask)
{
    if (W > 8)
        mask |= FROM(mask, 8);
    if (W > 4)
        mask |= FROM(mask, 4);
    mask |= FROM(mask, 2);
    return (mask | FROM(mask, 1))[0];
}

/* 2^n for n in [-126, 127]. */
PTIR_INLINE floats power_of_two(ints n) { return (floats)(ONE + (n << EXPONENT)); }

/* 1.5 * 2^23: adding it rounds a small number to an integer and leaves that integer in the low bits. */
#define SHIFT 0x1.8p23f
enum { SHIFT_BITS = 0x4b400000 };

/* e^r, where x = n ln 2 + r and |r| <= ln 2 / 2. The integer n is returned in the low bits of `shifted`. */
PTIR_INLINE floats reduced_exp(floats x, ints *shifted)
{
    floats rounded = x * 1.44269504f + SHIFT, whole = rounded - SHIFT;
    floats r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    floats square = r * r;
    floats p = square * (1.381458389e-3f * r + 8.368724096e-3f) + (4.166838874e-2f * r + 1.666652057e-1f);
    *shifted = (ints)rounded;
    return (p * r + 4.999999344e-1f) * square + r + 1.0f;
}

/* e^x if the result and all intermediate values are normal numbers. */
PTIR_INLINE ints is_near(floats x) { return absolute(x) <= 87.0f; }
PTIR_INLINE floats near_exp(floats x)
{
    ints n;
    floats p = reduced_exp(x, &n);
    return (floats)((ints)p + (n << EXPONENT));
}

/* e^x for any x. The power of two is multiplied in two steps, so that results near overflow and subnormal results are right.
 * AVX-512 scales in one instruction and needs no near_exp. */
#if HAS_SCALING
PTIR_INLINE floats any_exp(floats x)
{
    ints shifted;
    __m512 y = _mm512_min_ps((__m512)all(90.0f), (__m512)x); /* keeps a NaN */
    floats p = reduced_exp((floats)y, &shifted);
    __mmask16 some = _mm512_cmp_ps_mask(y, (__m512)all(-104.0f), _CMP_NLT_UQ); /* else 0: subnormals are slow */
    return (floats)_mm512_maskz_scalef_ps(some, (__m512)p, (__m512)((floats)shifted - SHIFT));
}
#else
PTIR_INLINE floats any_exp(floats x)
{
    ints shifted;
    floats y = pick(x < -105.0f, all(-105.0f), x);
    floats p = reduced_exp(pick(y > 90.0f, all(90.0f), y), &shifted);
    ints n = shifted - SHIFT_BITS, half = n >> 1;
    return p * power_of_two(half) * power_of_two(n - half);
}
#endif

/* log x = e ln 2 + log(1 + f) for a normal x, with sqrt(1/2) <= 1 + f < sqrt 2. `bias` is added to e. */
PTIR_INLINE floats normal_log(floats x, floats bias)
{
    const int32_t low = 0x3f3504f3; /* sqrt(1/2) */
    ints e = ((ints)x - low) >> EXPONENT;
    floats f = (floats)((ints)x - (e << EXPONENT)) - 1.0f;
    floats exponent = __builtin_convertvector(e, floats) + bias;
    floats p = all(6.746608080e-2f);
    p = p * f + -1.167564144e-1f;
    p = p * f + 1.188817160e-1f;
    p = p * f + -1.240559128e-1f;
    p = p * f + 1.421955133e-1f;
    p = p * f + -1.666799568e-1f;
    p = p * f + 2.000211871e-1f;
    p = p * f + -2.500000960e-1f;
    p = p * f + 3.333331260e-1f;
    floats y = f + (p * f - 0.5f) * (f * f);
    y = y - exponent * 2.12194440e-4f;
    return y + exponent * 0.693359375f;
}

#define SMALLEST 0x1p-126f /* the smallest normal number */
PTIR_INLINE ints is_normal(floats x) { return (x >= SMALLEST) & (x < INFINITY); }
PTIR_INLINE floats near_log(floats x) { return normal_log(x, all(0.0f)); }

/* log x for any x. */
PTIR_INLINE floats any_log(floats x)
{
    ints denormal = x < SMALLEST;
    floats y = normal_log(pick(denormal, x * 0x1p23f, x), pick(denormal, all(-23.0f), all(0.0f)));
    y = pick(x == 0.0f, all(-INFINITY), y);
    y = pick(x == INFINITY, x, y);
    return pick(x >= 0.0f, y, all(NAN));
}

/* y, or 1 with the sign of x if |x| exceeds the limit. Within the limit |y| is at most 1. */
PTIR_INLINE floats bounded(floats x, floats y, float limit)
{
    return pick(absolute(x) > limit, (floats)(((ints)x & ~MAGNITUDE) | ONE), y);
}

PTIR_INLINE floats quick_tanh(floats x)
{
    floats t = x * x;
    floats p = all(3.683617833e-11f), q = all(2.956608308e-09f);
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
    return bounded(x, x * (p / q), 7.9f);
}

PTIR_INLINE floats quick_erf(floats x)
{
    floats t = x * x;
    floats p = all(1.9867809e-06f), q = all(3.7420167e-05f);
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
    return bounded(x, x * (p / q), 3.64f);
}

PTIR_INLINE floats inverse_root(floats x)
{
    for (int i = 0; i < W; i++)
        x[i] = sqrtf(x[i]);
    return 1.0f / x;
}

/* Truncate to an integer between two, kept in f32; NaN is 0. */
PTIR_INLINE floats truncated_between(floats x, float low, float high)
{
    const floats number = pick(x == x, x, all(0.0f)), raised = pick(number < low, all(low), number);
    return __builtin_convertvector(__builtin_convertvector(pick(raised > high, all(high), raised), ints), floats);
}

/* Round to bf16; NaN stays NaN. */
PTIR_INLINE floats nearest_bf16(floats x)
{
    ints u = (ints)x, near = u + 0x7fff + (u >> 16 & 1);
    return (floats)((ints)pick(x == x, (floats)near, (floats)(u | QUIET)) & ~0xffff);
}

/* Convert W elements: f16 to f32; f32 that is exact in f16 to f16; round f32 to f16, keeping f32. NaN stays NaN. */
#if PTIR_X86 && W == 16
PTIR_INLINE floats read_f16(const void *from) { return (floats)_mm512_cvtph_ps(_mm256_loadu_si256(from)); }
PTIR_INLINE void write_f16(void *to, floats x) { _mm256_storeu_si256(to, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT)); }
PTIR_INLINE floats nearest_f16(floats x)
{
    return (floats)_mm512_cvtph_ps(_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}
#elif PTIR_X86 && W == 8
PTIR_INLINE floats read_f16(const void *from) { return (floats)_mm256_cvtph_ps(_mm_loadu_si128(from)); }
PTIR_INLINE void write_f16(void *to, floats x) { _mm_storeu_si128(to, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT)); }
PTIR_INLINE floats nearest_f16(floats x) { return (floats)_mm256_cvtph_ps(_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT)); }
#else
PTIR_INLINE floats read_f16(const void *from)
{
    floats x;
    for (int i = 0; i < W; i++)
        x[i] = from_f16(((const uint16_t *)from)[i]);
    return x;
}
PTIR_INLINE void write_f16(void *to, floats x)
{
    for (int i = 0; i < W; i++)
        ((uint16_t *)to)[i] = to_f16(x[i]);
}

/* Round to 11 bits of mantissa. Below 2^-14 the step is 2^-24: adding and subtracting 1/2 rounds to it. From 65520 on: infinity. */
PTIR_INLINE floats nearest_f16(floats x)
{
    ints u = (ints)x & MAGNITUDE, sign = (ints)x & ~MAGNITUDE;
    floats normal = (floats)((u + 0xfff + (u >> 13 & 1)) & ~0x1fff), small = (floats)u + 0.5f - 0.5f;
    floats near = pick((floats)u < 0x1p-14f, small, normal);
    near = pick(near > 65504.0f, all(INFINITY), near);
    return (floats)((ints)pick(x == x, near, (floats)((u | QUIET) & ~0x1fff)) | sign);
}
#endif

/* The larger of two numbers, NaN if either is NaN. The sign of a zero result is not defined. The x86 instruction returns b if
 * either is NaN or both are zero. */
#if PTIR_X86 && W == 16
#define EXTREME(which) (floats)_mm512_mask_##which##_ps((__m512)a, _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q), (__m512)a, (__m512)b)
#elif PTIR_X86 && W == 8
#define EXTREME(which) pick(a != a, a, (floats)_mm256_##which##_ps((__m256)a, (__m256)b))
#elif PTIR_X86
#define EXTREME(which) pick(a != a, a, (floats)_mm_##which##_ps((__m128)a, (__m128)b))
#endif
#if PTIR_X86
PTIR_INLINE floats larger_value(floats a, floats b) { return EXTREME(max); }
#else
PTIR_INLINE floats larger_value(floats a, floats b) { return pick((a > b) | (a != a), a, b); }
#endif
#undef EXTREME

/* Maximum and minimum of IEEE 754-2019: 0.0 is above -0.0, and NaN if either is NaN. */
#if PTIR_X86 && W == 16
/* The instruction orders zeros, but returns the number if one operand is NaN: the mask replaces that by the OR of both, a NaN. */
#define EXTREME(which)                                                                                                 \
    (floats)_mm512_mask_range_ps((__m512)((ints)a | (ints)b), _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_ORD_Q),    \
                                 (__m512)a, (__m512)b, which)
enum { MIN_OF_TWO = 4, MAX_OF_TWO = 5 };
PTIR_INLINE floats larger(floats a, floats b) { return EXTREME(MAX_OF_TWO); }
PTIR_INLINE floats smaller(floats a, floats b) { return EXTREME(MIN_OF_TWO); }
#undef EXTREME
#elif PTIR_X86
/* Compute both operand orders. The two results differ only for zeros of opposite signs and for NaN. An all-ones mask is a NaN. */
#if W == 8
#define IN_ORDER(which, a, b) (ints)_mm256_##which##_ps((__m256)a, (__m256)b)
#define UNORDERED(a, b) (ints)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q)
#else
#define IN_ORDER(which, a, b) (ints)_mm_##which##_ps((__m128)a, (__m128)b)
#define UNORDERED(a, b) (ints)_mm_cmpunord_ps((__m128)a, (__m128)b)
#endif
PTIR_INLINE floats larger(floats a, floats b)
{
    return (floats)((IN_ORDER(max, a, b) & IN_ORDER(max, b, a)) | UNORDERED(a, b));
}
PTIR_INLINE floats smaller(floats a, floats b) { return (floats)(IN_ORDER(min, a, b) | IN_ORDER(min, b, a)); }
#undef IN_ORDER
#undef UNORDERED
#else
PTIR_INLINE floats larger(floats a, floats b) { return pick(a == b, (floats)((ints)a & (ints)b), larger_value(a, b)); }
PTIR_INLINE floats smaller(floats a, floats b)
{
    return pick(a == b, (floats)((ints)a | (ints)b), pick((a < b) | (a != a), a, b));
}
#endif

/* smaller(larger(x, low), high), if neither bound is NaN or -0.0. */
PTIR_INLINE floats clamped(floats x, floats low, floats high)
{
#if PTIR_X86 && W == 16
    const __mmask16 is_number = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_ORD_Q);
    const __m512 raised = _mm512_mask_max_ps((__m512)x, is_number, (__m512)x, (__m512)low);
    return (floats)_mm512_min_ps((__m512)high, raised);
#elif PTIR_X86 && W == 8
    const __m256 raised = _mm256_max_ps((__m256)x, (__m256)low), between = _mm256_min_ps((__m256)high, raised);
    return (floats)_mm256_blendv_ps(between, (__m256)x, _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q));
#else
    return smaller(larger(x, low), high);
#endif
}

/* sum + x * y, by one fused instruction if there is one. A compiler would fuse some products of a function and not others. */
PTIR_INLINE floats plus_product(floats sum, floats x, floats y)
{
#if PTIR_X86 && W == 16
    return (floats)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
#elif PTIR_X86 && W == 8
    return (floats)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
#else
    return sum + x * y;
#endif
}

#if HAS_SCALING
/* x / r, correctly rounded, by multiplication: the divider is five times slower. q is x * (1 / r), with 1 / r in two pieces, so its
 * error is little more than half an ulp. Then x - q r is exact. A quotient of two floats is never so close to the middle between
 * two floats that the last addition rounds wrongly. No intermediate may be subnormal or infinite, so blocks with very small or
 * large elements are divided. */
PTIR_INLINE int has_safe_inverse(float r) { return r >= 0x1p-30f && r <= 0x1p30f; }
PTIR_INLINE floats quotient(floats x, float r, float inverse, float rest)
{
    __m512 a = (__m512)x, b = _mm512_set1_ps(r), high = _mm512_set1_ps(inverse);
    __m512 q = _mm512_fmadd_ps(a, high, _mm512_mul_ps(a, _mm512_set1_ps(rest)));
    return (floats)_mm512_fmadd_ps(_mm512_fnmadd_ps(q, b, a), high, q);
}
#endif
