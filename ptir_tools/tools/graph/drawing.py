"""The contents of a drawing in any format: nested nodes, edges, and a place in a grid for each node."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from ptir_tools.core.records import dataclass, field


class Kind(StrEnum):
    """The kind of a node."""

    FUNCTION = "function"
    REGION = "region"
    SPACE = "space"  # ops of one name space, such as a layer
    REPEAT = "repeat"  # several equal runs of ops, each a box inside
    RUN = "run"  # one of these
    PART = "part"  # consecutive ops of a long block
    OP = "op"
    PARAMETER = "parameter"
    RESULTS = "results"


class Category(StrEnum):
    """What an op does, for its color."""

    CONSTANT = "constant"
    ELEMENTWISE = "elementwise"
    PRODUCT = "product"
    REDUCTION = "reduction"
    MOVEMENT = "movement"
    MEMORY = "memory"
    CONTROL = "control"
    CALL = "call"
    OTHER = "other"
    ERROR = "error"


class Style(StrEnum):
    """The style of an edge."""

    USE = "use"
    WAIT = "wait"
    REGION = "region"


@dataclass(slots=True, eq=False)
class Node:
    """An op, a parameter, the results of a block, or a box with nodes `inside`.

    `facts` are the further lines of its label: constants that it reads, then its results with their types. `text` is the
    complete statement, `sign` is equal for ops that compute the same from the same inputs. `pipe` is the unit that executes it,
    if there are several. `operations` and `bytes` are None if they contain a symbol. `error` is that of its values compared with
    another program, as a part of the bound. `row` and `column` are its place among the nodes of `parent`.
    """

    kind: Kind
    title: str
    facts: tuple[str, ...] = ()
    text: str = ""
    pipe: str = ""
    category: Category | None = None
    sign: int = 0
    error: float | None = None
    operations: int | None = None
    bytes: int | None = None
    parent: Node | None = None
    inside: list[Node] = field(default_factory=list)
    row: int = 0
    column: int = 0

    def within(self) -> Iterator[Node]:
        """The node, then all nodes inside it, outer before inner."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.inside))


@dataclass(slots=True, eq=False)
class Edge:
    """A use of `label`, a wait for an event, or an op's reference to a region that is drawn elsewhere."""

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
