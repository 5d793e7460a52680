/* Flash attention: softmax(q k^T) v for heads that share one set of keys and values.
 *
 * Scores are computed transposed. A panel of NR rows of q is the right operand of the first product, so each row of scores is one
 * lane of a vector, and the softmax is computed lane by lane. The scores then are the right operand of the product with v, without
 * another packing. KEYS columns of scores are processed at a time. If there are more, the accumulated output is rescaled to the new
 * row maximum after each block. Weights are divided by their sum before the product with v, so that no partial sum exceeds the
 * values.
 *
 * Packed operands: k and v^T in panels of MR rows, q in panels of NR rows. `ptir_isa.attention` is the entry. */

PTIR_INLINE size_t panels(size_t n) { return (n + MR - 1) / MR * MR; }

static size_t attention_scratch(size_t columns, size_t depth, size_t width)
{
    return panels(columns) * depth + panels(width) * columns + NR * depth + (size_t)KEYS * NR + panels(width) * NR + 6 * LINE;
}

static PTIR_NOINLINE void block_of_vectors(float *out, const float *a, const float *b, size_t depth, int add, int vectors)
{
    if (vectors == NRV)
        micro(out, NR, a, b, depth, NR, add, MR, NRV, 0, NULL);
    else if (vectors == 1)
        micro(out, NR, a, b, depth, NR, add, MR, 1, 0, NULL);
    else
        micro(out, NR, a, b, depth, NR, add, MR, 2, 0, NULL);
}

#define WEIGH(kind)                                                                                                    \
    static PTIR_NOINLINE void weigh_##kind(float *s, size_t count, row_state *r, float *out, size_t width)             \
    {                                                                                                                  \
        weigh(s, NR, count, r, out, width, PTIR_##kind);                                                               \
    }
WEIGH(FLOAT)
WEIGH(F16)
WEIGH(BF16)
#undef WEIGH

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

/* The buffers of one panel of rows. `room` is scratch of the program on the scores. */
typedef struct {
    row_panel of;
    const float *keys, *values, *queries;
    float *scores, *out, *room;
} panel;

/* Process the score columns [from, to) of a panel; `from` is the first row of a packed panel of keys. */
static void attend_columns(panel *p, size_t from, size_t to, ptir_watch *watch)
{
    row_panel *r = &p->of;
    const ptir_attention *x = r->x;
    for (size_t j = from, count; j < to; j += count) {
        count = smallest(KEYS, to - j);
        for (size_t i = 0; i < count; i += MR)
            block_of_vectors(p->scores + i * NR, p->keys + (j + i) * x->depth, p->queries, x->depth, 0, r->vectors);
        round_scores(p->scores, count * NR, x->kind);
        if (x->scores)
            ptir_run_scores(x, p->scores, NR, r->head, r->row, r->count, j, count, p->room, watch);
        for (int v = 0; v < r->vectors; v++) {
            float *s = p->scores + v * W, *out = r->is_begun ? p->out + v * W : NULL;
            if (x->kept && (j < r->first || j + count > r->last))
                mask_scores(s, NR, j, count, &r->rows[v], x->low);
            switch (x->kind) {
            case PTIR_FLOAT: weigh_FLOAT(s, count, &r->rows[v], out, x->width); break;
            case PTIR_F16: weigh_F16(s, count, &r->rows[v], out, x->width); break;
            default: weigh_BF16(s, count, &r->rows[v], out, x->width); break;
            }
        }
        for (size_t d = 0; d < x->width; d += MR)
            block_of_vectors(p->out + d * NR, p->values + d * x->columns + j * MR, p->scores, count, r->is_begun, r->vectors);
        r->is_begun = 1;
    }
}

/* Transpose the result back into rows. A row whose weights are all 0 (all its scores are -inf) becomes NaN. */
static void write_rows(const panel *p)
{
    const row_panel *r = &p->of;
    const ptir_attention *x = r->x;
    float *out = (float *)x->out + (ptrdiff_t)r->head * x->out_head + (ptrdiff_t)r->row * x->out_row;
    for (int v = 0; v < r->vectors; v++)
        for (size_t d = 0; is_any(r->rows[v].sum == 0.0f) && d < x->width; d++)
            put(p->out + d * NR + v * W, pick(r->rows[v].sum == 0.0f, all(NAN), VECTOR(p->out + d * NR, v)));
    size_t tall = r->count / SIDE * SIDE, wide = x->width / SIDE * SIDE;
    for (size_t i = 0; i < tall; i += SIDE)
        for (size_t d = 0; d < wide; d += SIDE)
            transpose8(out + (ptrdiff_t)i * x->out_row + (ptrdiff_t)d, x->out_row, p->out + d * NR + i, NR);
    for (size_t i = 0; i < r->count; i++)
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
            panel p = {.of = new_panel(x, head, row), .keys = keys, .values = values, .queries = queries, .scores = scores, .out = out,
                       .room = room};
            size_t from = 0, to = x->columns;
            if (x->kept)
                find_kept(&p.of, &from, &to, MR);
            pack(queries, (const float *)x->q.data + (ptrdiff_t)head * x->q.batch + (ptrdiff_t)row * x->q.rows, x->q.rows, x->q.columns,
                 p.of.count, x->depth, NR);
            attend_columns(&p, from, to, watch);
            if (from < to && !(may_skip && is_far(&p.of))) {
                attend_columns(&p, 0, from, watch);
                attend_columns(&p, to, x->columns, watch);
            } else if (from >= to)
                attend_columns(&p, 0, x->columns, watch);
            write_rows(&p);
            if (is_stopped(watch, p.of.count * (to - smallest(from, to)) * (x->depth + x->width)))
                return;
        }
}
