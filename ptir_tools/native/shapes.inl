/* AMX tile registers and their shapes. A tile has up to 16 rows of 16 words of 32 bits. */

enum {
    SIXTEEN = 16,
    BLOCK = 2 * SIXTEEN,      /* rows of a block of the left operand */
    TILE = SIXTEEN * SIXTEEN, /* words of a tile */
};

/* The configuration of the tile registers. Tiles 0 to 3 hold sums, 4 and 5 the left operand, 6 and 7 the right one. */
typedef struct {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Rows and columns of a block of sums. */
typedef struct {
    size_t rows, columns;
} tile_area;

#ifdef PTIR_TILES /* for tests: a file that emulates the instructions */
#include PTIR_TILES
#else
#define TILE_SHAPE(made) __asm__ volatile("ldtilecfg %0" : : "m"(made) : "memory")
#define TILE_RELEASE() __asm__ volatile("tilerelease" : : : "memory")
#define TILE_LOAD(t, from, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"((ptrdiff_t)(step)) : "memory")
/* Load without keeping the lines in the level-1 cache, which leaves room for data that is read again. */
#define TILE_STREAM(t, from, step)                                                                                     \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t : : "r"(from), "r"((ptrdiff_t)(step)) : "memory")
#define TILE_STORE(t, to, step) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"((ptrdiff_t)(step)) : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : : : "memory")
#define TILE_DOT(dot, sum, a, b) __asm__ volatile(dot " %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")
#endif

static void release_tiles(void) { TILE_RELEASE(); }

/* The area that the tiles are configured for, as one number. Two fields would be compared by one vector load, which stalls until
 * both separate stores are complete. */
typedef uint32_t tile_shape;
enum { NO_SHAPE = 0 };

/* Configure the tiles for the area `wanted`, unless they already are; `*now` is the current shape. */
static void shape_tiles(tile_shape *now, tile_area wanted)
{
    const tile_shape shape = (tile_shape)(wanted.rows * (BLOCK + 1) + wanted.columns);
    if (*now == shape)
        return;
    size_t rows[2] = {smallest(wanted.rows, SIXTEEN)}, columns[2] = {smallest(wanted.columns, SIXTEEN)};
    rows[1] = wanted.rows - rows[0], columns[1] = wanted.columns - columns[0];
    tile_shapes made = {.palette = 1};
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++)
            if (rows[i] && columns[j])
                made.rows[2 * i + j] = (uint8_t)rows[i], made.bytes[2 * i + j] = (uint16_t)(4 * columns[j]);
        if (rows[i])
            made.rows[4 + i] = (uint8_t)rows[i], made.bytes[4 + i] = 4 * SIXTEEN;
        if (columns[i])
            made.rows[6 + i] = SIXTEEN, made.bytes[6 + i] = (uint16_t)(4 * columns[i]);
    }
    TILE_SHAPE(made);
    *now = shape;
}
