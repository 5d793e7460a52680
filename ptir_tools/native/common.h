/* Macros and small functions for all kernel files. */
#ifndef PTIR_COMMON_H
#define PTIR_COMMON_H
#include "kernels.h"

#define PTIR_INLINE static inline __attribute__((always_inline))
#define PTIR_NOINLINE __attribute__((noinline))

/* Unroll a short loop completely, so that its array of sums stays in registers. */
#if defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 8")
#define UNROLLED_WIDE _Pragma("GCC unroll 20")
#else
#define UNROLLED
#define UNROLLED_WIDE
#endif

#if defined(__GNUC__)
#define ptir_prefetch(p) __builtin_prefetch(p) /* to all levels of the cache */
#define ptir_prefetch_l2(p) __builtin_prefetch(p, 0, 2) /* to the level-2 cache only */
#else
#define ptir_prefetch(p) ((void)(p))
#define ptir_prefetch_l2(p) ((void)(p))
#endif

/* The expansion of a macro as a string. */
#define PTIR_TEXT_(x) #x
#define PTIR_TEXT(x) PTIR_TEXT_(x)

enum { CHECK_INTERVAL = 1 << 25 }; /* element operations between two looks at the clock */

/* Count `work` element operations; whether the kernel has to stop. */
static inline int is_stopped(ptir_watch *w, size_t work)
{
    if ((w->done += work) >= CHECK_INTERVAL) {
        w->done = 0;
        w->stopped = w->stopped || (ptir_is_due(w) && w->stop(w->data));
    }
    return w->stopped;
}

/* Make non-temporal stores visible to other threads. */
static inline void store_fence(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_sfence();
#endif
}

static inline size_t smallest(size_t a, size_t b) { return a < b ? a : b; }
#endif
