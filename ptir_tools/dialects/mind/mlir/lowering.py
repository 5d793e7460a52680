"""Helpers of the lowering of MIND to linalg: names, types in MLIR's spelling, `linalg.generic`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core.ir import Value
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects.mind.types import dtype_text


def tensor_text(t: Type) -> str:
    """`tensor<2x3xf32>`."""
    return f"tensor<{dims(shape_of(t))}{element_text(t)}>"


def dims(shape: Sequence[int]) -> str:
    """`2x3x`."""
    return "".join(f"{d}x" for d in shape)


def element_text(t: Type) -> str:
    """`f32`."""
    return dtype_text(_tensor(t).dtype)


def _tensor(t: Type) -> TensorType:
    if not isinstance(t, TensorType):
        raise TypeError(t)
    return t


def shape_of(t: Type) -> tuple[int, ...]:
    """The extents of a tensor type."""
    return _tensor(t).static_shape


class Lowering:
    """The lines of one operation. Names of intermediate values have a dot, which no MIND id has."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def fresh(self) -> str:
        """`%t.0`, `%t.1`, …"""
        self.count += 1
        return f"%t.{self.count - 1}"

    def let(self, text: str, name: str = "") -> str:
        """Define a value, with a fresh name by default; its name."""
        name = f"%{name}" if name else self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def empty(self, t: Type) -> str:
        """An uninitialized tensor."""
        return self.let(f"tensor.empty() : {tensor_text(t)}")

    def zeros(self, t: Type) -> str:
        """A tensor of zeros to accumulate into."""
        element = element_text(t)
        zero = self.let(f"arith.constant {zero_text(element)} : {element}")
        return self.let(f"linalg.fill ins({zero} : {element}) outs({self.empty(t)} : {tensor_text(t)}) -> {tensor_text(t)}")

    def generic(
        self,
        result: Value,
        operands: Sequence[Value],
        maps: Sequence[Sequence[str]],
        body: Callable[[Sequence[str]], str],
        *,
        loops: int,
        reductions: Sequence[int] = (),
        init: str = "",
        name: str = "",
    ) -> str:
        """A linalg.generic: one map per operand and one for the result; `body` writes the element and names it."""
        t = result.type
        init = init or self.empty(t)
        axes = ", ".join(f"d{i}" for i in range(loops))
        shown = ", ".join(f"affine_map<({axes}) -> ({', '.join(m)})>" for m in maps)
        kinds = ", ".join('"reduction"' if i in reductions else '"parallel"' for i in range(loops))
        ins = ", ".join(f"%{x.name}" for x in operands)
        types = ", ".join(tensor_text(x.type) for x in operands)
        arguments = [f"%in.{i}" for i in range(len(operands))] + ["%out"]
        typed = ", ".join(f"{a}: {element_text(x.type)}" for a, x in zip(arguments, (*operands, result), strict=True))
        name = self.let(f"linalg.generic {{indexing_maps = [{shown}], iterator_types = [{kinds}]}}", name)
        self.lines[-1] += f" ins({ins} : {types}) outs({init} : {tensor_text(t)}) {{"
        self.lines.append(f"^bb0({typed}):")
        first = len(self.lines)
        found = body(arguments)
        self.lines[first:] = [f"  {line}" for line in self.lines[first:]]
        self.lines += [f"  linalg.yield {found} : {element_text(t)}", f"}} -> {tensor_text(t)}"]
        return name


def zero_text(element: str) -> str:
    """The spelling of zero for an element type in MLIR."""
    return "0.000000e+00" if element.startswith("f") else "0"


def axes_of(n: int) -> list[str]:
    """`d0`, `d1`, …: the identity map of `n` loops."""
    return [f"d{i}" for i in range(n)]


def broadcast_map(shape: Sequence[int], rank: int, result: Sequence[int]) -> list[str]:
    """The indexing map of a broadcast operand: aligned right, 0 where its extent is 1 and the result's is not."""
    skip = rank - len(shape)
    return ["0" if d == 1 and result[skip + i] != 1 else f"d{skip + i}" for i, d in enumerate(shape)]
