/* Threads that help with the parts of one piece of work. */
#ifndef PTIR_POOL_H
#define PTIR_POOL_H
#include "kernels.h"

/* Run part(data, i, watch) for each i below `count`, which write different memory, on this thread and up to `helpers` others. This
 * thread takes parts like the others, so that it can finish alone; it does so while the others work for someone else. */
void ptir_together(void (*part)(const void *data, size_t i, ptir_watch *watch), const void *data, size_t count, size_t helpers,
                   ptir_watch *watch);
#endif
