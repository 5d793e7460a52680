/* Placements without search: every buffer in turn goes into a gap between those before it. */
#include <stdlib.h>
#include <string.h>
#include "placement.h"

typedef struct {
    int64_t start, end;
} gap;

/* A buffer with its place, and the first page of the calendar that it is on. */
typedef struct {
    int64_t lower, upper;
    gap place;
    size_t first;
} block;

/* Time in pages of the mean time alive; each lists the buffers placed that are alive in it. */
typedef struct {
    int64_t origin, width;
    size_t *starts, *counts; /* of a page, in `blocks` */
    block *blocks;
} calendar;

static int by_start(const void *a, const void *b)
{
    const gap *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* The lowest gap between what is taken, or the tightest. */
static int64_t fitting(gap *taken, size_t count, int64_t size, int tightest)
{
    int64_t at = 0, best = -1, room = 0;
    qsort(taken, count, sizeof *taken, by_start);
    for (size_t i = 0; i < count; i++) {
        int64_t here = taken[i].start - at;
        if (here >= size && (best < 0 || here < room)) {
            if (!tightest)
                return at;
            best = at;
            room = here;
        }
        at = taken[i].end > at ? taken[i].end : at;
    }
    return best < 0 ? at : best;
}

static size_t page(const calendar *c, int64_t time) { return (size_t)((time - c->origin) / c->width); }

static void clear(calendar *c)
{
    free(c->starts);
    free(c->counts);
    free(c->blocks);
}

/* A calendar with room for all buffers; 0 when there is no memory. */
static int open_calendar(calendar *c, const ptir_buffers *b)
{
    int64_t last = b->count ? b->upper[0] : 0;
    double alive = 0;
    for (size_t i = 0; i < b->count; i++) {
        last = b->upper[i] > last ? b->upper[i] : last;
        alive += (double)(b->upper[i] - b->lower[i]);
    }
    c->origin = b->count ? b->lower[0] : 0;
    c->width = (last - c->origin) / (int64_t)(2 * b->count + 1) + 1;
    if (b->count && alive / (double)b->count > (double)c->width)
        c->width = (int64_t)(alive / (double)b->count);
    size_t pages = page(c, last) + 1;
    c->starts = calloc(pages + 1, sizeof *c->starts);
    c->counts = calloc(pages, sizeof *c->counts);
    for (size_t i = 0; c->starts && i < b->count; i++)
        for (size_t p = page(c, b->lower[i]); p <= page(c, b->upper[i] - 1); p++)
            c->starts[p + 1]++;
    for (size_t p = 0; c->starts && p < pages; p++)
        c->starts[p + 1] += c->starts[p];
    c->blocks = c->starts ? malloc((c->starts[pages] + 1) * sizeof *c->blocks) : NULL;
    return c->starts && c->counts && c->blocks;
}

/* What is taken while buffer `x` is alive; each once, on the first page that both are on. */
static size_t meet(const calendar *c, const ptir_buffers *b, size_t x, gap *taken)
{
    size_t count = 0, first = page(c, b->lower[x]), last = page(c, b->upper[x] - 1);
    for (size_t p = first; p <= last; p++) {
        const block *all = c->blocks + c->starts[p];
        for (size_t i = 0; i < c->counts[p]; i++)
            if (all[i].lower < b->upper[x] && b->lower[x] < all[i].upper && (p == first || p == all[i].first))
                taken[count++] = all[i].place;
    }
    return count;
}

static void enter(calendar *c, const ptir_buffers *b, size_t x, int64_t at)
{
    block made = {b->lower[x], b->upper[x], {at, at + b->size[x]}, page(c, b->lower[x])};
    for (size_t p = made.first; p <= page(c, b->upper[x] - 1); p++)
        if (c->counts[p] < c->starts[p + 1] - c->starts[p]) /* as it is where no buffer stands twice in the order */
            c->blocks[c->starts[p] + c->counts[p]++] = made;
}

int ptir_fit(const ptir_buffers *b, const int64_t *order, size_t done, size_t until, int tightest, int64_t *offsets)
{
    calendar c = {0};
    gap *taken = malloc((b->count + 1) * sizeof *taken);
    int whole = taken && open_calendar(&c, b);
    for (size_t k = 0; whole && k < until; k++) {
        size_t x = (size_t)order[k];
        if (k >= done)
            offsets[x] = fitting(taken, meet(&c, b, x, taken), b->size[x], tightest);
        enter(&c, b, x, offsets[x]);
    }
    clear(&c);
    free(taken);
    return whole ? PTIR_PLACED : PTIR_NO_MEMORY;
}

int ptir_fit_births(const ptir_buffers *b, int64_t *offsets)
{
    block *live = malloc((b->count + 1) * sizeof *live); /* by offset */
    size_t count = 0;
    for (size_t x = 0; live && x < b->count; x++) {
        int64_t at = 0, size = b->size[x];
        size_t kept = 0, here = 0;
        int found = 0;
        for (size_t i = 0; i < count; i++) {
            if (live[i].upper <= b->lower[x])
                continue;
            found = found || live[i].place.start - at >= size;
            if (!found)
                at = live[i].place.end > at ? live[i].place.end : at;
            here += !found;
            live[kept++] = live[i];
        }
        memmove(live + here + 1, live + here, (kept - here) * sizeof *live);
        live[here] = (block){b->lower[x], b->upper[x], {at, at + size}, 0};
        offsets[x] = at;
        count = kept + 1;
    }
    int whole = live != NULL;
    free(live);
    return whole ? PTIR_PLACED : PTIR_NO_MEMORY;
}
