#include "placement.h"
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 4096 }; /* nested decisions: they use the C stack */

typedef struct {
    int64_t *place, before;
} change;

typedef struct {
    const ptir_buffers *b;
    int64_t *offsets, *floor, *lowest; /* per buffer */
    int64_t *base, *total;             /* per section */
    int32_t *starts, *overlapping, *choices;
    char *placed;
    change *trail;
    size_t changes, room;
    int64_t steps, limit;
    int depth, status; /* status: why the search ended early, or 0 */
} search;

static void set(search *s, int64_t *place, int64_t value)
{
    if (s->changes == s->room) {
        change *more = realloc(s->trail, 2 * s->room * sizeof *more);
        if (!more) {
            s->status = PTIR_NO_MEMORY;
            return;
        }
        s->trail = more;
        s->room *= 2;
    }
    s->trail[s->changes++] = (change){place, *place};
    *place = value;
}

static void undo(search *s, size_t mark)
{
    while (s->changes > mark) {
        change *c = &s->trail[--s->changes];
        *c->place = c->before;
    }
}

static int covers(const search *s, int32_t x, int64_t section) { return s->b->lower[x] <= section && section < s->b->upper[x]; }

/* The lowest top of an unplaced buffer that overlaps x and does not cover section `except`. */
static int64_t lowest_support(const search *s, int32_t x, int64_t except)
{
    int64_t best = INT64_MAX;
    for (int32_t j = s->starts[x]; j < s->starts[x + 1]; j++) {
        int32_t y = s->overlapping[j];
        if (!s->placed[y] && !covers(s, y, except) && s->lowest[y] + s->b->size[y] < best)
            best = s->lowest[y] + s->b->size[y];
    }
    return best;
}

static int raise_unsupported(search *s, const int32_t *part, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int32_t x = part[i];
        if (s->lowest[x] == s->floor[x])
            continue;
        int64_t support = lowest_support(s, x, -1);
        if (support == INT64_MAX)
            return 0;
        if (support > s->lowest[x])
            set(s, &s->lowest[x], support);
    }
    return 1;
}

/* Whether every section of the part has room for its unplaced buffers. Sets base and total of these sections. */
static int fits(search *s, const int32_t *part, size_t count)
{
    const ptir_buffers *b = s->b;
    if (!raise_unsupported(s, part, count))
        return 0;
    int64_t from = b->lower[part[0]], to = 0;
    for (size_t i = 0; i < count; i++)
        to = b->upper[part[i]] > to ? b->upper[part[i]] : to;
    for (int64_t t = from; t < to; t++) {
        s->base[t] = INT64_MAX;
        s->total[t] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        int32_t x = part[i];
        for (int64_t t = b->lower[x]; t < b->upper[x]; t++) {
            s->base[t] = s->lowest[x] < s->base[t] ? s->lowest[x] : s->base[t];
            s->total[t] += b->size[x];
        }
    }
    for (int64_t t = from; t < to; t++)
        if (s->total[t] && s->base[t] > b->capacity - s->total[t])
            return 0;
    return 1;
}

static int solve(search *s, const int32_t *part, size_t count);

/* Split `rest` into parts that share no section, which are independent. All must fit; then each is solved. */
static int solve_parts(search *s, const int32_t *rest, size_t count)
{
    const ptir_buffers *b = s->b;
    for (int solving = 0; solving < 2; solving++)
        for (size_t i = 0, j; i < count; i = j) {
            int64_t end = b->upper[rest[i]];
            for (j = i + 1; j < count && b->lower[rest[j]] < end; j++)
                end = b->upper[rest[j]] > end ? b->upper[rest[j]] : end;
            int32_t x = rest[i];
            if (j - i == 1) {
                s->offsets[x] = s->floor[x];
                if (s->floor[x] > b->capacity - b->size[x])
                    return 0;
            } else if (!(solving ? solve(s, rest + i, j - i) : fits(s, rest + i, j - i))) {
                return 0;
            }
        }
    return 1;
}

