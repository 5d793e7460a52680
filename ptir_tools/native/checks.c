/* Checks of a tile program before it runs: no instruction may read or write outside its registers and arrays. */
#include "common.h"

/* The operation and its registers must exist. A written register must not be an input, and must have the kind that the instruction
 * writes. */
static int checks_instruction(const ptir_program *p, const ptir_instruction *in, size_t inputs, int on_rows)
{
    int reduces = ptir_is_reduction(in->op), writes = reduces || in->op == PTIR_store;
    for (int k = 0; k < ptir_registers_of(in->op); k++) {
        size_t r = k ? in->b : in->a;
        if (r >= p->register_count || (writes && r < inputs) || (on_rows && p->kinds[r] == PTIR_FULL) ||
            (writes && !on_rows && reduces != (p->kinds[r] == PTIR_ROWS)))
            return 0;
    }
    return in->op < PTIR_on_elements && (!reduces || (!on_rows && in->b < PTIR_REDUCTIONS && p->whole_rows));
}

int ptir_checks_kinds(const ptir_program *p)
{
    int good = p->register_count <= PTIR_REGISTERS;
    for (size_t i = 0; good && i < p->register_count; i++)
        good = p->kinds[i] < PTIR_LOCAL || (p->kinds[i] == PTIR_LOCAL && i >= p->array_count);
    return good;
}

int ptir_checks_code(const ptir_program *p, size_t inputs)
{
    size_t length = 0, phases = 0;
    int on_rows = 0, good = p->length == 0 || p->code->op >= PTIR_on_elements;
    for (size_t i = 0; good && i < p->length; i++) {
        const ptir_instruction *in = &p->code[i];
        if (in->op == PTIR_on_elements || in->op == PTIR_on_rows) {
            on_rows = in->op == PTIR_on_rows;
            length = 0;
            good = ++phases <= PTIR_PHASES;
        } else
            good = ++length <= PTIR_LONGEST && checks_instruction(p, in, inputs, on_rows);
    }
    return good;
}

/* The range of bytes that an array's elements occupy. */
static void span(const ptir_program *p, const ptir_array *x, const char **low, const char **high)
{
    ptrdiff_t item = ptir_bytes_of(x->kind);
    *low = x->data, *high = *low + item;
    ptrdiff_t reach[] = {(ptrdiff_t)(p->rows - 1) * x->rows, (ptrdiff_t)(p->columns - 1) * x->columns};
    for (int a = 0; a < 2; a++)
        *(reach[a] < 0 ? low : high) += reach[a] * item;
}

static int is_shared(const ptir_program *p, const ptir_array *a, const ptir_array *b)
{
    const char *low[2], *high[2];
    span(p, a, &low[0], &high[0]);
    span(p, b, &low[1], &high[1]);
    return low[0] < high[1] && low[1] < high[0];
}

static int is_same(const ptir_array *a, const ptir_array *b)
{
    return a->data == b->data && a->rows == b->rows && a->columns == b->columns && a->kind == b->kind;
}

/* Whether register r is read after register `written` was stored or reduced into. */
static int is_read_after(const ptir_program *p, size_t r, size_t written)
{
    int is_written = 0;
    for (size_t i = 0; i < p->length; i++) {
        const ptir_instruction *in = &p->code[i];
        int count = ptir_registers_of(in->op);
        if (is_written && ((count && in->a == r) || (count == 2 && in->b == r)))
            return 1;
        is_written = is_written || ((in->op == PTIR_store || ptir_is_reduction(in->op)) && in->a == written);
    }
    return 0;
}

/* An output may be written while the program runs if no other array overlaps it. It may also be exactly the memory of an input
 * whose register is not read after the output was written. */
static int is_direct(const ptir_program *p, size_t at)
{
    for (size_t i = 0; i < p->array_count; i++)
        if (i != at && is_shared(p, &p->arrays[at], &p->arrays[i]))
            if (p->arrays[i].is_output || !is_same(&p->arrays[at], &p->arrays[i]) || is_read_after(p, i, at))
                return 0;
    return 1;
}

/* Whether the code names register r exactly once. */
static int is_used_once(const ptir_program *p, size_t r)
{
    int uses = 0;
    for (size_t i = 0; i < p->length; i++)
        for (int k = 0; k < ptir_registers_of(p->code[i].op); k++)
            uses += (k ? p->code[i].b : p->code[i].a) == r;
    return uses == 1;
}

void ptir_find_direct(const ptir_program *p, ptir_array *arrays)
{
    for (size_t i = 0; p->rows && p->columns && i < p->array_count; i++) {
        arrays[i].is_direct = (uint8_t)(arrays[i].is_output && is_direct(p, i));
        arrays[i].streams = (uint8_t)(arrays[i].is_direct && p->is_large && is_used_once(p, i));
    }
}
