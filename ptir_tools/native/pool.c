/* One pool of threads, started when they are first needed. */
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
#include <stdatomic.h>

enum { MOST = 63 }; /* threads */

/* What is worked on. */
typedef struct {
    void (*part)(const void *data, size_t i, ptir_watch *watch);
    const void *data;
    size_t count;
    atomic_size_t next;
    atomic_int stopped;
} work;

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there_is_work = PTHREAD_COND_INITIALIZER, all_left = PTHREAD_COND_INITIALIZER;
static work *current;                     /* guarded by `lock`, as are these */
static size_t started, wanted, helping; /* threads that there are, that may still begin, that work */

static int is_over(void *data) { return atomic_load_explicit(&((work *)data)->stopped, memory_order_relaxed); }

static void drain(work *w, ptir_watch *watch)
{
    size_t i;
    while (!is_over(w) && (i = atomic_fetch_add(&w->next, 1)) < w->count) {
        w->part(w->data, i, watch);
        if (watch->stopped)
            atomic_store(&w->stopped, 1);
    }
}

static void *help(void *none)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!wanted)
            pthread_cond_wait(&there_is_work, &lock);
        work *w = current;
        wanted--, helping++;
        pthread_mutex_unlock(&lock);
        ptir_watch watch = {is_over, w, 0, 0, NULL};
        drain(w, &watch);
        pthread_mutex_lock(&lock);
        if (--helping == 0)
            pthread_cond_signal(&all_left);
    }
    return none;
}

/* A child of fork has none of the threads. */
static void forget(void)
{
    pthread_mutex_init(&in_use, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&there_is_work, NULL);
    pthread_cond_init(&all_left, NULL);
    current = NULL;
    started = wanted = helping = 0;
}

/* Have so many threads, or as many as there can be. */
static void start(size_t helpers)
{
    static int is_watched;
    if (!is_watched)
        is_watched = pthread_atfork(NULL, NULL, forget) == 0;
    for (pthread_t made; started < smallest(helpers, MOST); started++) {
        if (pthread_create(&made, NULL, help, NULL) != 0)
            return;
        pthread_detach(made);
    }
}

void ptir_together(void (*part)(const void *data, size_t i, ptir_watch *watch), const void *data, size_t count, size_t helpers,
                   ptir_watch *watch)
{
    work w = {.part = part, .data = data, .count = count};
    if (!helpers || count < 2 || pthread_mutex_trylock(&in_use) != 0) {
        drain(&w, watch);
        return;
    }
    pthread_mutex_lock(&lock);
    start(helpers);
    current = &w;
    wanted = smallest(smallest(helpers, count - 1), started);
    pthread_cond_broadcast(&there_is_work);
    pthread_mutex_unlock(&lock);
    drain(&w, watch);
    pthread_mutex_lock(&lock);
    wanted = 0;
    while (helping)
        pthread_cond_wait(&all_left, &lock);
    current = NULL;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&in_use);
}
#endif
