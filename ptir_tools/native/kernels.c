/* Runs a tile program: splits the domain into tiles, assigns memory to the registers of a tile, and runs the phases on it. */
#include "chain.h"
#include "isa.h"
#include "phases.h"
#include <time.h>

int ptir_is_due(ptir_watch *w)
{
#ifdef CLOCK_MONOTONIC
    const int64_t second = 1000000000, often = second / 20;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t now = t.tv_sec * second + t.tv_nsec, before = w->asked;
    if (before && now - before < often)
        return 0;
    w->asked = now;
    return before != 0;
#else
    (void)w;
    return 1;
#endif
}

enum { BROAD = 128 }; /* from so many columns on, rows may be used in place even if there are gaps between them */

enum { AT_ONCE = 16 };

static size_t rounded(size_t floats) { return (floats + AT_ONCE - 1) / AT_ONCE * AT_ONCE; }

/* Rows and columns of a full tile. */
static void tile_shape(const ptir_program *p, size_t *rows, size_t *columns)
{
    *columns = p->whole_rows ? p->columns : smallest(p->columns, PTIR_TILE);
    *rows = *columns ? smallest(p->rows, *columns < PTIR_TILE ? PTIR_TILE / *columns : 1) : 1;
}

/* The floats of one register. */
static size_t register_floats(uint8_t kind, size_t rows, size_t columns)
{
    return kind == PTIR_LOCAL ? LANES : rounded(kind == PTIR_FULL ? rows * columns : rows);
}

size_t ptir_scratch(const ptir_program *p)
{
    size_t tall, wide, floats = 0;
    tile_shape(p, &tall, &wide);
    for (size_t i = 0; i < p->register_count; i++)
        floats += register_floats(p->kinds[i], tall, wide);
    return floats;
}

/* The registers of a tile of `rows` x `columns`: address and row stride of each. */
typedef struct {
    float *at[PTIR_REGISTERS];
    ptrdiff_t step[PTIR_REGISTERS];
    size_t rows, columns;
} tile;

/* Byte offset of element (row, column) of an array. */
static ptrdiff_t offset_of(const ptir_array *x, size_t row, size_t column)
{
    return ((ptrdiff_t)row * x->rows + (ptrdiff_t)column * x->columns) * ptir_bytes_of(x->kind);
}

/* Whether a register can be the memory of its array, without a copy. */
static int is_direct(const ptir_array *x, const tile *t)
{
    int in_order = t->rows == 1 || x->rows == (ptrdiff_t)t->columns || t->columns >= BROAD;
    if (x->kind != PTIR_FLOAT || (x->is_output && !x->is_direct))
        return 0;
    return x->per_row ? x->rows == 1 || (x->rows == 0 && !x->is_output) : x->columns == 1 && in_order;
}

/* Copy a tile of an array into a register. With `is_far`, also prefetch the same amount of memory after it, which mostly is the
 * next tile. */
static void load(const ptir_array *x, float *to, const tile *t, size_t row, size_t column, int is_far)
{
    enum { LINE = 64 };
    const char *from = (const char *)x->data + offset_of(x, row, column);
    const size_t n = x->per_row ? 1 : t->columns, size = t->rows * n * (size_t)ptir_bytes_of(x->kind);
    for (size_t i = 0; is_far && x->columns == 1 && i < size; i += LINE)
        ptir_prefetch(from + size + i);
    for (size_t r = 0; r < t->rows; r++, from += offset_of(x, 1, 0), to += n)
        ptir_isa_in_use()->load(to, from, x->columns, n, x->kind);
}

static void store(const ptir_array *x, const float *from, const tile *t, size_t row, size_t column)
{
    char *to = (char *)x->data + offset_of(x, row, column);
    size_t n = x->per_row ? 1 : t->columns;
    for (size_t r = 0; r < t->rows; r++, from += n, to += offset_of(x, 1, 0))
        ptir_isa_in_use()->store(to, from, n, x->kind);
}

/* Assign memory to the registers for the tile at (row, column). */
static void find_registers(const ptir_program *p, tile *t, float *scratch, size_t row, size_t column)
{
    size_t tall, wide;
    tile_shape(p, &tall, &wide);
    for (size_t i = 0; i < p->register_count; i++) {
        const ptir_array *x = i < p->array_count ? &p->arrays[i] : NULL;
        t->at[i] = scratch;
        t->step[i] = p->kinds[i] == PTIR_FULL ? (ptrdiff_t)t->columns : !x || x->rows != 0;
        if (x && is_direct(x, t)) {
            t->at[i] = (float *)((char *)x->data + offset_of(x, row, column));
            t->step[i] = x->rows;
        }
        scratch += register_floats(p->kinds[i], tall, wide);
    }
}

/* Load the inputs that cannot be used in place. `again`: the tile before had the same columns, so inputs that are the same for all
 * rows are already loaded. */
