"""Random tensors: the words of a stream, a tile at a time, with the same numbers as the declared bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, F64
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.ops.random import random_stream, uniform_fractions
from ptir_tools.engines.numpy.steps import Builder, Running, Step, Workshop, declared

TILE = 1 << 14  # elements


def _uniform(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    if op.attr("dtype") is not F32:
        return declared(op, ins, outs, shop)
    return [(_draw_uniform, (op, shop.running, outs[0].reshape(-1)))]


def _draw_uniform(op: Op, running: Running, out: Array) -> None:
    """As many bits as f32 has, so every conversion and product is exact."""
    words, bits = random_stream(op.attr("stream"), op, running.context), F32.precision
    for piece in _tiles(out):
        raw = words.random_raw(len(piece))
        np.right_shift(raw, np.uint64(64 - bits), raw)
        np.copyto(piece, raw.view(np.int64), "unsafe")
        np.multiply(piece, np.float32(2.0**-bits), piece)


def _normal(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    if op.attr("dtype") not in (F32, F64):
        return declared(op, ins, outs, shop)
    return [(_draw_normal, (op, shop.running, shop.scratch((outs[0].size,), F64), outs[0].reshape(-1)))]


def _draw_normal(op: Op, running: Running, radius: Array, out: Array) -> None:
    """The Box-Muller transform: all radii are drawn before the first angle."""
    words, bits = random_stream(op.attr("stream"), op, running.context), F64.precision
    for piece in _tiles(radius):
        np.subtract(1.0, uniform_fractions(words.random_raw(len(piece)), bits), piece)
        np.log(piece, piece)
        np.multiply(piece, -2.0, piece)
        np.sqrt(piece, piece)
    for piece, length in zip(_tiles(out), _tiles(radius), strict=True):
        angle = 2.0 * np.pi * uniform_fractions(words.random_raw(len(piece)), bits)
        np.cos(angle, angle)
        np.multiply(angle, length, piece, casting="unsafe")


def _tiles(x: Array) -> Iterator[Array]:
    return (x[at : at + TILE] for at in range(0, x.size, TILE))


BUILDERS: dict[str, Builder] = {"uniform": _uniform, "normal": _normal}
