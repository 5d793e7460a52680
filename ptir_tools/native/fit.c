/* Buffer placement without search, and live ranges. Three heuristics: first fit or best fit between placed buffers (`ptir_fit`),
 * first fit in order of birth (`ptir_fit_births`), and skyline packing, which fills the lowest valley first (`ptir_stack`).
 * `ptir_sections` splits time into sections and finds the lower bound. Used by the planner, ptir_tools/plan. */
#include <stdlib.h>
#include <string.h>
#include "placement.h"

typedef struct {
    int64_t start, end;
} gap;

/* A placed buffer, and the first page of the calendar that lists it. */
typedef struct {
    int64_t lower, upper;
    gap place;
    size_t first;
} block;

/* An index of the placed buffers by time. A page covers the mean live range and lists the placed buffers that are live in it. */
typedef struct {
    int64_t origin, width;
    size_t *starts, *counts; /* per page, into `blocks` */
    block *blocks;
} calendar;

static int by_start(const void *a, const void *b)
{
    const gap *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* The offset of the lowest gap that fits, or with `tightest` of the smallest. */
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

/* Allocate a calendar for all buffers. Returns 0 if there is no memory. */
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

/* Collect the places of all buffers that are live together with `x`. A buffer on several common pages is taken from the first of
 * them. */
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
        if (c->counts[p] < c->starts[p + 1] - c->starts[p]) /* always true if no buffer occurs twice in the order */
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
    block *live = malloc((b->count + 1) * sizeof *live); /* sorted by offset */
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

typedef struct {
    int64_t lower, upper, size, at;
} range;

static int by_birth(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->lower != y->lower)
        return x->lower < y->lower ? -1 : 1;
    if (x->upper != y->upper)
        return x->upper < y->upper ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_end(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return (x->upper > y->upper) - (x->upper < y->upper);
}

int ptir_sections(const ptir_buffers *b, int64_t *order, int64_t *first, int64_t *last, int64_t *bound, int64_t *pairs)
{
    range *begun = malloc((b->count + 1) * sizeof *begun), *over = malloc((b->count + 1) * sizeof *over);
    int whole = begun && over, started = 0;
    int64_t section = -1, live = 0;
    *bound = *pairs = 0;
    for (size_t i = 0; whole && i < b->count; i++)
        begun[i] = (range){b->lower[i], b->upper[i], b->size[i], (int64_t)i};
    if (whole)
        qsort(begun, b->count, sizeof *begun, by_birth);
    for (size_t i = 0; whole && i < b->count; i++) {
        order[i] = begun[i].at;
        over[i] = begun[i];
        over[i].at = (int64_t)i;
    }
    if (whole)
        qsort(over, b->count, sizeof *over, by_end);
    for (size_t i = 0, j = 0; whole && j < b->count;) {
        if (i < b->count && begun[i].lower < over[j].upper) {
            section += !started;
            started = 1;
            first[i] = section;
            *pairs += (int64_t)(i - j);
            live += begun[i++].size;
            *bound = live > *bound ? live : *bound;
        } else {
            started = 0;
            last[over[j].at] = section + 1;
            live -= over[j++].size;
        }
    }
    free(begun);
    free(over);
    return whole ? PTIR_PLACED : PTIR_NO_MEMORY;
}

/* The skyline: the top of the placed buffers, as runs of sections of equal height. A run is named by its first section. `heap` is a
 * binary heap of the runs, lowest first; `slot` is a run's index in it, or -1. */
typedef struct {
    const ptir_buffers *b;
    int64_t sections, *end, *begin, *height, *heap, *slot, lying;
    int64_t *first, *next; /* per section the first buffer that begins there or later; per buffer a union-find link to the next unplaced one */
    double *load, *sums;   /* per section the live bytes plus those lost below the skyline, as a share of the bound; its prefix sums */
    int64_t looks, limit;
} skyline;

static int lower_run(const skyline *s, int64_t x, int64_t y)
{
    return s->height[x] != s->height[y] ? s->height[x] < s->height[y] : x < y;
}

static void put(skyline *s, int64_t at, int64_t x)
{
    s->heap[at] = x;
    s->slot[x] = at;
}

/* Restore the heap after run `x` was put at index `at`. */
static void sift(skyline *s, int64_t at, int64_t x)
{
    for (; at && lower_run(s, x, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put(s, at, s->heap[(at - 1) / 2]);
    for (int64_t c; (c = 2 * at + 1) < s->lying; at = c) {
        c += c + 1 < s->lying && lower_run(s, s->heap[c + 1], s->heap[c]);
        if (!lower_run(s, s->heap[c], x))
            break;
        put(s, at, s->heap[c]);
    }
    put(s, at, x);
}

static void lay(skyline *s, int64_t from, int64_t to, int64_t height)
{
    s->end[from] = to;
    s->begin[to] = from;
    s->height[from] = height;
    s->lying += s->slot[from] < 0;
    sift(s, s->slot[from] < 0 ? s->lying - 1 : s->slot[from], from);
}

/* Merge run `x` with the run after it if both have the same height. */
static void join(skyline *s, int64_t x)
{
    int64_t y = s->end[x], at = y < s->sections ? s->slot[y] : -1;
    if (at < 0 || s->height[y] != s->height[x])
        return;
    s->end[x] = s->end[y];
    s->begin[s->end[y]] = x;
    s->slot[y] = -1;
    if (at != --s->lying)
        sift(s, at, s->heap[s->lying]);
}

static void join_both(skyline *s, int64_t x)
{
    join(s, x);
    if (x)
        join(s, s->begin[x]);
}

/* The first unplaced buffer from `x` on. */
static int64_t unplaced(skyline *s, int64_t x)
{
    while (s->next[x] != x)
        x = s->next[x] = s->next[s->next[x]];
    return x;
}

/* The best unplaced buffer for the valley at run `from`, or -1 if none fits between `left` and `right`. */
static int64_t chosen(skyline *s, int64_t from, int64_t left, int64_t right, const double *weight, double touch, double urgency)
{
    const ptir_buffers *b = s->b;
    const int64_t to = s->end[from], h = s->height[from], end = s->first[to];
    double most = 0;
    int64_t best = -1;
    s->sums[from] = 0;
    for (int64_t t = from; t < to; t++)
        s->sums[t + 1] = s->sums[t] + s->load[t];
    s->looks += to - from;
    for (int64_t x = unplaced(s, s->first[from]); x < end; x = unplaced(s, x + 1)) {
        int64_t l = b->lower[x], u = b->upper[x], top = h + b->size[x];
        s->looks++;
        if (u > to)
            continue;
        int touched = (l == from) + (u == to) + ((l == from && top == left) || (u == to && top == right));
        double value = weight[x] + touch * touched + urgency * (s->sums[u] - s->sums[l]) / (double)(u - l);
        if (best < 0 || value > most) {
            best = x;
            most = value;
        }
    }
    return best;
}

static void raise_valley(skyline *s, int64_t from, int64_t height, double bound)
{
    double lost = (double)(height - s->height[from]) / bound;
    for (int64_t t = from; t < s->end[from]; t++)
        s->load[t] += lost;
    s->looks += s->end[from] - from;
    lay(s, from, s->end[from], height);
    join_both(s, from);
}

static void put_down(skyline *s, int64_t from, int64_t x, int64_t *offsets)
{
    int64_t l = s->b->lower[x], u = s->b->upper[x], to = s->end[from], h = s->height[from];
    offsets[x] = h;
    s->next[x] = x + 1;
    if (u < to)
        lay(s, u, to, h);
    if (l > from)
        lay(s, from, l, h);
    lay(s, l, u, h + s->b->size[x]);
    join_both(s, l);
}

/* Initialize the loads and the lists of buffers. Returns the lower bound. */
static double open_loads(skyline *s)
{
    const ptir_buffers *b = s->b;
    double bound = 1, live = 0;
    for (size_t i = 0; i < b->count; i++) {
        s->load[b->lower[i]] += (double)b->size[i];
        s->load[b->upper[i]] -= (double)b->size[i];
        s->first[b->lower[i] + 1]++;
        s->next[i] = (int64_t)i;
    }
    s->next[b->count] = (int64_t)b->count;
    for (int64_t t = 0; t < s->sections; t++) {
        s->load[t] = live += s->load[t];
        bound = live > bound ? live : bound;
        s->first[t + 1] += s->first[t];
        s->slot[t] = -1;
    }
    for (int64_t t = 0; t < s->sections; t++)
        s->load[t] /= bound;
    return bound;
}

static int stack(skyline *s, const double *weight, double touch, double urgency, int64_t *offsets)
{
    double bound = open_loads(s);
    size_t left = s->b->count;
    lay(s, 0, s->sections, 0);
    while (left && s->looks <= s->limit) {
        int64_t from = s->heap[0], to = s->end[from];
        int64_t before = from ? s->height[s->begin[from]] : INT64_MAX, after = to < s->sections ? s->height[to] : INT64_MAX;
        int64_t x = chosen(s, from, before, after, weight, touch, urgency);
        if (x < 0) {
            raise_valley(s, from, before < after ? before : after, bound);
        } else {
            put_down(s, from, x, offsets);
            left--;
        }
    }
    return left ? PTIR_GAVE_UP : PTIR_PLACED;
}

int ptir_stack(const ptir_buffers *b, const double *weight, double touch, double urgency, int64_t limit, int64_t *offsets, int64_t *used)
{
    int64_t sections = 0;
    for (size_t i = 0; i < b->count; i++)
        sections = b->upper[i] > sections ? b->upper[i] : sections;
    size_t n = b->count, room = (size_t)sections + 2;
    int64_t *whole = calloc(6 * room + n + 1, sizeof *whole);
    double *loads = calloc(2 * room, sizeof *loads);
    skyline s = {.b = b, .sections = sections, .limit = limit};
    int status = PTIR_NO_MEMORY;
    if (whole && loads) {
        int64_t **parts[] = {&s.end, &s.begin, &s.height, &s.heap, &s.slot, &s.first, &s.next};
        for (size_t i = 0; i < 7; i++)
            *parts[i] = whole + i * room;
        s.load = loads;
        s.sums = loads + room;
        status = stack(&s, weight, touch, urgency, offsets);
    }
    *used = s.looks;
    free(whole);
    free(loads);
    return status;
}