/* The section to decide next at height h; -1 if no buffer can be placed there. */
static int64_t choose(search *s, const int32_t *part, size_t count, int64_t h)
{
    const ptir_buffers *b = s->b;
    int64_t from = b->lower[part[0]], to = 0, best = -1, best_slack = 0;
    int best_tight = 0, best_choices = 0;
    for (size_t i = 0; i < count; i++)
        to = b->upper[part[i]] > to ? b->upper[part[i]] : to;
    memset(s->choices + from, 0, (size_t)(to - from) * sizeof *s->choices);
    for (size_t i = 0; i < count; i++)
        if (s->lowest[part[i]] == h && s->floor[part[i]] == h)
            for (int64_t t = b->lower[part[i]]; t < b->upper[part[i]]; t++)
                s->choices[t]++;
    for (int64_t t = from; t < to; t++) {
        if (!s->choices[t])
            continue;
        int64_t slack = b->capacity - h - s->total[t];
        int tight = slack <= b->capacity / 16, choices = tight ? s->choices[t] + (slack > 0) : 0;
        int better = tight != best_tight ? tight : choices != best_choices ? choices < best_choices : slack < best_slack;
        if (best < 0 || better) {
            best = t;
            best_tight = tight;
            best_choices = choices;
            best_slack = slack;
        }
    }
    return best;
}

static int step(search *s)
{
    if (!s->status && s->steps >= s->limit)
        s->status = PTIR_GAVE_UP;
    s->steps += !s->status;
    return !s->status;
}

/* Place x at h. *others: whether it overlaps any unplaced buffer. */
static void place_at(search *s, int32_t x, int64_t h, int *others)
{
    int64_t top = h + s->b->size[x];
    s->placed[x] = 1;
    s->offsets[x] = h;
    *others = 0;
    for (int32_t j = s->starts[x]; j < s->starts[x + 1]; j++) {
        int32_t y = s->overlapping[j];
        if (s->placed[y])
            continue;
        *others = 1;
        if (s->floor[y] < top)
            set(s, &s->floor[y], top);
        if (s->lowest[y] < s->floor[y])
            set(s, &s->lowest[y], s->floor[y]);
    }
}

/* Try each buffer of `options` at h. *last: a buffer failed that overlaps no other, so no other choice can succeed. */
static int try_each(search *s, const int32_t *part, size_t count, const int32_t *options, size_t n, int64_t h, int *last)
{
    int32_t *rest = malloc(count * sizeof *rest);
    size_t mark = s->changes;
    int found = 0;
    if (!rest)
        s->status = PTIR_NO_MEMORY;
    for (size_t i = 0; i < n && !found && !*last && step(s); i++) {
        size_t left = 0;
        int others;
        for (size_t j = 0; j < count; j++)
            if (part[j] != options[i])
                rest[left++] = part[j];
        place_at(s, options[i], h, &others);
        found = solve_parts(s, rest, left) && !s->status;
        if (!found) {
            undo(s, mark);
            for (size_t j = 0; j < count; j++)
                s->placed[part[j]] = 0;
            *last = !others;
        }
    }
    free(rest);
    return found;
}

/* Leave section t empty at h: raise all buffers that cover it to the lowest height where one of them can stand. */
static int leave_empty(search *s, const int32_t *part, size_t count, int64_t t, int64_t h)
{
    int64_t raised = INT64_MAX, slack = s->b->capacity - h - s->total[t];
    size_t mark = s->changes;
    for (size_t i = 0; i < count; i++)
        if (covers(s, part[i], t)) {
            int64_t next = s->lowest[part[i]] > h ? s->lowest[part[i]] : lowest_support(s, part[i], t);
            raised = next < raised ? next : raised;
        }
    if (raised > h + slack || !step(s))
        return 0;
    for (size_t i = 0; i < count; i++)
        if (covers(s, part[i], t) && s->lowest[part[i]] < raised)
            set(s, &s->lowest[part[i]], raised);
    if (fits(s, part, count) && solve(s, part, count))
        return 1;
    undo(s, mark);
    return 0;
}

