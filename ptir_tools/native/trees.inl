/* The trees of one dtype: REAL, and NAMED makes its names. */
typedef struct {
    REAL split;
    int32_t feature, next[2];
} NAMED(node);

/* The node after `at`; `asks` is a constant. No step depends on a branch, so that several walks overlap. */
PTIR_INLINE int32_t NAMED(after)(const NAMED(node) *at, const REAL *x, int asks)
{
    if (!asks)
        return at->next[!(x[at->feature] <= at->split)];
    REAL value = x[at->feature & PTIR_TREE_FEATURE];
    int equal = (at->feature & PTIR_TREE_EQUAL) != 0, missing = (at->feature & PTIR_TREE_NAN) != 0;
    int yes = ((value == at->split) | ((value < at->split) & !equal)) | (missing & (value != value));
    return at->next[!yes];
}

/* The leaves of WALKS walks, each from its node `at` with its row. */
PTIR_INLINE void NAMED(walk)(const NAMED(node) *nodes, const REAL *const *x, int32_t *at, int asks)
{
    int32_t here[WALKS], moved;
    memcpy(here, at, sizeof here);
    do {
        moved = 0;
        UNROLLED
        for (int i = 0; i < WALKS; i++) {
            int32_t to = NAMED(after)(nodes + here[i], x[i], asks);
            moved |= to ^ here[i];
            here[i] = to;
        }
    } while (moved);
    memcpy(at, here, sizeof here);
}

/* Add the weights of leaf `at` to a row of the result. */
PTIR_INLINE void NAMED(add)(const ptir_forest *f, REAL *out, int32_t at)
{
    const REAL *weights = f->weights;
    size_t first = (size_t)f->leaves[2 * at], last = (size_t)f->leaves[2 * at + 1];
    if (f->kind == PTIR_SUM && f->whole)
        for (size_t k = 0; k < f->outputs; k++)
            out[k] += weights[first + k];
    else
        for (size_t i = first; i < last; i++) {
            REAL *to = out + f->targets[i], w = weights[i];
            int better = f->kind == PTIR_MAX ? w > *to : w < *to;
            *to = f->kind == PTIR_SUM ? *to + w : *to != *to || better ? w : *to; /* not a number: no weight so far */
        }
}

/* Rows [first, last). The trees are outside, so that one of them stays in cache for many rows. */
PTIR_INLINE void NAMED(rows)(const ptir_forest *f, size_t first, size_t last, int asks)
{
    const NAMED(node) *nodes = f->nodes;
    const REAL *x = f->x, *rows[WALKS];
    REAL *out = f->out;
    int32_t at[WALKS];
    size_t r = first;
    for (size_t t = 0; t < f->trees && last - first >= WALKS; t++)
        for (r = first; r + WALKS <= last; r += WALKS) {
            for (size_t i = 0; i < WALKS; i++)
                rows[i] = x + (ptrdiff_t)(r + i) * f->row, at[i] = f->roots[t];
            NAMED(walk)(nodes, rows, at, asks);
            for (size_t i = 0; i < WALKS; i++)
                NAMED(add)(f, out + (r + i) * f->outputs, at[i]);
        }
    for (; r < last; r++) /* too few rows: several trees at once */
        for (size_t t = 0; t < f->trees; t += WALKS) {
            size_t count = smallest(WALKS, f->trees - t);
            for (size_t i = 0; i < WALKS; i++)
                rows[i] = x + (ptrdiff_t)r * f->row, at[i] = f->roots[t + smallest(i, count - 1)];
            NAMED(walk)(nodes, rows, at, asks);
            for (size_t i = 0; i < count; i++)
                NAMED(add)(f, out + r * f->outputs, at[i]);
        }
}

void NAMED(ptir_trees)(const ptir_forest *f, ptir_watch *watch)
{
    REAL *out = f->out, none = f->kind == PTIR_SUM ? 0 : NAN;
    size_t block = CACHED / (sizeof(REAL) * (f->features + f->outputs)) / WALKS * WALKS;
    block = block < WALKS ? WALKS : block;
    for (size_t first = 0; first < f->rows; first += block) {
        size_t last = smallest(first + block, f->rows), count = (last - first) * f->outputs;
        REAL *made = out + first * f->outputs;
        for (size_t i = 0; i < count; i++)
            made[i] = none;
        if (f->asks)
            NAMED(rows)(f, first, last, 1);
        else
            NAMED(rows)(f, first, last, 0);
        for (size_t i = 0; i < count && f->kind != PTIR_SUM; i++)
            made[i] = made[i] != made[i] ? 0 : made[i];
        if (is_stopped(watch, (last - first) * f->trees * STEPS))
            return;
    }
}
#undef REAL
#undef NAMED
