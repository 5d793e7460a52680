"""Random numbers in C, the same as those of the engines: NumPy's Philox, whose key comes from the seed, the stream and the
iterations of the loops around the op."""

from __future__ import annotations

from ptir_tools.bridges.c.nest import Nest
from ptir_tools.bridges.c.scalars import NARROW, computed
from ptir_tools.core.ir import Op
from ptir_tools.rewrite.vocabulary import tensor_type

SEED = "seed"  # the argument of a function that draws numbers

STREAM = """typedef struct {
    uint64_t key[2], words[4];
    int64_t block;
} ptir_stream;

static uint32_t ptir_hashed(uint32_t x, uint32_t *c, uint32_t step)
{
    x ^= *c;
    *c *= step;
    x *= *c;
    return x ^ x >> 16;
}

/* The words of a stream: NumPy's SeedSequence of the seed, with `own` as its spawn key, makes the key. */
static ptir_stream ptir_drawn(uint64_t seed, const uint32_t *own, int n)
{
    const uint32_t first[4] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0};
    uint32_t pool[4], out[4], c = 0x43b0d7e5u;
    for (int i = 0; i < 4; i++)
        pool[i] = ptir_hashed(first[i], &c, 0x931e8875u);
    for (int i = 0; i < 4 + n; i++)
        for (int j = 0; j < 4; j++)
            if (i != j) {
                const uint32_t y = ptir_hashed(i < 4 ? pool[i] : own[i - 4], &c, 0x931e8875u);
                const uint32_t z = 0xca01f9ddu * pool[j] - 0x4973f715u * y;
                pool[j] = z ^ z >> 16;
            }
    c = 0x8b51f9ddu;
    for (int i = 0; i < 4; i++)
        out[i] = ptir_hashed(pool[i], &c, 0x58f38dedu);
    const ptir_stream s = {{out[0] | (uint64_t)out[1] << 32, out[2] | (uint64_t)out[3] << 32}, {0, 0, 0, 0}, -1};
    return s;
}

/* The upper half of a product. */
static uint64_t ptir_high(uint64_t x, uint64_t y)
{
    const uint64_t a = x >> 32, b = x & 0xffffffffu, c = y >> 32, d = y & 0xffffffffu;
    const uint64_t middle = a * d + (b * d >> 32), low = b * c + (middle & 0xffffffffu);
    return a * c + (middle >> 32) + (low >> 32);
}

/* Word i: of each four, ten rounds of Philox of their number. */
static uint64_t ptir_word(ptir_stream *s, int64_t i)
{
    if (i / 4 != s->block) {
        uint64_t a = (uint64_t)(i / 4) + 1, b = 0, c = 0, d = 0, k = s->key[0], l = s->key[1];
        for (int round = 0; round < 10; round++) {
            const uint64_t p = ptir_high(0xd2e7470ee14c6c93u, a) ^ d ^ l, q = ptir_high(0xca5a826395121157u, c) ^ b ^ k;
            b = 0xca5a826395121157u * c;
            d = 0xd2e7470ee14c6c93u * a;
            a = q;
            c = p;
            k += 0x9e3779b97f4a7c15u;
            l += 0xbb67ae8584caa73bu;
        }
        s->words[0] = a;
        s->words[1] = b;
        s->words[2] = c;
        s->words[3] = d;
        s->block = i / 4;
    }
    return s->words[i % 4];
}"""


def drawing(n: Nest, op: Op, to: str) -> None:
    """Fill a buffer with random numbers."""
    t = tensor_type(op.result)
    stream, c = op.attr("stream"), computed(t.dtype)
    own = [f"{stream & 0xFFFFFFFF}u", *([f"{stream >> 32}u"] if stream >> 32 else []), f"{len(n.turns)}"]
    own += [f"(uint32_t){i}" for i in n.turns]
    n.helpers.use("ptir_word", STREAM)
    n.put(f"const uint32_t own[] = {{{', '.join(own)}}};")
    n.put(f"ptir_stream first = ptir_drawn({SEED}, own, {len(own)});")
    size = n.let("int64_t", " * ".join(map(n.extent, t.shape)) or "1")
    normal = op.defn.short == "rng_normal"
    if normal:
        n.put("ptir_stream other = first;")
    with n.block(f"for (int64_t l = 0; l < {size}; l++)"):
        if normal:
            u, v = (n.let("double", f"(double)({word} >> 11) * 0x1p-53") for word in
                    ("ptir_word(&first, l)", f"ptir_word(&other, {size} + l)"))  # fmt: skip
            value = f"sqrt(-2.0 * log(1.0 - {u})) * cos(6.283185307179586 * {v})"
            value = f"{n.helpers.named('odd')}({value})" if t.dtype in NARROW else f"({c})({value})"
        else:
            bits = t.dtype.precision
            value = f"({c})(ptir_word(&first, l) >> {64 - bits}) * 0x1p-{bits}{'f' if c == 'float' else ''}"
        n.put(f"{to}[l] = {n.helpers.store(t.dtype, value)};")