static void load_inputs(const ptir_program *p, const tile *t, size_t row, size_t column, int again)
{
    enum { FAR = 1 << 19 }; /* elements that exceed the caches of a core; below that size a prefetch would cost a tenth of the time */
    for (size_t i = 0; i < p->array_count; i++) {
        const ptir_array *x = &p->arrays[i];
        if (!x->is_output && !is_direct(x, t) && !(again && x->rows == 0))
            load(x, t->at[i], t, row, column, p->rows * p->columns >= FAR);
    }
}

static void store_outputs(const ptir_program *p, const tile *t, size_t row, size_t column)
{
    for (size_t i = 0; i < p->array_count; i++)
        if (p->arrays[i].is_output && !is_direct(&p->arrays[i], t))
            store(&p->arrays[i], t->at[i], t, row, column);
}

/* A phase of a program. */
typedef struct {
    const ptir_instruction *code;
    size_t length;
    int on_rows, known;
} phase;

/* Split a program into phases; returns their number. */
static size_t find_phases(phase *found, const ptir_program *p)
{
    size_t count = 0;
    for (size_t i = 0; i < p->length; count++) {
        phase f = {.code = p->code + i + 1, .on_rows = p->code[i].op == PTIR_on_rows};
        for (i++; i < p->length && p->code[i].op < PTIR_on_elements; i++)
            f.length++;
        f.known = f.on_rows ? UNKNOWN : ptir_known_phase(f.code, f.length, p->kinds);
        found[count] = f;
    }
    return count;
}

/* Resolve register r to an operand. In a phase on rows, the registers with one float per row are seen as one row. */
static inline void resolve(ptir_operand *to, const ptir_program *p, const tile *t, uint8_t r, int on_rows)
{
    uint8_t kind = p->kinds[r];
    int moves = on_rows ? kind == PTIR_ROWS && t->step[r] == 1 : kind == PTIR_FULL;
    to->at = t->at[r];
    to->next = kind == PTIR_LOCAL ? 0 : t->step[r];
    to->moves = moves ? ~(size_t)0 : 0;
    to->is_one = kind == PTIR_ROWS && !moves;
    to->is_array = r < p->array_count && is_direct(&p->arrays[r], t);
    to->streams = to->is_array && p->arrays[r].streams;
}

/* Whether the rows of a phase can be processed as one long row: every operand is contiguous or constant, and nothing is reduced. */
static int is_flat(const ptir_program *p, const tile *t, const phase *f)
{
    for (size_t i = 0; i < f->length; i++)
        for (int k = 0; k < ptir_registers_of(f->code[i].op); k++) {
            uint8_t r = k ? f->code[i].b : f->code[i].a, kind = p->kinds[r];
            ptrdiff_t step = kind == PTIR_FULL ? (ptrdiff_t)t->columns : 0;
            if (ptir_is_reduction(f->code[i].op) || (kind != PTIR_LOCAL && t->step[r] != step))
                return 0;
        }
    return 1;
}

static ptir_phase prepared(ptir_ready *code, float (*sums)[SUMS], const ptir_program *p, const tile *t, const phase *f)
{
    static const ptir_operand none;
    ptir_phase ready = {.code = code, .length = f->length, .reduces = f->length, .known = f->known};
    for (size_t i = 0; i < f->length; i++) {
        const ptir_instruction *in = &f->code[i];
        ptir_ready *made = &code[i];
        int count = ptir_registers_of(in->op);
        made->op = in->op;
        made->first = made->second = none;
        if (count)
            resolve(&made->first, p, t, in->a, f->on_rows);
        if (count == 2)
            resolve(&made->second, p, t, in->b, f->on_rows);
        if (ptir_is_reduction(in->op))
            made->second.at = sums[in->b], ready.reduces = smallest(ready.reduces, i);
        if (in->op <= PTIR_compare_ne && made->first.is_one)
            made->op += REPEATED;
    }
    ready.rows = t->rows, ready.columns = t->columns;
    if (f->on_rows)
        ready.rows = 1, ready.columns = t->rows, ready.known = UNKNOWN;
    else if (is_flat(p, t, f))
        ready.rows = 1, ready.columns = t->rows * t->columns;
    return ready;
}

/* Rows of a tile whose rows are broad: AT_ONCE, if each element is used once and in place, so that per-tile work is shared by
 * several rows; else 1. Registers with one float per row have room for AT_ONCE rows anyway. */
static size_t rows_at_once(const ptir_program *p, const phase *phases, size_t count)
{
    tile t = {.rows = 1, .columns = p->columns};
    size_t passes = 0;
    for (size_t i = 0; i < count; i++)
        passes += !phases[i].on_rows;
    for (size_t i = 0; i < p->register_count; i++)
        if (p->kinds[i] == PTIR_FULL && (i >= p->array_count || !is_direct(&p->arrays[i], &t)))
            return 1;
    return passes == 1 && p->columns >= BROAD ? AT_ONCE : 1;
}

