"""Which buffers hold what is still read, where blocks begin and end: what loops must carry, and what branches must give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ptir_tools.core.records import NamedTuple
from ptir_tools.grammars.parser import Node, Token

Names = frozenset[str]
NOTHING: Names = frozenset()
UPDATES = frozenset({"pto.tinsert", "pto.tinsert_fp", "pto.taxpy"})  # ops that read the buffer that they write


def op_name(op: Node) -> str:
    """The name of an op, without quotes."""
    return next(str(t).strip('"') for t in op.tokens() if t.type in ("NAME", "QUOTED"))


def groups(op: Node, word: str) -> list[Node]:
    """The groups that follow `word` in an op: `ins`, `outs`."""
    pairs = zip(op.children, op.children[1:], strict=False)
    return [
        x for before, x in pairs if isinstance(before, Token) and before == word and isinstance(x, Node) and x.data == "group"
    ]


def values(node: Node) -> list[Token]:
    """The values that a node names, outside of its blocks."""
    found: list[Token] = []
    for x in node.children:
        if isinstance(x, Token) and x.type == "SSA":
            found.append(x)
        elif isinstance(x, Node) and x.data != "block":
            found += values(x)
    return found


def defined(node: Node) -> list[str]:
    """The names that a statement defines: `%r:2` is `%r#0` and `%r#1`."""
    found: list[str] = []
    for t in (t for t in node.tokens() if t.type == "RESULT"):
        for part in t.rstrip(" \t\r\n=").split(","):
            name, _, count = part.strip().partition(":")
            found += [f"{name}#{k}" for k in range(int(count[:4]))] if count else [name]
    return found


def written(node: Node) -> Names:
    """The buffers that a statement writes into, in its blocks too."""
    if node.data == "op":
        into = values(node)[:1] if op_name(node) == "pto.tpop" else [t for g in groups(node, "outs") for t in values(g)]
        return frozenset(map(str, into))
    return frozenset(name for block in node.parts("block") for x in block.children for name in written(x))


def has_pipe(function: Node) -> bool:
    """Whether a function initializes a pipe between cores."""
    return any(op_name(op).endswith("_pipe") for op in _ops(function))


class Fixed(NamedTuple):
    """Bytes at an address that is a number: the first name for them, with the type that it has."""

    name: str
    address: int
    type: Token


def fixed(function: Node, bytes_of: Callable[[Token], object]) -> dict[str, Fixed]:
    """Buffers at an address that is a number, by name. Two of them are the same bytes if they have the same address, and the
    same `bytes_of` their types (space and size); None for a type with an error."""
    numbers: dict[str, int] = {}
    first: dict[tuple[int, object], Fixed] = {}
    found: dict[str, Fixed] = {}
    for node in _ops(function):
        name = op_name(node)
        if name == "arith.constant" and (known := [t for t in node.tokens() if t.type == "NUMBER" and t.isdecimal()]):
            numbers[defined(node)[0]] = int(known[0])
        elif name == "pto.alloc_tile":
            keyed = {str(k.token("WORD")): str(k.tokens()[-1]) for k in node.parts("keyed")}
            at, listed, own = numbers.get(keyed.get("addr", "")), node.part("signature"), defined(node)[0]
            if at is not None and listed is not None:
                t = listed.parts("types")[-1].token()
                if (size := bytes_of(t)) is not None:
                    found[own] = first.setdefault((at, size), Fixed(own, at, t))
    return found


def _ops(node: Node) -> Iterator[Node]:
    """The ops in a node, in the order of the text."""
    for x in node.children:
        if isinstance(x, Node):
            if x.data == "op":
                yield x
            elif x.data in ("block", "loop", "branch", "repeat", "section"):
                yield from _ops(x)


class Flow:
    """Live buffers of a function. A buffer is called by the first name of its bytes (`same`).

    `after` has, by the id of a loop or branch, what is read behind it before it is written. `before` has, by the id of a loop,
    what an iteration, or the body behind a condition, reads before it writes it.
    """

    def __init__(self, function: Node, same: Mapping[str, Fixed]) -> None:
        self.same = same
        self.after: dict[int, Names] = {}
        self.before: dict[int, Names] = {}
        for block in function.parts("block"):
            self.block(block.children, NOTHING)

    def first(self, name: str) -> str:
        """The first name of the same bytes."""
        return self.same[str(name)].name if str(name) in self.same else str(name)

    def written(self, node: Node) -> Names:
        """The buffers that a statement writes into, in its blocks too."""
        return frozenset(map(self.first, written(node)))

    def block(self, statements: list[Node], live: Names) -> Names:
        """What is live before statements, after which `live` is."""
        for node in reversed(statements):
            live = self.statement(node, live)
        return live

    def statement(self, node: Node, live: Names) -> Names:
        """What is live before one statement."""
        live -= {name for name in defined(node) if name not in self.same}
        if node.data == "op":
            into = NOTHING if op_name(node) in UPDATES else self.written(node)
            places = {t.start_pos for g in groups(node, "outs") for t in values(g)} if into else set()
            return (live - into) | {self.first(t) for t in values(node) if t.start_pos not in places}
        blocks = [x.children for x in node.parts("block")]
        if node.data == "section":
            return self.block(blocks[0], live)
        self.after[id(node)] = live
        used = {self.first(t) for t in values(node)}
        if node.data == "branch":
            return self.block(blocks[0], live) | (self.block(blocks[1], live) if len(blocks) > 1 else live) | used
        head = NOTHING
        while True:  # what an iteration reads, the one before may have written
            last = inside = self.block(blocks[-1], head | live)
            for block in reversed(blocks[:-1]):  # that of the condition
                inside = self.block(block, inside | live)
            if inside <= head:
                break
            head |= inside
        self.before[id(node)] = head | last
        return head | live | used
