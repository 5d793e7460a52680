"""Random Tiny graphs in which RESHAPE and EXPAND give symbols their numbers, some of them dead."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

Dim = int | str


@dataclass
class SymbolGraph:
    """A graph under way: its nodes, the arrays of its inputs, the shapes of all, and the numbers of its symbols."""

    rng: random.Random
    uops: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, list[Dim]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    given: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The graph, one or two of its last nodes the outputs."""
        nodes = [u["id"] for u in self.uops if u["uop"] != "INPUT"] or [*self.shapes]
        return json.dumps({"uops": self.uops, "outputs": self.rng.sample(nodes, min(len(nodes), self.rng.randrange(1, 3)))})

    def numbers(self, shape: list[Dim]) -> list[int]:
        return [d if isinstance(d, int) else sum(self.sizes.get(t) or int(t) for t in d.split("+")) for d in shape]

    def node(self, uop: str, src: list[str], arg: dict[str, Any], shape: list[Dim]) -> str:
        name = f"n{len(self.uops)}"
        self.uops.append({"id": name, "uop": uop, "src": src, "arg": arg})
        self.shapes[name] = shape
        return name

    def input(self) -> None:
        name, shape = f"x{len(self.inputs)}", [self.rng.choice([*self.given, 2, 3, 5]) for _ in range(self.rng.randrange(1, 4))]
        self.uops.append({"id": name, "uop": "INPUT", "arg": {"tensor_id": name, "dtype": "i32", "shape": shape}})
        self.shapes[name] = shape
        numbers = self.numbers(shape)
        self.inputs[name] = np.array(self.rng.choices(range(-9, 10), k=prod(numbers)), np.int32).reshape(numbers)

    def fresh(self, n: int) -> str:
        """A new symbol that is `n`, or one that there is."""
        same = [s for s, m in self.sizes.items() if m == n and s not in self.given]
        if same and self.rng.random() < 0.4:
            return self.rng.choice(same)
        self.sizes[name := f"D{len(self.sizes)}"] = n
        return name

    def grow(self) -> None:
        """A node of what there is."""
        rng, x = self.rng, self.rng.choice([*self.shapes])
        shape = self.shapes[x]
        numbers = self.numbers(shape)
        match rng.choice(["rename", "flatten", "expand", "pad", "binary", "reduce"] if shape else ["flatten", "binary"]):
            case "rename":
                made = [self.fresh(n) if rng.random() < 0.5 else d for d, n in zip(shape, numbers, strict=True)]
                self.node("RESHAPE", [x], {"result_shape": made}, made)
            case "flatten":
                made = [*[1] * rng.randrange(2), self.fresh(prod(numbers))]
                self.node("RESHAPE", [x], {"result_shape": made}, made)
            case "expand":
                mentioned = {d for s in self.shapes.values() for d in s if d in self.sizes}
                last = [self.fresh(n) if rng.random() < 0.4 and n != 1 else d for d, n in zip(shape, numbers, strict=True)]
                made = [rng.choice([*sorted(mentioned), 2]), *last]
                axes = list(range(1, len(made)))
                self.node("EXPAND", [x], {"result_shape": made, "broadcast_dimensions": axes}, made)
            case "pad":
                pads = [[rng.randrange(2), rng.randrange(2)] for _ in shape]
                wide = [d + sum(p) if isinstance(d, int) else f"{d}+{sum(p)}" for d, p in zip(shape, pads, strict=True)]
                y = self.node("PAD", [x], {"pad": pads}, wide)
                made = [self.fresh(n) if isinstance(d, str) else d for d, n in zip(wide, self.numbers(wide), strict=True)]
                self.node("RESHAPE", [y], {"result_shape": made}, made)
            case "binary":
                other = rng.choice([y for y, s in self.shapes.items() if s == shape])
                self.node(rng.choice(["ADD", "MUL", "MAX"]), [x, other], {}, shape)
            case "reduce":
                axis = rng.randrange(len(shape))
                kept = [d for i, d in enumerate(shape) if i != axis]
                self.node("REDUCE", [x], {"op": "SUM", "axes": [axis], "dtype": "i32"}, kept)


def symbol_graph(seed: int) -> tuple[str, dict[str, Any]]:
    """A graph as JSON, and arrays for its inputs."""
    rng = random.Random(seed)
    made = SymbolGraph(rng, sizes={"N": rng.choice([2, 3]), "M": rng.choice([2, 4])}, given=("N", "M"))
    for _ in range(rng.randrange(1, 4)):
        made.input()
    for _ in range(rng.randrange(3, 9)):
        made.grow()
    return made.text, made.inputs