/* Rows and columns of a full tile of a program with these phases. */
static void best_shape(const ptir_program *p, const phase *phases, size_t count, size_t *rows, size_t *columns)
{
    tile_shape(p, rows, columns);
    if (*rows == 1 && *columns == p->columns)
        *rows = rows_at_once(p, phases, count);
}

/* Move the resolved operands `rows` rows further, for a tile of the same shape. */
static void move(ptir_ready *code, size_t length, size_t rows)
{
    for (ptir_ready *in = code; in < code + length; in++) {
        in->first.at += in->first.is_array ? (ptrdiff_t)rows * in->first.next : 0;
        in->second.at += in->second.is_array ? (ptrdiff_t)rows * in->second.next : 0;
    }
}

void ptir_run(const ptir_program *p, size_t first, size_t last, float *scratch, ptir_watch *watch)
{
    ptir_ready code[PTIR_LONGEST]; /* of all phases */
    float sums[PTIR_REDUCTIONS][SUMS];
    tile t; /* not initialized: that would take long for every tile */
    phase phases[PTIR_PHASES];
    ptir_phase ready[PTIR_PHASES];
    size_t tall, wide, count = find_phases(phases, p);
    best_shape(p, phases, count, &tall, &wide);
    if (!p->columns)
        return;
    for (size_t row = first; row < last; row += tall)
        for (size_t column = 0; column < p->columns; column += wide) {
            int is_next = row > first && wide == p->columns && tall <= last - row;
            t.rows = smallest(tall, last - row), t.columns = smallest(wide, p->columns - column);
            if (is_stopped(watch, t.rows * t.columns * p->length))
                return;
            ptir_ready *of_phase = code;
            if (is_next)
                move(code, p->length - count, tall);
            else
                find_registers(p, &t, scratch, row, column);
            load_inputs(p, &t, row, column, row > first && wide == p->columns);
            for (size_t i = 0; i < count; of_phase += phases[i++].length) {
                if (!is_next)
                    ready[i] = prepared(of_phase, sums, p, &t, &phases[i]);
                ptir_isa_in_use()->chain(&ready[i]);
            }
            store_outputs(p, &t, row, column);
        }
    store_fence();
}

/* A program that fits in one tile, with all operands resolved once. */
struct ptir_prepared {
    tile t;
    size_t count;
    ptir_phase *phases;
    ptir_ready *code; /* of all phases */
    float sums[][SUMS];
};

size_t ptir_prepared_size(const ptir_program *p)
{
    phase phases[PTIR_PHASES];
    size_t tall, wide, count = find_phases(phases, p), reductions = 0;
    best_shape(p, phases, count, &tall, &wide);
    if (!p->rows || !p->columns || tall < p->rows || wide < p->columns)
        return 0;
    for (size_t i = 0; i < p->length; i++)
        if (ptir_is_reduction(p->code[i].op))
            reductions = reductions > p->code[i].b ? reductions : p->code[i].b + (size_t)1;
    return sizeof(ptir_prepared) + reductions * sizeof(float[SUMS]) + count * sizeof(ptir_phase) + p->length * sizeof(ptir_ready);
}

void ptir_prepare(const ptir_program *p, float *scratch, ptir_prepared *made, size_t size)
{
    phase phases[PTIR_PHASES];
    made->count = find_phases(phases, p);
    made->code = (ptir_ready *)((char *)made + size) - p->length;
    made->phases = (ptir_phase *)made->code - made->count;
    made->t.rows = p->rows, made->t.columns = p->columns;
    find_registers(p, &made->t, scratch, 0, 0);
    ptir_ready *code = made->code;
    for (size_t i = 0; i < made->count; code += phases[i++].length)
        made->phases[i] = prepared(code, made->sums, p, &made->t, &phases[i]);
}

void ptir_run_prepared(const ptir_program *p, const ptir_prepared *made, ptir_watch *watch)
{
    if (is_stopped(watch, p->rows * p->columns * p->length))
        return;
    load_inputs(p, &made->t, 0, 0, 0);
    for (size_t i = 0; i < made->count; i++)
        ptir_isa_in_use()->chain(&made->phases[i]);
    store_outputs(p, &made->t, 0, 0);
    store_fence();
}

void ptir_run_scores(const ptir_attention *x, float *scores, size_t step, size_t head, size_t row, size_t rows, size_t column,
                     size_t columns, float *scratch, ptir_watch *watch)
{
    ptir_array arrays[PTIR_REGISTERS];
    ptir_program p = *x->scores;
    for (size_t i = 0; i < p.array_count; i++) {
        ptir_array *a = &arrays[i];
        *a = p.arrays[i];
        if (i == x->own || a->is_output)
            a->data = scores, a->rows = (ptrdiff_t)step;
        else
            a->data = (char *)a->data + offset_of(a, column, row) + (ptrdiff_t)head * a->heads * ptir_bytes_of(a->kind);
    }
    p.arrays = arrays, p.rows = columns, p.columns = rows;
    ptir_run(&p, 0, columns, scratch, watch);
}
