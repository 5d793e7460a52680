"""What a drawing of a program shows, whatever its form: nodes inside each other, edges, and a place in a grid for each node."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from ptir_tools.core.records import dataclass, field


class Kind(StrEnum):
    """What a node is for."""

    FUNCTION = "function"
    REGION = "region"
    REPEAT = "repeat"  # one of several equal runs of ops
    OP = "op"
    PARAMETER = "parameter"
    RESULTS = "results"


class Style(StrEnum):
    """What an edge is for."""

    USE = "use"
    WAIT = "wait"
    REGION = "region"


@dataclass(slots=True, eq=False)
class Node:
    """An op, a parameter, the results of a block, or a box with nodes `inside`.

    `text` is the whole statement. `pipe` is the unit that executes it, where several run side by side. `operations` and `bytes`
    are None where a symbol is in them. `row` and `column` are its place among the nodes of `parent`.
    """

    kind: Kind
    title: str
    types: tuple[str, ...] = ()
    text: str = ""
    pipe: str = ""
    operations: int | None = None
    bytes: int | None = None
    parent: Node | None = None
    inside: list[Node] = field(default_factory=list)
    row: int = 0
    column: int = 0

    def within(self) -> Iterator[Node]:
        """The node, then all that are inside, outer before inner."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.inside))


@dataclass(slots=True, eq=False)
class Edge:
    """A use of `label`, a wait for an event, or an op's reference to a region that is drawn apart from it."""

    source: Node
    target: Node
    label: str = ""
    style: Style = Style.USE


@dataclass(slots=True, eq=False)
class Drawing:
    """Functions, then the regions that are not inside an op."""

    blocks: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """Every node, outer before inner."""
        return (node for block in self.blocks for node in block.within())
