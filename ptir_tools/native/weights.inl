/* The softmax of attention on transposed scores: lane i of a vector is row i, and each of the W rows has its own maximum and
 * sum. */

enum { KEYS = 512 }; /* columns of scores processed at a time */

PTIR_INLINE floats nearest(floats x, int kind)
{
    return kind == PTIR_F16 ? nearest_f16(x) : kind == PTIR_BF16 ? nearest_bf16(x) : x;
}

/* Running state of W rows: the largest score and the sum of the weights; the range of columns that the mask keeps. */
typedef struct {
    floats most, sum;
    ints first, last;
} row_state;

/* Convert `count` columns of scores of W rows, `step` floats apart, to weights. The `width` accumulated columns of `out` are
 * rescaled. */
PTIR_INLINE void weigh(float *s, size_t step, size_t count, row_state *r, float *out, size_t width, int kind)
{
    enum { CHAINS = 4 };
    floats most[CHAINS], sum[CHAINS];
    size_t j;
    for (int c = 0; c < CHAINS; c++)
        most[c] = all(-INFINITY), sum[c] = all(0.0f);
    for (j = 0; j + CHAINS <= count; j += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            most[c] = larger_value(VECTOR(s + (j + c) * step, 0), most[c]);
    for (; j < count; j++)
        most[0] = larger_value(VECTOR(s + j * step, 0), most[0]);
    floats before = r->most, top = larger_value(before, larger_value(larger_value(most[0], most[1]), larger_value(most[2], most[3])));
    floats shift = pick(top == -INFINITY, all(0.0f), top); /* if all scores are masked so far */
#define WEIGHT(c, at)                                                                                                  \
    {                                                                                                                  \
        floats e = nearest(any_exp(nearest(VECTOR(s + (at) * step, 0) - shift, kind)), kind);                          \
        put(s + (at) * step, e);                                                                                       \
        sum[c] += e;                                                                                                   \
    }
    for (j = 0; j + CHAINS <= count; j += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            WEIGHT(c, j + c)
    for (; j < count; j++)
        WEIGHT(0, j)
#undef WEIGHT
    floats old = r->sum * any_exp(before - shift), total = old + ((sum[0] + sum[1]) + (sum[2] + sum[3]));
    floats inverse = pick(total == 0.0f, all(0.0f), 1.0f / total), divisor = nearest(total, kind);
    for (j = 0; j < count; j++) {
        floats e = VECTOR(s + j * step, 0);
        if (kind == PTIR_FLOAT)
            put(s + j * step, e * inverse);
        else
            put(s + j * step, nearest(pick(total == 0.0f, e, e / divisor), kind));
    }
    for (size_t d = 0; out && d < width; d++)
        put(out + d * step, VECTOR(out + d * step, 0) * (old * inverse));
    r->most = top, r->sum = total;
}

/* Replace the scores of masked columns, from `column` on, by `low`. */
PTIR_INLINE void mask_scores(float *s, size_t step, size_t column, size_t count, const row_state *r, float low)
{
    for (size_t j = 0; j < count; j++) {
        ints at = (ints){0} + (int32_t)(column + j);
        put(s + j * step, pick((at >= r->first) & (at < r->last), VECTOR(s + j * step, 0), all(low)));
    }
}

/* A panel of rows of one head. */
typedef struct {
    const ptir_attention *x;
    row_state rows[NRV];
    size_t head, row, count; /* of the rows */
    size_t first, last;      /* columns that the mask keeps in all rows */
    int vectors, is_begun;
} row_panel;

/* The initial state of a panel. */
PTIR_INLINE row_panel new_panel(const ptir_attention *x, size_t head, size_t row)
{
    row_panel p = {.x = x, .head = head, .row = row, .count = smallest(NR, x->rows - row), .last = x->columns};
    p.vectors = (int)((p.count + W - 1) / W);
    for (int v = 0; v < NRV; v++)
        p.rows[v].most = all(-INFINITY), p.rows[v].sum = all(0.0f);
    return p;
}

/* The columns that some row of a panel keeps, [from, to) rounded to multiples of `whole`; and those that all rows keep. */
static void find_kept(row_panel *p, size_t *from, size_t *to, size_t whole)
{
    int32_t first[NR] = {0}, last[NR] = {0};
    const int32_t *kept = p->x->kept + 2 * p->row;
    *from = p->x->columns, *to = p->first = 0, p->last = p->x->columns;
    for (size_t i = 0; i < p->count; i++) {
        first[i] = kept[2 * i], last[i] = kept[2 * i + 1];
        if (first[i] < last[i]) {
            *from = smallest(*from, (size_t)first[i]);
            *to = (size_t)last[i] > *to ? (size_t)last[i] : *to;
        }
        p->first = (size_t)first[i] > p->first ? (size_t)first[i] : p->first;
        p->last = smallest(p->last, (size_t)last[i]);
    }
    for (int v = 0; v < NRV; v++)
        p->rows[v].first = *(const ints *)(first + v * W), p->rows[v].last = *(const ints *)(last + v * W);
    *from = *from / whole * whole, *to = smallest((*to + whole - 1) / whole * whole, p->x->columns);
}

/* Whether columns that no row keeps have weight exactly 0: in every row the largest score is far above `low`. */
static int is_far(const row_panel *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (!(p->rows[i / W].most[i % W] >= p->x->low + 128.0f)) /* e^-128 is 0 in f32 */
            return 0;
    return 1;
}
