/* Interpreter of tile programs: runs a phase on one row. The accumulator, 64 floats, stays in vector registers between
 * instructions. */

/* The accumulator is LANES / W separate variables: an array would be kept in memory. For rows of up to SHORT floats, only the first
 * SHORT / W of them are computed. */
enum { SHORT = 16 };
#if W == 4
#define FIRST_OF(DO, value) DO(0, value) DO(1, value) DO(2, value) DO(3, value)
#define REST_OF(DO, value)                                                                                             \
    DO(4, value) DO(5, value) DO(6, value) DO(7, value) DO(8, value) DO(9, value)                                      \
    DO(10, value) DO(11, value) DO(12, value) DO(13, value) DO(14, value) DO(15, value)
#elif W == 8
#define FIRST_OF(DO, value) DO(0, value) DO(1, value)
#define REST_OF(DO, value) DO(2, value) DO(3, value) DO(4, value) DO(5, value) DO(6, value) DO(7, value)
#else
#define FIRST_OF(DO, value) DO(0, value)
#define REST_OF(DO, value) DO(1, value) DO(2, value) DO(3, value)
#endif
#define ALL_OF(DO, value)                                                                                              \
    {                                                                                                                  \
        FIRST_OF(DO, value)                                                                                            \
        if (n > SHORT) {                                                                                               \
            REST_OF(DO, value)                                                                                         \
        }                                                                                                              \
    }
#define EACH(value) ALL_OF(ONE_OF, value)
#define ONE_OF(k, value)                                                                                               \
    {                                                                                                                  \
        floats x = a##k;                                                                                               \
        (void)x;                                                                                                       \
        a##k = (value);                                                                                                \
    }

#define UNARY(name, value)                                                                                             \
    case PTIR_##name: EACH(value) break;

/* If all arguments are in the range of the fast version, use it; if one is not, use the version for any argument. */
#define GUARDED(name, in_range, fast, any)                                                                             \
    case PTIR_##name: {                                                                                                \
        ints all_in_range = in_range(a0);                                                                              \
        EACH((all_in_range &= in_range(x), x))                                                                         \
        if (is_any(~all_in_range))                                                                                     \
            EACH(any(x))                                                                                               \
        else                                                                                                           \
            EACH(fast(x))                                                                                              \
        break;                                                                                                         \
    }

/* The second operand is a row of floats, or one float (REPEATED). */
#define BINARY(name, value)                                                                                            \
    case PTIR_##name: {                                                                                                \
        const float *p = along(&in->first, at, n, spare[0]);                                                           \
        ALL_OF(PAIR, value)                                                                                            \
        break;                                                                                                         \
    }                                                                                                                  \
    case PTIR_##name + REPEATED: {                                                                                     \
        floats y = all(*in->first.at);                                                                                 \
        EACH(value)                                                                                                    \
        break;                                                                                                         \
    }
#define PAIR(k, value)                                                                                                 \
    {                                                                                                                  \
        floats x = a##k, y = VECTOR(p, k);                                                                             \
        (void)x;                                                                                                       \
        a##k = (value);                                                                                                \
    }

#define TERNARY(name, value)                                                                                           \
    case PTIR_##name: {                                                                                                \
        const float *p = along(&in->first, at, n, spare[0]), *q = along(&in->second, at, n, spare[1]);                 \
        ALL_OF(THREE, value)                                                                                           \
        break;                                                                                                         \
    }
#define THREE(k, value)                                                                                                \
    {                                                                                                                  \
        floats x = a##k, y = in->first.is_one ? all(*p) : VECTOR(p, k), z = in->second.is_one ? all(*q) : VECTOR(q, k); \
        a##k = (value);                                                                                                \
    }

/* Store the accumulator. */
#define PUT(p)                                                                                                         \
    {                                                                                                                  \
        floats *to = (floats *)(p);                                                                                    \
        FIRST_OF(PUT_ONE, ) REST_OF(PUT_ONE, )                                                                         \
    }
#define PUT_ONE(k, value) to[k] = a##k;
#define STREAM_ONE(k, value) stream(to + W * k, a##k);

