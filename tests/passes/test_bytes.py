"""`raise-bytes`: 32-bit products of shifted bytes become products of bytes and give every bit, wraps included."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools import optimize, run
from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.builder.build import Graph, Tensor

NUMPY = {"si8": np.int8, "ui8": np.uint8}


class Sides:
    """Operands of one product, with the arrays for its inputs."""

    def __init__(self, seed: int) -> None:
        self.rng, self.graph, self.given = np.random.default_rng(seed), Graph(), dict[str, np.ndarray]()

    def of(self, kind: str, shape: tuple[int, ...], point: str, constant: bool = False) -> tuple[Tensor, np.ndarray]:
        """Bytes minus a zero point: the tensor of si32, and what it is for the drawn inputs."""
        ends = np.iinfo(NUMPY[kind])
        values = self.rng.integers(ends.min, ends.max + 1, shape).astype(NUMPY[kind])
        values.flat[0], values.flat[-1] = ends.min, ends.max
        x = self.graph.constant(values) if constant else self.input(values, kind)
        zero = np.asarray(self.rng.integers(ends.min, ends.max + 1), NUMPY[kind])
        wide, exact = x.cast("si32"), values.astype(np.int32)
        if point == "none":
            return wide, exact
        z = self.graph.constant(zero) if point == "constant" else self.input(zero, kind)
        return wide - z.cast("si32").broadcast_to(shape), exact - zero.astype(np.int32)

    def input(self, values: np.ndarray, kind: str) -> Tensor:
        """An input of the program."""
        name = f"x{len(self.given)}"
        self.given[name] = values
        return self.graph.input(name, kind, values.shape)


def _ops(program: Program) -> list[str]:
    return [op.defn.short for op in program.main.body]


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_zero_points_and_moves(seed: int) -> None:
    g = Sides(seed)
    rng = g.rng
    kinds, points = rng.choice(["si8", "ui8"], 2), rng.choice(["none", "constant", "given"], 2)
    m, k, n = (int(rng.integers(28, 40)) for _ in range(3))
    left, x = g.of(kinds[0], (m, k), points[0])
    turned = bool(rng.integers(2))
    right, w = g.of(kinds[1], (n, k) if turned else (k, n), points[1], bool(rng.integers(2)))
    if rng.integers(2):
        left = left.transpose([1, 0]).reshape([k, m]).transpose([1, 0])
    if rng.integers(2):
        axis = int(turned)  # a slice of the contracted axis of both
        left, x = left.slice([0, 1], [m, k - 1]), x[:, 1:]
        starts, sizes = [0, 0], list(w.shape)
        starts[axis], sizes[axis] = 1, k - 1
        right, w = right.slice(starts, sizes), w[:, 1:] if axis else w[1:]
    program = g.graph.returns(left.dot_general(right, contract_lhs=[1], contract_rhs=[int(turned)]).named("y"))
    exact = x @ (w.T if turned else w)
    raised = optimize(program, "raise-bytes,canonicalize,dce")
    dot = next(op for op in raised.main.body if op.defn.short == "dot_general")
    assert all(str(v.type.dtype) in NUMPY for v in dot.operands)
    for engine in ("reference", "numpy", "auto"):
        np.testing.assert_array_equal(run(raised, g.given, engine=engine)["y"], exact)


@pytest.mark.parametrize("kinds", [("ui8", "si8"), ("si8", "si8"), ("si8", "ui8"), ("ui8", "ui8")])
@pytest.mark.parametrize("point", ["none", "constant", "given"])
@pytest.mark.parametrize("padding", [[[1, 1], [2, 0]], [[0, 0], [0, 0]]])
@pytest.mark.parametrize("weights", ["clipped", "shifted", "written"])
def test_patches_are_padded_with_zero_points(kinds: tuple[str, str], point: str, padding: list[list[int]], weights: str) -> None:
    """`shifted` weights do not fit in signed bytes; `written` ones are not folded."""
    g = Sides(3)
    image, x = g.of(kinds[0], (2, 9, 8, 5), point)
    right, w = g.of(kinds[1], (45, 17), "constant", True)
    if weights != "written":
        w = w.clip(-128, 127) if weights == "clipped" else w
        right = g.graph.constant(w)
    y = image.extract_patches([3, 3], strides=[2, 1], padding=padding)
    program = g.graph.returns(y.dot_general(right, contract_lhs=[3], contract_rhs=[0]).named("y"))
    raised = optimize(program, "raise-bytes,canonicalize,dce")
    dot = next(op for op in raised.main.body if op.defn.short == "dot_general")
    assert all(str(v.type.dtype) in NUMPY for v in dot.operands)
    padded = np.pad(x, ((0, 0), *padding, (0, 0)))
    across = range(0, padded.shape[1] - 2, 2), range(padded.shape[2] - 2)
    windows = [[padded[:, i : i + 3, j : j + 3].reshape(2, 45) for j in across[1]] for i in across[0]]
    exact = np.array(windows).transpose(2, 0, 1, 3) @ w
    for engine in ("reference", "numpy", "auto"):
        np.testing.assert_array_equal(run(raised, g.given, engine=engine)["y"], exact)


@pytest.mark.parametrize("batch", [(0, 1), (1, 0)])
def test_batches_in_order(batch: tuple[int, int]) -> None:
    g = Sides(7)
    left, x = g.of("ui8", (2, 3, 20, 30), "given")
    right, w = g.of("si8", (2, 3, 30, 20) if batch == (0, 1) else (3, 2, 30, 20), "given")
    y = left.dot_general(right, batch_lhs=[0, 1], batch_rhs=list(batch), contract_lhs=[3], contract_rhs=[2]).named("y")
    program = g.graph.returns(y)
    raised = optimize(program, "raise-bytes,canonicalize,dce")
    assert ("bitcast" in _ops(raised)) == (batch == (0, 1))
    np.testing.assert_array_equal(run(raised, g.given)["y"], x @ w.transpose(*batch, 2, 3))


@pytest.mark.parametrize("why", ["small", "rows have zero points of their own", "not bytes", "symbols", "far apart"])
def test_what_stays(why: str) -> None:
    g = Graph()
    kind, rows = ("si16" if why == "not bytes" else "si8"), (3 if why == "small" else "N" if why == "symbols" else 64)
    x, w, p = g.input("x", kind, (rows, 64)), g.input("w", kind, (64, 64)), g.input("p", kind, (64, 1))
    zero = p.cast("si32").broadcast_to([64, 64]) if why == "rows have zero points of their own" else None
    left = x.cast("si32") if zero is None else x.cast("si32") - zero
    numbers = np.linspace(-200, 100, 64 * 64).astype(np.int32).reshape(64, 64)
    right = g.constant(numbers) if why == "far apart" else w.cast("si32")
    program = g.returns(left.dot_general(right, contract_lhs=[1], contract_rhs=[0]))
    assert _ops(optimize(program, "raise-bytes")) == _ops(program)
