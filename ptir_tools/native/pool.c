/* The thread pool, started on first use.
 *
 * A helper that has finished spins for a short time and then sleeps. So work that follows soon costs one store to start and one
 * load to finish, and an idle process has idle threads. */
#define _GNU_SOURCE /* for sched_getaffinity */
#include "pool.h"
#include "common.h"

#if defined(_WIN32)
void ptir_together(void (*part)(const void *data, size_t i, ptir_watch *watch), const void *data, size_t count, size_t helpers,
                   ptir_watch *watch)
{
    (void)helpers;
    for (size_t i = 0; i < count && !watch->stopped; i++)
        part(data, i, watch);
}
#else
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 63 }; /* threads */

/* Nanoseconds: how long to spin before sleeping; how long to watch whether a late helper makes progress; interval of the interrupt
 * check while waiting. */
enum { LOOK = 100000, GLANCE = 50000, ASK = 50000000, SECOND = 1000000000 };

/* The current work. The owner takes parts from the first on, helpers from the last on. So each thread mostly gets the same parts in
 * the next piece of work, and finds them in its cache. */
typedef struct {
    void (*part)(const void *data, size_t i, ptir_watch *watch);
    const void *data;
    size_t count;
    alignas(64) atomic_size_t taken, by_helpers;
    atomic_int stopped;
} work;

/* The gate: helpers inside, plus PLACE times the number that may still enter. A helper that has entered sees `current`; the owner
 * waits until all have left. */
enum { PLACE = 1 << 8 };
static alignas(64) atomic_uint gate;
static alignas(64) work *current;
static atomic_int in_use; /* some thread is the owner of `current` and `gate` */
static size_t started, processors;
static pthread_t helper[MOST];
static atomic_char is_in[MOST];
static int are_moved; /* some helpers were moved to the processor of a waiting owner */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there_is_work = PTHREAD_COND_INITIALIZER, all_left = PTHREAD_COND_INITIALIZER;
static atomic_uint asleep, is_waiting; /* helpers asleep; whether the owner sleeps */

static int is_over(void *data) { return atomic_load_explicit(&((work *)data)->stopped, memory_order_relaxed); }

static void drain(work *w, int is_helper, ptir_watch *watch)
{
    size_t own = 0;
    while (!is_over(w) && atomic_fetch_add_explicit(&w->taken, 1, memory_order_relaxed) < w->count) {
        size_t i = is_helper ? w->count - 1 - atomic_fetch_add_explicit(&w->by_helpers, 1, memory_order_relaxed) : own++;
        w->part(w->data, i, watch);
        if (watch->stopped)
            atomic_store(&w->stopped, 1);
    }
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int is_open(unsigned seen) { return seen >= PLACE; }
static int is_empty(unsigned seen) { return seen == 0; }

/* Spin until the gate is as wanted. Returns 0 if that takes longer than `longest`. */
static int spin_until(int (*wanted)(unsigned seen), int64_t longest)
{
    enum { LOOKS = 64 };
    for (int64_t begin = 0, since = 0; since < longest;) {
        for (int i = 0; i < LOOKS; i++, relax())
            if (wanted(atomic_load(&gate)))
                return 1;
        int64_t time = now();
        begin = begin ? begin : time;
        since = time - begin;
    }
    return 0;
}

static int enter(void)
{
    unsigned seen = atomic_load(&gate);
    while (is_open(seen))
        if (atomic_compare_exchange_weak(&gate, &seen, seen - PLACE + 1))
            return 1;
    return 0;
}

static void sleep_until_open(void)
{
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&asleep, 1);
    while (!is_open(atomic_load(&gate)))
        pthread_cond_wait(&there_is_work, &lock);
    atomic_fetch_sub(&asleep, 1);
    pthread_mutex_unlock(&lock);
}