/* Combine the two halves of the accumulator, then the result with the partial results so far. Lanes beyond the end of the row hold
 * the identity of the operation. */
#define REDUCE(op)                                                                                                     \
    case op: {                                                                                                         \
        floats *s = (floats *)in->second.at;                                                                           \
        if (n < LANES) {                                                                                               \
            PUT(spare[1])                                                                                              \
            fill(spare[0], LANES, identity(op));                                                                       \
            copy(spare[0], spare[1], n);                                                                               \
            for (int i = 0; i < SUMS / W; i++)                                                                         \
                s[i] = combine(op, s[i], combine(op, VECTOR(spare[0], i), VECTOR(spare[0] + SUMS, i)));                \
        } else {                                                                                                       \
            HALVES_OF(SUM_HALVES, op)                                                                                  \
        }                                                                                                              \
        break;                                                                                                         \
    }

#define SUM_HALVES(op, k, l) s[k] = combine(op, s[k], combine(op, a##k, a##l));
#if W == 4
#define HALVES_OF(DO, op)                                                                                              \
    DO(op, 0, 8) DO(op, 1, 9) DO(op, 2, 10) DO(op, 3, 11) DO(op, 4, 12) DO(op, 5, 13) DO(op, 6, 14) DO(op, 7, 15)
#elif W == 8
#define HALVES_OF(DO, op) DO(op, 0, 4) DO(op, 1, 5) DO(op, 2, 6) DO(op, 3, 7)
#else
#define HALVES_OF(DO, op) DO(op, 0, 2) DO(op, 1, 3)
#endif

PTIR_INLINE void fill(float *to, size_t n, float x)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i += W)
        *(floats *)(to + i) = all(x);
}

/* Without a loop over single floats: compilers replace such loops by calls of memcpy. */
PTIR_INLINE void copy(float *to, const float *from, size_t n)
{
    for (; n >= W; n -= W, to += W, from += W)
        *(floats *)to = VECTOR(from, 0);
    if (W > 8 && n & 8) {
        __builtin_memcpy(to, from, 8 * sizeof *to);
        to += 8, from += 8;
    }
    if (W > 4 && n & 4) {
        __builtin_memcpy(to, from, 4 * sizeof *to);
        to += 4, from += 4;
    }
    if (n & 2) {
        __builtin_memcpy(to, from, 2 * sizeof *to);
        to += 2, from += 2;
    }
    if (n & 1)
        *to = *from;
}

/* The address of an operand from column `at` on. In the tail of a row it is a copy in `spare`, because whole vectors are read. */
PTIR_INLINE const float *along(const ptir_operand *x, size_t at, size_t n, float *spare)
{
    const float *p = x->at + (at & x->moves);
    if (__builtin_expect(n == LANES || n == SHORT || !x->moves, 1))
        return p;
    copy(spare, p, n);
    return spare;
}

