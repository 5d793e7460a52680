#include "trees.h"
#include <math.h>
#include <string.h>
#include "common.h"

enum {
    WALKS = 8,        /* at once: each waits for its own loads */
    CACHED = 1 << 16, /* bytes of rows and results that stay in cache while all trees are walked */
    STEPS = 32,       /* element operations of a walk, about */
};

#define REAL float
#define NAMED(name) name##_f32
#include "trees.inl"
#define REAL double
#define NAMED(name) name##_f64
#include "trees.inl"
