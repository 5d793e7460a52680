"""Contractions as Tiny writes them: every operand repeated over all axes, multiplied, summed."""

from __future__ import annotations

import json


def graph(*nodes):
    """The text of a graph."""
    return json.dumps({"uops": nodes})


def source(shape, id):
    """An fp32 INPUT."""
    return {"id": id, "uop": "INPUT", "arg": {"tensor_id": id, "dtype": "fp32", "shape": list(shape)}}


def node(uop, *src, id="y", **arg):
    """A node."""
    return {"id": id, "uop": uop, "src": list(src)} | ({"arg": arg} if arg else {})


def product(m, k, n):
    """A matrix product."""
    shape = [m, n, k]
    return graph(
        source((m, k), id="A"),
        source((k, n), id="B"),
        node("RESHAPE", "A", id="a1", result_shape=[m, 1, k]),
        node("PERMUTE", "B", id="b0", perm=[1, 0]),
        node("RESHAPE", "b0", id="b1", result_shape=[1, n, k]),
        node("EXPAND", "a1", id="a2", result_shape=shape, broadcast_dimensions=[0, 1, 2]),
        node("EXPAND", "b1", id="b2", result_shape=shape, broadcast_dimensions=[0, 1, 2]),
        node("MUL", "a2", "b2", id="p"),
        node("REDUCE", "p", op="SUM", axes=[2], dtype="fp32"),
    )


def convolution(channels, size, out, groups=1, stride=1):
    """3 x 3, padded by 1, as the specification writes it: POOL, EXPAND, PERMUTE, MUL, REDUCE."""
    c, r, y = channels // groups, out // groups, (size - 1) // stride + 1
    wide = [1, groups, r, y, y, c, 3, 3]
    return graph(
        source((1, channels, size, size), id="X"),
        source((out, c, 3, 3), id="W"),
        node("PAD", "X", id="xp", pad=[[0, 0], [0, 0], [1, 1], [1, 1]], value=0),
        node("POOL", "xp", id="xw", kernel=[3, 3], stride=[stride, stride], dilation=[1, 1]),
        node("RESHAPE", "xw", id="x1", result_shape=[1, groups, c, 1, y, y, 3, 3]),
        node("EXPAND", "x1", id="x2", result_shape=[1, groups, c, r, y, y, 3, 3], broadcast_dimensions=list(range(8))),
        node("PERMUTE", "x2", id="x3", perm=[0, 1, 3, 4, 5, 2, 6, 7]),
        node("RESHAPE", "W", id="w1", result_shape=[1, groups, r, 1, 1, c, 3, 3]),
        node("EXPAND", "w1", id="w2", result_shape=wide, broadcast_dimensions=list(range(8))),
        node("MUL", "x3", "w2", id="p"),
        node("REDUCE", "p", id="s", op="SUM", axes=[5, 6, 7], dtype="fp32"),
        node("RESHAPE", "s", result_shape=[1, out, y, y]),
    )


def attention(heads, length, width):
    """Two contractions with a softmax between, every operand spread over [1, heads, length, length, width]."""
    one, wide = [1, heads, length, length], [1, heads, length, length, width]
    five = {"result_shape": wide, "broadcast_dimensions": [0, 1, 2, 3, 4]}
    row = {"result_shape": one, "broadcast_dimensions": [0, 1, 2]}
    return graph(
        *(source((1, heads, length, width), id=name) for name in "QKV"),
        node("RESHAPE", "Q", id="q1", result_shape=[1, heads, length, 1, width]),
        node("RESHAPE", "K", id="k1", result_shape=[1, heads, 1, length, width]),
        node("EXPAND", "q1", id="q2", **five),
        node("EXPAND", "k1", id="k2", **five),
        node("MUL", "q2", "k2", id="s0"),
        node("REDUCE", "s0", id="s1", op="SUM", axes=[4], dtype="fp32"),
        node("MUL", "s1", 0.125, id="s"),
        node("REDUCE", "s", id="m0", op="MAX", axes=[3], dtype="fp32"),
        node("EXPAND", "m0", id="m", **row),
        node("SUB", "s", "m", id="d"),
        node("MUL", "d", 1.44269504, id="e0"),
        node("EXP2", "e0", id="e"),
        node("REDUCE", "e", id="z0", op="SUM", axes=[3], dtype="fp32"),
        node("EXPAND", "z0", id="z", **row),
        node("FDIV", "e", "z", id="P"),
        node("RESHAPE", "P", id="p1", result_shape=[1, heads, length, length, 1]),
        node("RESHAPE", "V", id="v1", result_shape=[1, heads, 1, length, width]),
        node("EXPAND", "p1", id="p2", **five),
        node("EXPAND", "v1", id="v2", **five),
        node("MUL", "p2", "v2", id="o"),
        node("REDUCE", "o", op="SUM", axes=[3], dtype="fp32"),
    )
