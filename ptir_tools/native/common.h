/* What all kernel files share. */
#ifndef PTIR_COMMON_H
#define PTIR_COMMON_H
#include "kernels.h"

#define PTIR_INLINE static inline __attribute__((always_inline))
#define PTIR_APART __attribute__((noinline))

/* A short loop over sums that stay in registers: all of it is there one after the other. */
#if defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 8")
#else
#define UNROLLED
#endif

#if defined(__GNUC__)
#define ptir_fetch(p) __builtin_prefetch(p) /* what is needed soon */
#define ptir_fetch_far(p) __builtin_prefetch(p, 0, 2) /* what is needed later: to the cache of level 2 */
#else
#define ptir_fetch(p) ((void)(p))
#define ptir_fetch_far(p) ((void)(p))
#endif

/* The text of what a macro expands to. */
#define PTIR_TEXT_(x) #x
#define PTIR_TEXT(x) PTIR_TEXT_(x)

enum { PATIENCE = 1 << 25 }; /* element operations after which the clock is looked at */

/* Whether to stop, after so many more element operations. */
static inline int is_stopped(ptir_watch *w, size_t work)
{
    if ((w->done += work) >= PATIENCE) {
        w->done = 0;
        w->stopped = w->stopped || (ptir_is_due(w) && w->stop(w->data));
    }
    return w->stopped;
}

/* What was written past the cache is there for other threads. */
static inline void in_order(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_sfence();
#endif
}

static inline size_t smallest(size_t a, size_t b) { return a < b ? a : b; }
#endif