static void *help(void *its_is_in)
{
    for (;;) {
        if (!spin_until(is_open, LOOK))
            sleep_until_open();
        if (!enter())
            continue;
        ptir_watch watch = {is_over, current, 0, 0, NULL, 1};
        atomic_store((atomic_char *)its_is_in, 1);
        drain(current, 1, &watch);
        atomic_store((atomic_char *)its_is_in, 0);
        if (atomic_fetch_sub(&gate, 1) == 1 && atomic_load(&is_waiting)) {
            pthread_mutex_lock(&lock);
            pthread_cond_signal(&all_left);
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

/* Sleep until all helpers have left. A signal handler may stop them. */
static void sleep_until_empty(work *w, ptir_watch *watch)
{
    pthread_mutex_lock(&lock);
    atomic_store(&is_waiting, 1);
    while (!is_empty(atomic_load(&gate))) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += ASK;
        until.tv_sec += until.tv_nsec / SECOND, until.tv_nsec %= SECOND;
        pthread_cond_timedwait(&all_left, &lock, &until);
        if (is_empty(atomic_load(&gate)) || watch->stopped)
            continue;
        pthread_mutex_unlock(&lock);
        if ((watch->stopped = watch->stop(watch->data)))
            atomic_store(&w->stopped, 1);
        pthread_mutex_lock(&lock);
    }
    atomic_store(&is_waiting, 0);
    pthread_mutex_unlock(&lock);
}

#if defined(__linux__)
/* CPU time of a thread in nanoseconds; 0 if it is not known. */
static int64_t has_run(pthread_t thread)
{
    clockid_t clock;
    struct timespec t = {0, 0};
    if (pthread_getcpuclockid(thread, &clock) == 0)
        clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* Move helpers that are late and make no progress to the processor of this thread, which only waits: another process has theirs,
 * perhaps for milliseconds. Returns whether all helpers have left in the meantime. */
static int rescue_helpers(void)
{
    int64_t before[MOST];
    int cpu = sched_getcpu();
    cpu_set_t here;
    for (size_t i = 0; i < started; i++)
        before[i] = has_run(helper[i]);
    if (spin_until(is_empty, GLANCE) || cpu < 0)
        return is_empty(atomic_load(&gate));
    CPU_ZERO(&here);
    CPU_SET(cpu, &here);
    for (size_t i = 0; i < started; i++)
        if (atomic_load(&is_in[i]) && has_run(helper[i]) - before[i] < GLANCE / 2)
            are_moved |= pthread_setaffinity_np(helper[i], sizeof here, &here) == 0;
    return 0;
}
#else
static int rescue_helpers(void) { return 0; }
#endif

/* The child of a fork has none of the threads. */
static void forget(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&there_is_work, NULL);
    pthread_cond_init(&all_left, NULL);
    atomic_store(&gate, 0), atomic_store(&asleep, 0), atomic_store(&is_waiting, 0), atomic_store(&in_use, 0);
    for (; started; started--)
        atomic_store(&is_in[started - 1], 0);
}

/* Count the processors that this thread may use, and keep helpers off its own processor: the system often wakes a thread there,
 * where it has to wait. */
static void place_helpers(void)
{
    long count = 0;
#if defined(__linux__)
    static cpu_set_t before;
    static int avoided = -1;
    static size_t placed;
    cpu_set_t usable;
    int here = sched_getcpu();
    CPU_ZERO(&usable);
    if (sched_getaffinity(0, sizeof usable, &usable) == 0)
        count = CPU_COUNT(&usable);
    if (here != avoided || !CPU_EQUAL(&usable, &before) || placed > started || are_moved)
        before = usable, avoided = here, placed = 0, are_moved = 0;
    if (here >= 0)
        CPU_CLR(here, &usable);
    for (; count > 1 && placed < started; placed++)
        pthread_setaffinity_np(helper[placed], sizeof usable, &usable);
#endif
    if (!count)
        count = sysconf(_SC_NPROCESSORS_ONLN);
    processors = count > 0 ? (size_t)count : 1;
}

/* Start threads until there are `helpers`, or as many as the system allows. */
static void start(size_t helpers)
{
    static int is_watched;
    if (!is_watched)
        is_watched = pthread_atfork(NULL, NULL, forget) == 0;
    for (; started < helpers; started++) {
        if (pthread_create(&helper[started], NULL, help, &is_in[started]) != 0)
            return;
        pthread_detach(helper[started]);
    }
}

/* How many of `helpers` are available for the next work. */
static size_t available(size_t helpers)
{
    helpers = smallest(helpers, MOST);
    int misses = !processors || started < smallest(helpers, processors - 1);
    if (misses || are_moved || atomic_load(&asleep))
        place_helpers();
    helpers = smallest(helpers, processors - 1);
    if (misses) {
        start(helpers);
        place_helpers();
    }
    return smallest(helpers, started);
}

/* Wake as many sleeping helpers as `places` needs. */
static void wake(size_t places)
{
    size_t sleeping = atomic_load(&asleep);
    if (places + sleeping <= started)
        return;
    pthread_mutex_lock(&lock);
    for (size_t missing = places + sleeping - started; missing; missing--)
        pthread_cond_signal(&there_is_work);
    pthread_mutex_unlock(&lock);
}

void ptir_together(void (*part)(const void *data, size_t i, ptir_watch *watch), const void *data, size_t count, size_t helpers,
                   ptir_watch *watch)
{
    work w = {.part = part, .data = data, .count = count};
    size_t places = 0;
    int is_mine = helpers && count > 1 && !atomic_exchange(&in_use, 1);
    if (is_mine && (places = smallest(available(helpers), count - 1))) {
        current = &w;
        atomic_store(&gate, (unsigned)places * PLACE);
        wake(places);
    }
    drain(&w, 0, watch);
    if (places) {
        atomic_fetch_and(&gate, PLACE - 1);
        if (!spin_until(is_empty, LOOK) && !rescue_helpers())
            sleep_until_empty(&w, watch);
    }
    if (is_mine)
        atomic_store(&in_use, 0);
}
#endif
