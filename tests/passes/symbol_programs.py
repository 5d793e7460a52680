"""Random PTIR programs whose symbols come from ops, some of them dead. NumPy computes each value as it is made."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class _Made:
    name: str
    dims: tuple[str, ...]  # as the text says them: a number, or ?Name
    array: Array

    @property
    def type(self) -> str:
        return f"tensor<f32, {'x'.join(self.dims)}>" if self.dims else "tensor<f32>"


@dataclass
class SymbolProgram:
    """A program, its inputs, and what it returns."""

    text: str
    inputs: dict[str, Array]
    results: list[Array]


@dataclass
class _Maker:
    """The body of a function under way. A result extent gets a new symbol, or at times the number."""

    rng: random.Random
    values: list[_Made] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    letter: str = "v"  # with which names begin

    def extent(self, n: int) -> str:
        """A new symbol that is `n`, or one that there is."""
        same = [s for s, m in self.sizes.items() if m == n]
        if same and self.rng.random() < 0.2:
            return self.rng.choice(same)  # checked when the program runs
        self.sizes[name := f"?S{len(self.sizes)}"] = n
        return name

    def pick(self, rank: int = -1) -> _Made:
        return self.rng.choice([v for v in self.values if rank < 0 or len(v.dims) == rank])

    def long(self) -> _Made:
        """A vector of two elements or more."""
        return self.rng.choice([v for v in self.values if len(v.dims) == 1 and v.array.size > 1])

    def emit(self, text: str, dims: tuple[str, ...], array: Array) -> _Made:
        made = _Made(f"{self.letter}{len(self.lines)}", dims, np.asarray(array, np.float32))
        self.lines.append(f"    %{made.name} = {text} -> {made.type}")
        self.values.append(made)
        return made

    def op(self) -> None:
        """One op: those that measure an extent are as likely as those that mention one."""
        getattr(self, self.rng.choice([n for n in dir(self) if n.startswith("make_")]))()

    def make_concat(self) -> None:
        x, y = self.pick(1), self.pick(1)
        array = np.concatenate([x.array, y.array])
        self.emit(f"concat(%{x.name}, %{y.name}) axis[0]", (self.extent(array.size),), array)

    def make_pad(self) -> None:
        x, low = self.pick(1), self.rng.randrange(3)
        array = np.pad(x.array, (low, 1))
        self.emit(f"pad(%{x.name}) low[{low}] high[1]", (self.extent(array.size),), array)

    def make_tile(self) -> None:
        x = self.pick(1)
        array = np.tile(x.array, 2)
        self.emit(f"tile(%{x.name}) repeats[2]", (self.extent(array.size),), array)

    def make_flat(self) -> None:
        x = self.pick(2)
        name = self.extent(x.array.size)
        self.emit(f"reshape(%{x.name}) new_shape[{name}]", (name,), x.array.reshape(-1))

    def make_split(self) -> None:
        x = self.pick(1)
        rows = [s for s, n in self.sizes.items() if n and x.array.size and x.array.size % n == 0]
        if rows:
            array = x.array.reshape(self.sizes[row := self.rng.choice(rows)], -1)
            dims = row, self.extent(array.shape[1])
            if dims[0] != dims[1]:
                self.emit(f"reshape(%{x.name}) new_shape[{', '.join(dims)}]", dims, array)

    def make_column(self) -> None:
        x = self.pick(1)
        self.emit(f"reshape(%{x.name}) new_shape[{x.dims[0]}, 1]", (x.dims[0], "1"), x.array.reshape(-1, 1))

    def make_windows(self) -> None:
        x = self.long()
        array = np.array([x.array[i] + x.array[i + 1] for i in range(x.array.size - 1)])
        self.emit(
            f"reduce_window(%{x.name}) window_dims[2] strides[1] padding[[0, 0]] base_dilation[1] window_dilation[1]",
            (self.extent(array.size),),
            array,
        )

    def make_slice(self) -> None:
        x = self.long()
        self.emit(f"slice(%{x.name}) starts[1] sizes[1]", ("1",), x.array[1:2])

    def make_iota(self) -> None:
        if self.sizes:
            name = self.rng.choice(list(self.sizes))
            self.emit("iota() axis[0]", (name,), np.arange(self.sizes[name]))

    def make_filled(self) -> None:
        if self.sizes:
            name = self.rng.choice(list(self.sizes))
            text = f"broadcast_to(dense<1.5> : tensor<f32>) result_shape[{name}, 2]"
            self.emit(text, (name, "2"), np.full((self.sizes[name], 2), 1.5))

    def make_neg(self) -> None:
        x = self.pick()
        if self.rng.random() < 0.5:
            self.emit(f"neg(%{x.name})", x.dims, -x.array)
        else:
            self.emit(f"abs(%{x.name})", x.dims, abs(x.array))

    def make_add(self) -> None:
        x = self.pick()
        y = self.rng.choice([v for v in self.values if v.dims == x.dims])
        self.emit(f"add(%{x.name}, %{y.name})", x.dims, x.array + y.array)

    def make_sum(self) -> None:
        x = self.pick(2)
        self.emit(f"reduce_sum(%{x.name}) axes[1]", (x.dims[0],), x.array.sum(1))


def symbol_program(seed: int) -> SymbolProgram:
    """The program of a seed: three or four results of many ops, one of them in a branch at times."""
    rng = random.Random(seed)
    shapes = {"a": (rng.randrange(2, 5),), "b": (rng.randrange(2, 5),), "m": (rng.randrange(2, 4), 2)}
    inputs = {n: np.arange(np.prod(s), dtype=np.float32).reshape(s) + 1 for n, s in shapes.items()}
    maker = _Maker(rng)
    for (name, x), dims in zip(inputs.items(), (("?A",), ("?B",), ("?M", "2")), strict=True):
        maker.values.append(_Made(name, dims, x))
    maker.sizes |= {"?A": inputs["a"].size, "?B": inputs["b"].size, "?M": len(inputs["m"])}
    params = ", ".join(f"%{v.name}: {v.type}" for v in maker.values)
    for _ in range(rng.randrange(4, 16)):
        maker.op()
    regions = ""
    if rng.random() < 0.4:  # the symbols of a region are those of the program
        given = maker.pick(1)
        inner = _Maker(rng, [_Made("p", given.dims, given.array)], sizes=maker.sizes, letter="w")
        for _ in range(4):
            rng.choice([inner.make_concat, inner.make_pad, inner.make_iota, inner.make_neg])()
        last, body = inner.values[-1], "\n".join(inner.lines)
        regions = f"  region ^r0(%p: {given.type}) -> {last.type} {{\n{body}\n    return %{last.name}\n  }}\n"
        maker.lines.append("    %t = constant() value[dense<true>] -> tensor<i1>")
        branch = _Made("branch", last.dims, last.array)
        maker.lines.append(f"    %branch = cond(%t, %{given.name}) true_region[^r0] false_region[^r0] -> {last.type}")
        maker.values.append(branch)
        for _ in range(3):
            maker.op()
    wanted = rng.sample(maker.values[3:], min(len(maker.values) - 3, rng.randrange(1, 4)))
    types, names = ", ".join(v.type for v in wanted), ", ".join(f"%{v.name}" for v in wanted)
    head = f"program @main (spec_version = ptir.v0.4) {{\n  func @main({params}) -> ({types}) {{\n"
    text = head + "\n".join(maker.lines) + f"\n    return {names}\n  }}\n{regions}}}\n"
    return SymbolProgram(text, inputs, [v.array for v in wanted])
