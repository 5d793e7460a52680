/* The thread pool. */
#ifndef PTIR_POOL_H
#define PTIR_POOL_H
#include "kernels.h"

/* Run part(data, i, watch) for every i below `count`, on this thread and up to `helpers` others. Parts write different memory. This
 * thread takes parts, too: if the helpers are busy with other work, it does all of them. */
void ptir_together(void (*part)(const void *data, size_t i, ptir_watch *watch), const void *data, size_t count, size_t helpers,
                   ptir_watch *watch);
#endif
