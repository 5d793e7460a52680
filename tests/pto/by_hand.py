"""Kernels as an engineer writes them (`testdata/pto/kernels/hand_*.pto`): what they are given, and what NumPy says they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.pto.programs import KERNELS

Arrays = dict[str, np.ndarray]


class Case(NamedTuple):
    """Inputs, what must come out, and how far (relative to its largest number) it may be from that."""

    inputs: Arrays
    wanted: Arrays
    apart: float = 0.0


CASES: dict[str, Callable[[], Case]] = {}


def source(name: str, target: str = "a3") -> str:
    return (KERNELS / f"hand_{name}.pto").read_text().replace("#pto.target<a3>", f"#pto.target<{target}>")


def _case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def _floats(*shape: int, dtype: type = np.float32, seed: int = 5) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def _zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@_case
def mm_ring() -> Case:
    a, b = _floats(32, 256, dtype=np.float16), _floats(256, 64, dtype=np.float16)
    return Case({"a": a, "b": b, "c": _zeros(32, 64)}, {"c": a.astype(float) @ b.astype(float)}, 1e-5)


@_case
def weights() -> Case:
    a, b = _floats(64, 16, dtype=np.float16), _floats(16, 32, dtype=np.float16)
    return Case({"a": a, "b": b, "y": _zeros(64, 32), "n": np.int64(64)}, {"y": a.astype(float) @ b.astype(float)}, 1e-5)


@_case
def ring3() -> Case:
    x, g = _floats(96, 64), _floats(1, 64)
    d = x.astype(float) - x.astype(float).mean(1, keepdims=True)
    return Case({"x": x, "g": g, "y": _zeros(96, 64)}, {"y": d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * g}, 1e-5)


@_case
def flash() -> Case:
    half = np.float16
    q, kt, v = _floats(2, 32, 32, dtype=half), _floats(2, 32, 128, dtype=half), _floats(2, 128, 32, dtype=half)
    p = _softmax(q.astype(float) @ kt.astype(float) * 0.17677669)
    given = {"q": q, "kt": kt, "v": v, "w": _zeros(2, 32, 32, dtype=half), "o": _zeros(2, 32, 32)}
    return Case(given, {"o": p @ v.astype(float)}, 1e-3)


@_case
def softmax_long() -> Case:
    x = 3 * _floats(8, 4000)
    return Case({"x": x, "y": _zeros(8, 4000)}, {"y": _softmax(x.astype(float))}, 1e-5)


@_case
def gather() -> Case:
    table, places = _floats(16, 32), np.random.default_rng(1).integers(0, 16, (8, 1)).astype(np.int32)
    columns = np.arange(32, dtype=np.int32)[None]
    return Case({"tab": table, "ix": places, "col": columns, "y": _zeros(8, 32)}, {"y": table[places[:, 0]]})


@_case
def mixed_valid() -> Case:
    a, b = _floats(40, 48), _floats(40, 20)
    wide = np.zeros((40, 48), np.float32)
    wide[:, :20] = b
    return Case({"a": a, "b": b, "y": _zeros(40, 48), "r": _zeros(40, 1)}, {"y": a + wide, "r": b.max(1, keepdims=True)})


@_case
def nested() -> Case:
    x = _floats(64, 128)
    given = {"x": x, "y": _zeros(4, 128), "n": np.int64(4), "m": np.int64(4)}
    return Case(given, {"y": x.astype(float).reshape(4, 16, 128).sum(1)}, 1e-6)


@_case
def while_ring() -> Case:
    x = _floats(43, 32)
    return Case({"x": x, "y": _zeros(43, 32), "n": np.int64(43)}, {"y": x * np.float32(0.5)})


@_case
def gemv() -> Case:
    x, w, b = _floats(1, 512, dtype=np.float16), _floats(512, 64, dtype=np.float16), _floats(1, 64)
    return Case({"x": x, "w": w, "b": b, "y": _zeros(1, 64)}, {"y": x.astype(float) @ w.astype(float) + b}, 1e-5)


@_case
def argmax() -> Case:
    x = np.random.default_rng(2).integers(0, 50, (32, 256)).astype(np.float32)
    return Case({"x": x, "y": _zeros(32, 1, dtype=np.int32)}, {"y": x.argmax(1, keepdims=True)})


@_case
def quant() -> Case:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((32, 128), (128, 64)))
    scale = (rng.random((1, 64)) / 1000).astype(np.float32)
    whole = (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32)
    given = {"a": a, "b": b, "sc": scale, "y": _zeros(32, 64, dtype=np.float16)}
    return Case(given, {"y": (whole * scale).astype(np.float16)})


@_case
def workspace() -> Case:
    a, b = _floats(64, 32, dtype=np.float16), _floats(32, 32, dtype=np.float16)
    given = {"a": a, "b": b, "w": _zeros(2, 16, 32), "y": _zeros(64, 32)}
    return Case(given, {"y": np.maximum(a.astype(float) @ b.astype(float) + 1, 0)}, 1e-5)


@_case
def branches() -> Case:
    x, h = _floats(64, 32), _floats(16, 32)
    given = {"x": x, "h": h, "y": _zeros(64, 32), "n": np.int64(4)}
    return Case(given, {"y": x - np.concatenate([h, x[:-16]])})


@_case
def calls() -> Case:
    x = _floats(32, 32)
    return Case({"x": x, "w": _zeros(32, 32), "y": _zeros(32, 32)}, {"y": x * np.float32(2) * np.float32(3)})


@_case
def topk() -> Case:
    x = _floats(1, 64)
    return Case({"x": x, "y": _zeros(1, 8)}, {"y": -np.sort(-x)[:, :8]})


@_case
def conv1d() -> Case:
    x = _floats(32, 66)
    return Case({"x": x, "y": _zeros(32, 64)}, {"y": (x[:, :-2] + x[:, 2:]) / 4 + x[:, 1:-1] / 2}, 1e-6)


@_case
def eids() -> Case:
    x = _floats(64, 32)
    return Case({"x": x, "y": _zeros(64, 32)}, {"y": x * np.float32(0.5)})


def agree(case: Case, made: Arrays) -> None:
    """What a run made of the inputs is what NumPy says."""
    for name, wanted in case.wanted.items():
        most = max(1.0, float(np.abs(wanted).max()))
        assert np.abs(made[name].astype(float) - wanted).max() <= case.apart * most, name