static int decide(search *s, const int32_t *part, size_t count, int32_t *options)
{
    const ptir_buffers *b = s->b;
    int64_t h = INT64_MAX;
    size_t n = 0;
    int last = 0;
    for (size_t i = 0; i < count; i++)
        h = s->lowest[part[i]] < h ? s->lowest[part[i]] : h;
    int64_t t = choose(s, part, count, h);
    if (t < 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        int32_t x = part[i];
        if (s->lowest[x] != h || s->floor[x] != h || !covers(s, x, t))
            continue;
        size_t at = n++;
        for (; at && b->rank[options[at - 1]] > b->rank[x]; at--)
            options[at] = options[at - 1];
        options[at] = x;
    }
    return try_each(s, part, count, options, n, h, &last) || (!last && !s->status && leave_empty(s, part, count, t, h));
}

static int solve(search *s, const int32_t *part, size_t count)
{
    int found = 0;
    int32_t *options = s->depth < DEEPEST ? malloc(count * sizeof *options) : NULL;
    if (!options && !s->status)
        s->status = s->depth < DEEPEST ? PTIR_NO_MEMORY : PTIR_GAVE_UP;
    s->depth++;
    if (!s->status)
        found = decide(s, part, count, options);
    s->depth--;
    free(options);
    return found;
}

static int32_t *overlaps(const ptir_buffers *b, int32_t *starts)
{
    size_t pairs = 0, at = 0;
    for (int filling = 0; filling < 2; filling++) {
        int32_t *made = filling ? malloc((pairs + 1) * sizeof *made) : NULL;
        if (filling && !made)
            return NULL;
        for (size_t i = 0; i < b->count; i++) {
            starts[i] = (int32_t)at;
            for (size_t j = 0; j < b->count; j++)
                if (i != j && b->lower[i] < b->upper[j] && b->lower[j] < b->upper[i]) {
                    if (filling)
                        made[at++] = (int32_t)j;
                    else
                        pairs++;
                }
        }
        starts[b->count] = (int32_t)at;
        if (filling)
            return made;
    }
    return NULL;
}

static int run(search *s, int32_t *all)
{
    for (size_t i = 0; i < s->b->count; i++)
        all[i] = (int32_t)i;
    int found = solve_parts(s, all, s->b->count);
    return s->status ? s->status : found ? PTIR_PLACED : PTIR_IMPOSSIBLE;
}

int ptir_place(const ptir_buffers *b, int64_t steps, int64_t *offsets, int64_t *used)
{
    size_t n = b->count, sections = 1;
    for (size_t i = 0; i < n; i++)
        sections = (size_t)b->upper[i] > sections ? (size_t)b->upper[i] : sections;
    search s = {.b = b, .offsets = offsets, .limit = steps, .room = 16 * n + 16};
    int32_t *all = malloc((n + 1) * sizeof *all);
    s.floor = calloc(2 * n + 1, sizeof *s.floor);
    s.lowest = s.floor ? s.floor + n : NULL;
    s.base = malloc(2 * sections * sizeof *s.base);
    s.total = s.base ? s.base + sections : NULL;
    s.choices = malloc(sections * sizeof *s.choices);
    s.placed = calloc(n + 1, 1);
    s.starts = malloc((n + 1) * sizeof *s.starts);
    s.overlapping = s.starts ? overlaps(b, s.starts) : NULL;
    s.trail = malloc(s.room * sizeof *s.trail);
    int whole = all && s.floor && s.base && s.choices && s.placed && s.overlapping && s.trail;
    int status = whole ? run(&s, all) : PTIR_NO_MEMORY;
    *used = s.steps;
    void *held[] = {all, s.floor, s.base, s.choices, s.placed, s.starts, s.overlapping, s.trail};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        free(held[i]);
    return status;
}
