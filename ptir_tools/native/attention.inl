/* Attention: softmax(q k^T) v, for the rows of some heads that have their keys and values in common.
 *
 * Everything is turned: a panel of NR rows of q is the right operand, so that the scores of a row are a column, and what is done with
 * them goes down the columns of one vector. Scores are then the right operand of the product with v as they are. Columns of the
 * scores are in work KEYS at a time; where there are more, the sums so far are scaled to the new maximum (flash attention). Weights
 * are divided by their sum before the product, so that no sum is larger than the values. */

enum { KEYS = 512 };

PTIR_INLINE size_t panels(size_t n) { return (n + MR - 1) / MR * MR; }

static size_t attention_scratch(size_t columns, size_t depth, size_t width)
{
    return panels(columns) * depth + panels(width) * columns + NR * depth + (size_t)KEYS * NR + panels(width) * NR + 6 * LINE;
}

static PTIR_APART void block_of_vectors(float *out, const float *a, const float *b, size_t depth, int add, int vectors)
{
    if (vectors == NRV)
        micro(out, NR, a, b, depth, NR, add, MR, NRV, 0, NULL);
    else if (vectors == 1)
        micro(out, NR, a, b, depth, NR, add, MR, 1, 0, NULL);
    else
        micro(out, NR, a, b, depth, NR, add, MR, 2, 0, NULL);
}

PTIR_INLINE floats nearest(floats x, int kind)
{
    return kind == PTIR_F16 ? nearest_f16(x) : kind == PTIR_BF16 ? nearest_bf16(x) : x;
}

/* What is known of W rows: the largest score, and the sum of the weights, so far; the columns that are kept. */
typedef struct {
    floats most, sum;
    ints first, last;
} row_state;

