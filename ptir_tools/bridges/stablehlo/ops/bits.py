"""`rng_bit_generator`: random bits that the state determines. The algorithms are those of XLA, which says how a key and a counter
are in the state, and in which order numbers are in the result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptir_tools.bridges.numbers import converted
from ptir_tools.bridges.stablehlo.table import Site, Tensor, handles, refused
from ptir_tools.core.dtypes import I1, UI32, UI64
from ptir_tools.core.violations import require

Words = Sequence[Tensor]  # of 32 bits, the low one first

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_FACTORS, _STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


@handles("stablehlo.rng_bit_generator", algorithm="rng_algorithm")
def rng_bit_generator(site: Site, state: Tensor) -> list[Tensor]:
    """The state after it, and bits. PHILOX is the default, as on a CPU."""
    kind = site.word("rng_algorithm", "DEFAULT")
    require(kind in ("DEFAULT", "PHILOX", "THREE_FRY"), "InvalidAttributeValue", f"`rng_algorithm` is {kind}")
    t = site.tensor_type(site.types[1])
    shape = [d for d in site.known(t.shape) if isinstance(d, int)]
    if state.dtype is not UI64 or state.shape not in ((2,), (3,)):
        raise refused(f"a state of {state.type}; two or three elements of ui64 are read")
    if not t.dtype.is_integer or t.dtype is I1 or t.dtype.bits < 8 or len(shape) < len(t.shape):
        raise refused(f"random bits of {t.dtype}")
    key, counter = (state.slice([k], [1]).reshape([]) for k in (0, 1))
    bits = max(t.dtype.bits, 32)
    if kind == "THREE_FRY":
        if state.shape != (2,):
            raise refused(f"THREE_FRY with a state of {state.type}")
        result, count = _three_fry_in(site, key, counter, shape, bits)
        after = [counter + count]
    else:
        high = key if state.shape == (2,) else state.slice([2], [1]).reshape([])  # a short state has no other high part
        result, count = _philox_in(site, key, counter, high, shape, bits)
        after = [counter + count, high + converted(counter + count < counter, UI64)][: 1 if state.shape == (2,) else 2]
    whole = site.concat([x.reshape([1]) for x in (key, *after)], axis=0)
    return [whole, converted(result, t.dtype)]


def _words(x: Tensor) -> list[Tensor]:
    """The words of 64 bits."""
    return [converted(x, UI32), converted(x.shift_right_logical(32), UI32)]


def _joined(low: Tensor, high: Tensor) -> Tensor:
    """64 bits of two words."""
    return converted(low, UI64).bitwise_or(converted(high, UI64).shift_left(32))


def _three_fry_in(site: Site, key: Tensor, counter: Tensor, shape: list[int], bits: int) -> tuple[Tensor, int]:
    """Bits in a shape by THREE_FRY, and the number of counters. Numbers of 32 bits are in pairs along the first even axis, else
    along the longest."""
    split, half = 0, list(shape)
    if bits == 32 and shape:
        longest = max(range(len(shape)), key=lambda a: shape[a])
        split = next((a for a, d in enumerate(shape) if d % 2 == 0), longest)
        half[split] = -(-shape[split] // 2)
    count = math.prod(half)
    places = site.iota([count], UI64, 0) + counter.broadcast_to([count])
    first, second = _three_fry(_words(places), [w.broadcast_to([count]) for w in _words(key)])
    if bits == 64:
        return _joined(first, second).reshape(shape), count
    if not shape:
        return first.reshape([]), count
    apart = [*half[: split + 1], 1, *half[split + 1 :]]
    paired = site.concat([x.reshape(apart) for x in (first, second)], axis=split + 1)
    whole = paired.reshape([2 * d if a == split else d for a, d in enumerate(half)])
    return (whole if whole.shape == tuple(shape) else whole.slice([0] * len(shape), shape)), count


def _three_fry(x: Words, key: Words) -> list[Tensor]:
    """ThreeFry2x32 of 20 rounds."""
    keys = [*key, key[0].bitwise_xor(key[1]).bitwise_xor(_PARITY)]
    a, b = x[0] + keys[0], x[1] + keys[1]
    for group in range(5):
        for n in _ROTATIONS[group % 2]:
            a = a + b
            b = a.bitwise_xor(b.shift_left(n).bitwise_or(b.shift_right_logical(32 - n)))
        a, b = a + keys[(group + 1) % 3], b + keys[(group + 2) % 3] + (group + 1)
    return [a, b]


def _philox_in(site: Site, key: Tensor, low: Tensor, high: Tensor, shape: list[int], bits: int) -> tuple[Tensor, int]:
    """Bits in a shape by PHILOX, and the number of counters, of 128 bits: each gives four words in order."""
    size = math.prod(shape)
    count = -(-size * (bits // 32) // 4)
    start = low.broadcast_to([count])
    places = site.iota([count], UI64, 0) + start
    carried = high.broadcast_to([count]) + converted(places < start, UI64)
    made = _philox([*_words(places), *_words(carried)], [w.broadcast_to([count]) for w in _words(key)])
    columns = made if bits == 32 else [_joined(*made[:2]), _joined(*made[2:])]
    whole = site.concat([x.reshape([count, 1]) for x in columns], axis=1).reshape([count * len(columns)])
    return whole.slice([0], [size]).reshape(shape), count


def _philox(x: Words, key: Words) -> Words:
    """Philox4x32 of 10 rounds."""
    for _ in range(10):
        (low, high), (low_, high_) = (_words(converted(x[i], UI64) * f) for i, f in ((0, _FACTORS[0]), (2, _FACTORS[1])))
        x = [high_.bitwise_xor(x[1]).bitwise_xor(key[0]), low_, high.bitwise_xor(x[3]).bitwise_xor(key[1]), low]
        key = [k + step for k, step in zip(key, _STEPS, strict=True)]
    return x