/* Reduce the SUMS partial results to one by repeated halving. */
PTIR_INLINE float reduce_partials(unsigned op, const float *s)
{
    floats v[SUMS / W];
    for (int i = 0; i < SUMS / W; i++)
        v[i] = VECTOR(s, i);
    for (int n = SUMS / W / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            v[i] = combine(op, v[i], v[i + n]);
    if (W > 8)
        v[0] = combine(op, v[0], FROM(v[0], 8));
    if (W > 4)
        v[0] = combine(op, v[0], FROM(v[0], 4));
    v[0] = combine(op, v[0], FROM(v[0], 2));
    return combine(op, v[0], FROM(v[0], 1))[0];
}

/* Set the partial results of all reductions to the identity, before a row. */
PTIR_INLINE void begin(const ptir_phase *f)
{
    for (const ptir_ready *in = f->code + f->reduces; in < f->code + f->length; in++)
        if (ptir_is_reduction(in->op))
            fill(in->second.at, SUMS, identity(in->op));
}

/* Store the results of all reductions, after a row. */
PTIR_INLINE void finish(const ptir_phase *f)
{
    for (const ptir_ready *in = f->code + f->reduces; in < f->code + f->length; in++)
        switch (in->op) {
        case PTIR_reduce_sum: *in->first.at = reduce_partials(PTIR_reduce_sum, in->second.at); break;
        case PTIR_reduce_max: *in->first.at = reduce_partials(PTIR_reduce_max, in->second.at); break;
        case PTIR_reduce_min: *in->first.at = reduce_partials(PTIR_reduce_min, in->second.at); break;
        }
}

/* Move the operands by `rows` rows. */
PTIR_INLINE void advance(const ptir_phase *f, ptrdiff_t rows)
{
    for (ptir_ready *in = f->code; in < f->code + f->length; in++) {
        in->first.at += rows * in->first.next;
        in->second.at += rows * in->second.next;
    }
}

/* Run `code` on columns [from, columns) of one row. */
PTIR_INLINE void run(const ptir_ready *code, size_t length, size_t from, size_t columns, float (*spare)[LANES])
{
#define BEGIN(k, value) floats a##k = {0};
    FIRST_OF(BEGIN, ) REST_OF(BEGIN, )
#undef BEGIN
    for (size_t at = from; at < columns; at += LANES) {
        size_t n = smallest(LANES, columns - at);
        for (const ptir_ready *in = code; in < code + length; in++)
            switch (in->op) {
                BINARY(load, y)
                BINARY(add, x + y)
                BINARY(sub, x - y)
                BINARY(mul, x * y)
                BINARY(div, x / y)
                BINARY(reverse_sub, y - x)
                BINARY(reverse_div, y / x)
                BINARY(maximum, larger(x, y))
                BINARY(minimum, smaller(x, y))
                BINARY(compare_lt, one_where(x < y))
                BINARY(compare_le, one_where(x <= y))
                BINARY(compare_eq, one_where(x == y))
                BINARY(compare_ge, one_where(x >= y))
                BINARY(compare_gt, one_where(x > y))
                BINARY(compare_ne, one_where(x != y))
                UNARY(neg, -x)
                UNARY(abs, absolute(x))
                UNARY(tanh, quick_tanh(x))
                UNARY(erf, quick_erf(x))
                UNARY(reciprocal, 1.0f / x)
                UNARY(rsqrt, inverse_root(x))
                UNARY(round_even, round_even(x))
                UNARY(nearest_f16, nearest_f16(x))
                UNARY(nearest_bf16, nearest_bf16(x))
                UNARY(nearest_si8, truncated_between(x, -128.0f, 127.0f))
                UNARY(nearest_ui8, truncated_between(x, 0.0f, 255.0f))
#if HAS_SCALING
                UNARY(exp, any_exp(x))
#else
                GUARDED(exp, is_near, near_exp, any_exp)
#endif
                GUARDED(log, is_normal, near_log, any_log)
                TERNARY(select, pick(x != 0.0f, y, z))
                TERNARY(clamp, smaller(larger(x, y), z))
                REDUCE(PTIR_reduce_sum)
                REDUCE(PTIR_reduce_max)
                REDUCE(PTIR_reduce_min)
            case PTIR_store:
                if (n < LANES && in->first.moves) {
                    PUT(spare[0])
                    copy(in->first.at + at, spare[0], n);
                } else if (is_streamed(&in->first)) {
                    float *to = in->first.at + at;
                    FIRST_OF(STREAM_ONE, ) REST_OF(STREAM_ONE, )
                } else
                    PUT(in->first.at + (at & in->first.moves))
                break;
            default: __builtin_unreachable();
            }
    }
}

/* Run a phase on all its rows. The operands are moved from row to row and back at the end. */
static void chain(const ptir_phase *f)
{
    float spare[2][LANES];
    fill(spare[0], LANES, 0.0f);
    fill(spare[1], LANES, 0.0f);
    for (size_t row = 0; row < f->rows; row++) {
        if (row)
            advance(f, 1);
        begin(f);
        size_t done = f->known == UNKNOWN ? 0 : f->columns / LANES * LANES;
        run_known(f->known, f->code, f->rows, done);
        if (done < f->columns)
            run(f->code, f->length, done, f->columns, spare);
        finish(f);
    }
    if (f->rows > 1)
        advance(f, 1 - (ptrdiff_t)f->rows);
}
