"""The layout of a drawing: the row of a node is below all that it depends on, its column near them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ptir_tools.tools.graph.drawing import Node

WIDEST = 32  # nodes in a row; more are in the next
_SWEEPS = 2


def arrange(blocks: Sequence[Node], edges: Iterable[tuple[Node, Node]]) -> None:
    """Give every node its `row` and `column` among the nodes inside its parent. Blocks are in one column, in their order."""
    depths: dict[Node, int] = {}
    for block in blocks:
        for node in block.within():
            depths[node] = 0 if node.parent is None else depths[node.parent] + 1
    links: dict[Node, dict[tuple[Node, Node], None]] = defaultdict(dict)
    for source, target in edges:
        if (pair := _siblings(source, target, depths)) is not None and pair[0].parent is not None:
            links[pair[0].parent][pair] = None
    for k, block in enumerate(blocks):
        block.row = k
        for box in block.within():
            if box.inside:
                _grid(box.inside, list(links[box]))


def _siblings(a: Node, b: Node, depths: dict[Node, int]) -> tuple[Node, Node] | None:
    """The nodes around `a` and `b` (or themselves) with the same parent; None if one is inside the other."""
    while depths[a] > depths[b] and a.parent is not None:
        a = a.parent
    while depths[b] > depths[a] and b.parent is not None:
        b = b.parent
    while a is not b and a.parent is not None and b.parent is not None and a.parent is not b.parent:
        a, b = a.parent, b.parent
    return None if a is b else (a, b)


def _grid(nodes: Sequence[Node], links: Sequence[tuple[Node, Node]]) -> None:
    """Place siblings. They are in program order, so a link leads forward, except around a loop."""
    place = {node: k for k, node in enumerate(nodes)}
    above: list[list[int]] = [[] for _ in nodes]
    below: list[list[int]] = [[] for _ in nodes]
    for a, b in links:
        if place[a] < place[b]:
            above[place[b]].append(place[a])
            below[place[a]].append(place[b])
    depth = [0] * len(nodes)
    for k in range(len(nodes)):
        depth[k] = max((depth[p] + 1 for p in above[k]), default=0)
    for k in reversed(range(len(nodes))):  # a node that depends on nothing is right above its first use
        if not above[k] and below[k]:
            depth[k] = min(depth[p] for p in below[k]) - 1
    rows: dict[int, list[int]] = defaultdict(list)
    for k, d in enumerate(depth):
        rows[d].append(k)
    ordered = [rows[d] for d in sorted(rows)]
    _untangle(ordered, above, below)
    number = 0
    for row in ordered:
        for first in range(0, len(row), WIDEST):
            for column, k in enumerate(row[first : first + WIDEST]):
                nodes[k].row, nodes[k].column = number, column
            number += 1


def _untangle(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order each row by the mean place of its neighbors, downward and upward: fewer edges cross."""
    at = {k: (i + 0.5) / len(row) for row in rows for i, k in enumerate(row)}
    for sweep in range(2 * _SWEEPS):
        neighbors = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            mean = {k: sum(at[n] for n in neighbors[k]) / len(neighbors[k]) if neighbors[k] else at[k] for k in row}
            row.sort(key=mean.__getitem__)
            at.update((k, (i + 0.5) / len(row)) for i, k in enumerate(row))