/* Scores of W rows to weights, `count` columns that are NR floats apart; what `out` has of the `width` columns before is scaled. */
PTIR_INLINE void weigh(float *s, size_t count, row_state *r, float *out, size_t width, int kind)
{
    enum { CHAINS = 4 };
    floats most[CHAINS], sum[CHAINS];
    size_t j;
    for (int c = 0; c < CHAINS; c++)
        most[c] = all(-INFINITY), sum[c] = all(0.0f);
    for (j = 0; j + CHAINS <= count; j += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            most[c] = larger(VECTOR(s + (j + c) * NR, 0), most[c]);
    for (; j < count; j++)
        most[0] = larger(VECTOR(s + j * NR, 0), most[0]);
    floats before = r->most, top = larger(before, larger(larger(most[0], most[1]), larger(most[2], most[3])));
    floats shift = pick(top == -INFINITY, all(0.0f), top); /* where all is masked so far */
#define WEIGHT(c, at)                                                                                                  \
    {                                                                                                                  \
        floats e = nearest(any_exp(nearest(VECTOR(s + (at) * NR, 0) - shift, kind)), kind);                            \
        put(s + (at) * NR, e);                                                                                         \
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
        floats e = VECTOR(s + j * NR, 0);
        if (kind == PTIR_FLOAT)
            put(s + j * NR, e * inverse);
        else
            put(s + j * NR, nearest(pick(total == 0.0f, e, e / divisor), kind));
    }
    for (size_t d = 0; out && d < width; d++)
        put(out + d * NR, VECTOR(out + d * NR, 0) * (old * inverse));
    r->most = top, r->sum = total;
}

#define WEIGH(kind)                                                                                                    \
    static PTIR_APART void weigh_##kind(float *s, size_t count, row_state *r, float *out, size_t width)                \
    {                                                                                                                  \
        weigh(s, count, r, out, width, PTIR_##kind);                                                                   \
    }
WEIGH(FLOAT)
WEIGH(F16)
WEIGH(BF16)
#undef WEIGH

/* Scores of columns from `column` on that are not kept are replaced. */
static void mask_scores(float *s, size_t column, size_t count, const row_state *r, float low)
{
    for (size_t j = 0; j < count; j++) {
        ints at = (ints){0} + (int32_t)(column + j);
        put(s + j * NR, pick((at >= r->first) & (at < r->last), VECTOR(s + j * NR, 0), all(low)));
    }
}

static void round_scores(float *s, size_t n, int kind)
{
    for (size_t i = 0; kind != PTIR_FLOAT && i < n; i += W)
        put(s + i, kind == PTIR_F16 ? nearest_f16(VECTOR(s + i, 0)) : nearest_bf16(VECTOR(s + i, 0)));
}

static int is_finite(const float *x, size_t n)
{
    ints found = {0};
    size_t i = 0;
    for (; i + W <= n; i += W)
        found |= ~(absolute(VECTOR(x + i, 0)) < INFINITY);
    for (; i < n; i++)
        found[0] |= -!(x[i] - x[i] == 0.0f);
    return !is_any(found);
}

/* What one panel of rows works with. */
typedef struct {
    const ptir_attention *x;
    const float *keys, *values, *queries;
    float *scores, *out, *room;
    row_state rows[NRV];
    size_t head, row, count; /* of the rows */
    size_t first, last;      /* columns that all rows keep */
    int vectors, is_begun;
} panel;

/* Columns [from, to) of a panel; `from` begins a panel of keys. */
static void attend_columns(panel *p, size_t from, size_t to, ptir_watch *watch)
{
    const ptir_attention *x = p->x;
    for (size_t j = from, count; j < to; j += count) {
        count = smallest(KEYS, to - j);
        for (size_t i = 0; i < count; i += MR)
            block_of_vectors(p->scores + i * NR, p->keys + (j + i) * x->depth, p->queries, x->depth, 0, p->vectors);
        round_scores(p->scores, count * NR, x->kind);
        if (x->scores)
            ptir_run_scores(x, p->scores, NR, p->head, p->row, p->count, j, count, p->room, watch);
        for (int v = 0; v < p->vectors; v++) {
            float *s = p->scores + v * W, *out = p->is_begun ? p->out + v * W : NULL;
            if (x->kept && (j < p->first || j + count > p->last))
                mask_scores(s, j, count, &p->rows[v], x->low);
            switch (x->kind) {
            case PTIR_FLOAT: weigh_FLOAT(s, count, &p->rows[v], out, x->width); break;
            case PTIR_F16: weigh_F16(s, count, &p->rows[v], out, x->width); break;
            default: weigh_BF16(s, count, &p->rows[v], out, x->width); break;
            }
        }
        for (size_t d = 0; d < x->width; d += MR)
            block_of_vectors(p->out + d * NR, p->values + d * x->columns + j * MR, p->scores, count, p->is_begun, p->vectors);
        p->is_begun = 1;
    }
}

/* The columns that some row of a panel keeps, from the first to the last; and those that all keep. */
static void find_kept(panel *p, size_t *from, size_t *to)
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
    *from = *from / MR * MR, *to = smallest(panels(*to), p->x->columns);
}

/* Whether columns that no row keeps weigh exactly 0: all rows have a score that is far above what masks. */
static int is_far(const panel *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (!(p->rows[i / W].most[i % W] >= p->x->low + 128.0f)) /* e^-128 is 0 in f32 */
            return 0;
    return 1;
}

/* The turned result to its rows. Without any weight, as when all scores are -inf, it is NaN. */
static void write_rows(const panel *p)
{
    const ptir_attention *x = p->x;
    float *out = x->out + (ptrdiff_t)p->head * x->out_head + (ptrdiff_t)p->row * x->out_row;
    for (int v = 0; v < p->vectors; v++)
        for (size_t d = 0; is_any(p->rows[v].sum == 0.0f) && d < x->width; d++)
            put(p->out + d * NR + v * W, pick(p->rows[v].sum == 0.0f, all(NAN), VECTOR(p->out + d * NR, v)));
    size_t tall = p->count / SIDE * SIDE, wide = x->width / SIDE * SIDE;
    for (size_t i = 0; i < tall; i += SIDE)
        for (size_t d = 0; d < wide; d += SIDE)
            turn8(out + (ptrdiff_t)i * x->out_row + (ptrdiff_t)d, x->out_row, p->out + d * NR + i, NR);
    for (size_t i = 0; i < p->count; i++)
        for (size_t d = i < tall ? wide : 0; d < x->width; d++)
            out[(ptrdiff_t)i * x->out_row + (ptrdiff_t)d] = p->out[d * NR + i];
}

static void attention(const ptir_attention *x, float *scratch, ptir_watch *watch)
{
    float *keys = at_line(scratch), *values = at_line(keys + panels(x->columns) * x->depth);
    float *queries = at_line(values + panels(x->width) * x->columns), *scores = at_line(queries + NR * x->depth);
    float *out = at_line(scores + (size_t)KEYS * NR), *room = at_line(out + panels(x->width) * NR);
    pack(keys, x->k.data, x->k.rows, x->k.columns, x->columns, x->depth, MR);
    pack(values, x->v.data, x->v.columns, x->v.rows, x->width, x->columns, MR);
    int may_skip = x->kept && is_finite(values, panels(x->width) * x->columns);
    for (size_t head = 0; head < x->heads; head++)
        for (size_t row = 0; row < x->rows; row += NR) {
            panel p = {.x = x, .keys = keys, .values = values, .queries = queries, .scores = scores, .out = out, .room = room,
                       .head = head, .row = row, .count = smallest(NR, x->rows - row)};
            size_t from = 0, to = x->columns;
            p.vectors = (int)((p.count + W - 1) / W);
            for (int v = 0; v < NRV; v++)
                p.rows[v].most = all(-INFINITY), p.rows[v].sum = all(0.0f);
            if (x->kept)
                find_kept(&p, &from, &to);
            pack(queries, x->q.data + (ptrdiff_t)head * x->q.batch + (ptrdiff_t)row * x->q.rows, x->q.rows, x->q.columns, p.count,
                 x->depth, NR);
            attend_columns(&p, from, to, watch);
            if (from < to && !(may_skip && is_far(&p))) {
                attend_columns(&p, 0, from, watch);
                attend_columns(&p, to, x->columns, watch);
            } else if (from >= to)
                attend_columns(&p, 0, x->columns, watch);
            write_rows(&p);
            if (is_stopped(watch, p.count * (to - smallest(from, to)) * (x->depth + x->width)))
                return;
        }
}
