"""Reads Tiny's one serialization: `{"uops": [node…], "outputs": [id…]?, "dims": {symbol: int}?}`, comments allowed.

Node ids become value names, INPUT nodes the function's parameters, immediates literals that `legalize` types. Nodes may be
listed in any order; the body is topological. A node in error becomes a poisoned parameter, so that its users stay silent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ptir_tools.core import places
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Function, Literal, Op, OpDef, Operand, Value, operand_type
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Source, Span, pack_json
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import Any
from ptir_tools.core.types import POISON, UNTYPED, TensorType, tensor
from ptir_tools.core.violations import OP_NAME, Place, Violation, attribute
from ptir_tools.core.violations import key as key_of
from ptir_tools.dialects import jsonc
from ptir_tools.dialects.jsonc import Json
from ptir_tools.dialects.synonyms import is_function, op_meant
from ptir_tools.dialects.tiny import DIALECT
from ptir_tools.dialects.tiny import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.tiny.immediates import WORDS, untyped
from ptir_tools.dialects.tiny.ops.reduce import KINDS
from ptir_tools.dialects.tiny.text.args import AXIS, INPUT, is_integer, read_args, read_listed

KEYS = ("id", "uop", "src", "arg", "tag")
TOP = ("uops", "outputs", "dims")


@dataclass(slots=True, eq=False)
class Node:
    """A node as listed in the file."""

    id: str
    uop: str
    src: Any
    arg: Any
    index: int
    loc: Loc
    bad: bool = False


@collector_paused()
def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The graph in `source`; errors go to `diagnostics`. Raises LimitExceeded."""
    diagnostics.source = diagnostics.source or source
    before = diagnostics.errors
    source.keys = {"op": "uop", "operand": "src"}
    value = jsonc.parse(source, diagnostics, code=DIALECT.codes.syntax, limits=options.limits)
    if diagnostics.errors > before:
        return None
    if not isinstance(value, dict) or not isinstance(listed := value.get("uops"), list):
        diagnostics.error("InvalidNode", 'a graph is an object with a list "uops"', Span(0, 1))
        return None
    if (at := jsonc.first_comment(source.text)) is not None:
        diagnostics.note("JsonComment", "JSON has no comments; they are read, and only fmt keeps them", Span(at, at + 2))
    return _Reader(source, diagnostics, options).graph(value, listed)


_WITHOUT = "Tiny has no such function; `ptir translate --to tiny` writes it as a formula"


class _Reader:
    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.limits = options.limits
        self.container = source.add_container(("uops",))
        self.nodes: dict[str, Node] = {}
        self.values: dict[str, Value] = {}
        self.function = Function("main")
        self.names: list[str] = []
        self.missing: set[str] = set()  # unknown ids that were reported
        self.unread = False  # some node could not be read, so its id is not known
        self.ops = DIALECT.ops
        self.forms: set[tuple[object, ...]] = set()  # keys and types of the values of nodes that are well formed
        self.known: dict[tuple[str, bytes], tuple[object, ...]] = {}  # attributes by UOp and `arg`

    def graph(self, value: dict[str, Json], listed: list[Json]) -> Program:
        if len(listed) > self.limits.ops:
            raise LimitExceeded(f"{len(listed)} nodes, the limit is {self.limits.ops}", "--max-ops")
        for i, item in enumerate(listed):
            try:
                self.node(item, i)
            except LimitExceeded as limit:
                raise limit.at(self.at("uops", i)) from None
            listed[i] = None  # free the JSON of a node that has been read
        sinks = _sinks(list(self.nodes.values())) if value.get("outputs") is None else []
        for node in self.ordered():
            self.define(node)
            node.src, node.arg = (), {}
        program = Program(DIALECT, [self.function], entry="main", source=self.source, format="tiny")
        self.function.attrs["input_names"] = self.names
        self.outputs(program, value, sinks)
        self.dims(program, value)
        for key in value:
            if key not in TOP:
                span = self.at(key, jsonc.KEY)
                near = nearest(key, [k for k in TOP if k not in value])
                message = f"the key `{key}` means nothing here and is dropped"
                self.diagnostics.warning("UnknownKey", message, span, instead=near and f'"{near}"')
        return program

    def at(self, *path: str | int) -> Loc:
        return self.source.json_loc(path)

    # Nodes as listed

    def node(self, item: Json, index: int) -> None:
        """Read a listed node. A node without an id is reported and dropped; any other error poisons it."""
        loc = pack_json(self.container, index)
        if not isinstance(item, dict) or not isinstance(name := item.get("id"), str) or not name:
            self.diagnostics.error("InvalidNode", 'a node is an object with a string "id"', loc)
            self.unread = True
            return
        if len(name) > self.limits.name_length:
            raise LimitExceeded(f"an id of {len(name)} characters", "--max-name-length")
        if (first := self.nodes.get(name)) is not None:
            labels = [(self.at("uops", first.index, "id"), "the first one")]
            self.diagnostics.error("DuplicateId", f"{name} names two nodes", self.at("uops", index, "id"), labels=labels)
            return
        uop, src, arg, tag = item.get("uop"), item.get("src"), item.get("arg"), item.get("tag")
        self.nodes[name] = node = Node(name, str(uop), src or [], arg or {}, index, loc)
        form = (*item, *map(type, item.values()))
        if form not in self.forms:
            for problem in _problems(item):
                self.reject(node, problem)
            if node.bad:
                node.src, node.arg = (), {}
            else:
                self.forms.add(form)
        if isinstance(tag, str):
            self.function.attrs.setdefault("tags", {})[node.id] = tag

    def reject(self, node: Node, violation: Violation) -> None:
        node.bad = True
        if isinstance(violation.at, str) and violation.at in node.arg:
            violation.at = attribute(violation.at)
        self.diagnostics.violation(violation, node.loc)

    def ordered(self) -> list[Node]:
        """The nodes, inputs first, then sources before users, otherwise as listed; every cycle is reported where it closes."""
        order: list[Node] = []
        state = dict.fromkeys(self.nodes, 0)  # 1: being visited, 2: done
        for root in sorted(self.nodes.values(), key=lambda n: n.uop != "INPUT"):
            stack = [] if state[root.id] else [(root, iter(root.src))]
            state[root.id] = state[root.id] or 1
            while stack:
                node, sources = stack[-1]
                for x in sources:
                    if not isinstance(x, str) or (reached := state.get(x, 2)) == 2:
                        continue
                    if reached:
                        self.cycle(node, [n.id for n, _ in stack], x)
                        continue
                    state[x] = 1
                    stack.append((self.nodes[x], iter(self.nodes[x].src)))
                    break
                else:
                    stack.pop()
                    state[node.id] = 2
                    order.append(node)
        return order

    def cycle(self, node: Node, path: list[str], start: str) -> None:
        ring = [*path[path.index(start) :], start]
        shown = " -> ".join(ring if len(ring) < 9 else [*ring[:4], "…", *ring[-4:]])
        self.reject(
            node, Violation("CycleDetected", f"{node.id} needs itself: {shown}", at=attribute("src", node.src.index(start)))
        )

    # Nodes to ops

    def define(self, node: Node) -> None:
        """The op or parameter of `node`; poison if it has an error."""
        value = None
        try:
            if not node.bad:
                value = self.input(node) if node.uop == "INPUT" else self.op(node)
        except Violation as violation:
            self.reject(node, violation)
        if value is None:
            value = Value(POISON, node.id)
            self.function.params.append(value)
        self.values[node.id] = value

    def input(self, node: Node) -> Value:
        if node.src:
            raise Violation("InvalidSource", "INPUT has no src", at=attribute("src"))
        arg: dict[str, Any] = read_listed("INPUT", INPUT, node.arg, self.limits)
        if not (name := arg["tensor_id"]):
            raise Violation("InvalidArg", "tensor_id: a name is wanted", at=attribute("tensor_id"))
        if name in self.names:
            raise Violation("DuplicateId", f"two INPUTs are called {name}", at=attribute("tensor_id"))
        value = Value(tensor(arg["dtype"], arg["shape"]), node.id)
        self.names.append(name)
        self.function.params.insert(len(self.names) - 1, value)
        self.function.attrs.setdefault("input_locs", {})[name] = node.loc
        if arg.get("storage"):
            self.function.attrs.setdefault("storage", {})[node.id] = arg["storage"]
        return value

    def op(self, node: Node) -> Value | None:
        """The result of the op of `node`; None after a report if a source was in error."""
        if (defn := self.ops.get(node.uop)) is None:
            kind = node.uop.upper().removeprefix("REDUCE").strip("_")
            near = None if kind in KINDS else op_meant(node.uop, (*self.ops, "INPUT"))
            advice = f'write REDUCE with "arg":{{"op":"{kind}","axes":[0],"dtype":"fp32"}}'
            help = (
                advice
                if kind in KINDS
                else None
                if near
                else _WITHOUT
                if is_function(node.uop)
                else f"the vocabulary is INPUT {' '.join(self.ops)}"
            )
            raise Violation("UnknownUop", f"`{node.uop}` is not a UOp", at=OP_NAME, help=help, instead=near and f'"{near}"')
        operands = [self.operand(node, i, x) for i, x in enumerate(node.src)]
        if node.bad:
            return None
        if defn.lengths((), len(operands)) is None:
            raise Violation("InvalidSource", f"{node.uop} takes {defn.arity_text()}, not {len(operands)}", at=attribute("src"))
        if {*map(type, operands)} <= {Literal}:
            raise Violation("InvalidSource", f"{node.uop} of immediates alone has neither dtype nor shape", at=attribute("src"))
        attrs = self.args(node, defn, operands)
        if node.bad:
            return None
        op = Op(defn, tuple(operands), attrs, loc=node.loc)
        value = Value(UNTYPED, node.id, op)
        op.results = (value,)
        self.function.body.append(op)
        return value

    def args(self, node: Node, defn: OpDef, operands: list[Operand]) -> tuple[object, ...]:
        """The attributes. Raises Violation."""
        arg = node.arg
        if defn.short == "REDUCE" and "dtype" not in arg:  # its other errors are reported, too
            help = "the accumulator's dtype is `dtype`, not `acc_dtype`" if "acc_dtype" in arg else 'add "dtype":"fp32"'
            message = "REDUCE needs the accumulator's dtype"
            instead = self.with_dtype(node)
            self.reject(node, Violation("AccDtypeMissing", message, at=attribute("arg"), help=help, instead=instead))
            arg = {k: x for k, x in arg.items() if k != "acc_dtype"} | {"dtype": "fp32"}
        key = (node.uop, jsonc.key(arg))  # equal texts give equal attributes
        if (attrs := self.known.get(key)) is None:
            attrs = self.known[key] = defn.fill(read_args(defn, arg, self.limits))
        types = tuple(map(operand_type, operands)) if node.bad else ()
        if types and all(isinstance(t, TensorType) for t in types):
            defn.result_types(types, attrs)
        return attrs

    def with_dtype(self, node: Node) -> str | None:
        """`arg` of a REDUCE as written, with the accumulator's dtype."""
        source = self.diagnostics.source
        whole = source.span(node.loc) if source is not None else None
        span = places.find(source, whole, attribute("arg")) if source is not None and whole is not None else None
        if source is None or span is None or not (text := source.text[span.start : span.end]).endswith("}"):
            return None
        if "acc_dtype" in node.arg:
            return text.replace('"acc_dtype"', '"dtype"', 1)
        return f'{text[:-1].rstrip()}{", " if node.arg else ""}"dtype":"fp32"}}'

    def operand(self, node: Node, i: int, x: Json) -> Operand:
        """The value or immediate of an entry of `src`. Raises Violation."""
        if isinstance(x, str) and x in self.nodes:
            return self.values.get(x) or Value(POISON, x)  # poison for a node that closes a cycle, which is reported
        at = attribute("src", i)
        if isinstance(x, str) and x not in WORDS:
            node.bad = True
            if (unknown := self.undefined(x, f"there is no node {x}", at)) is not None:
                self.reject(node, unknown)
        elif not isinstance(x, (str, bool, int, float)):
            message = f"{json.dumps(x)[:40]} is neither an id nor an immediate"
            self.reject(node, Violation("InvalidSource", message, at=at))
        else:
            return untyped(WORDS[x] if isinstance(x, str) else x)
        return Value(POISON, "")

    def undefined(self, name: str, message: str, at: Place | None = None) -> Violation | None:
        """Report an id that no node has: once, and not if a node that could not be read may have it."""
        known = self.unread or name in self.missing
        self.missing.add(name)
        help, instead = (None, None) if known else self.diagnostics.proposed(name, self.nodes, "{}", '"{}"')
        return None if known else Violation("UndefinedNode", message, at=at, help=help, instead=instead)

    # The rest of the file

    def outputs(self, program: Program, value: dict[str, Json], sinks: list[str]) -> None:
        """The results: the listed outputs, else the sinks."""
        listed = value.get("outputs")
        program.attrs["outputs"] = listed is not None
        if listed is None:
            self.function.results = [self.values[i] for i in sinks]
        elif not isinstance(listed, list):
            self.diagnostics.error("InvalidArg", "outputs is a list of ids", self.at("outputs"))
        else:
            for i, name in enumerate(listed):
                if isinstance(name, str) and name in self.nodes:
                    self.function.results.append(self.values[name])
                    continue
                shown = name if isinstance(name, str) else json.dumps(name)[:40]
                if (unknown := self.undefined(shown, f"the output {shown} is not a node")) is not None:
                    self.diagnostics.violation(unknown, self.at("outputs", i))

    def dims(self, program: Program, value: dict[str, Json]) -> None:
        dims = value.get("dims", {})
        program.attrs["dims"] = found = {}
        if not isinstance(dims, dict):
            self.diagnostics.error("InvalidArg", "dims is an object of integers", self.at("dims"))
            return
        for name, number in dims.items():
            if not AXIS.fullmatch(name) or not is_integer(number) or not 0 <= number < 1 << 63:
                message = f"dims gives symbols integers that are not negative, not {json.dumps(name)}: {json.dumps(number)}"
                self.diagnostics.error("InvalidArg", message, self.at("dims", name))
            else:
                found[name] = number


def _problems(item: dict[str, Json]) -> Iterator[Violation]:
    """The errors in the form of a node."""
    for key in item:
        if key not in KEYS:
            near = _KEYS_MEANT.get(key) or nearest(key, KEYS)
            near = None if near in item else near
            message = f"a node has no `{key}`, only {', '.join(KEYS)}"
            yield Violation("InvalidNode", message, at=key_of(key), instead=near and f'"{near}"')
    for key, kind, what in (
        ("uop", str, "a string"),
        ("src", list, "a list"),
        ("arg", dict, "an object"),
        ("tag", str, "a string"),
    ):
        if key in item and not isinstance(item[key], kind):
            only = f"[{json.dumps(item[key])}]" if key == "src" and isinstance(item[key], str) else None
            help = None if only is None else f"write `{only}`"
            yield Violation("InvalidNode", f"`{key}` of a node is {what}", at=attribute(key), help=help, instead=only)
    if "uop" not in item and not any(key not in KEYS for key in item):
        yield Violation("InvalidNode", "a node needs a `uop`", at=attribute("id"))


# Names of keys in other systems.
_KEYS_MEANT = {"op": "uop", "opcode": "uop", "type": "uop", "inputs": "src", "args": "arg", "attrs": "arg", "name": "id"}


def _sinks(nodes: list[Node]) -> list[str]:
    """The ids of nodes, except INPUTs, that no other node uses, in listing order."""
    used = {x for n in nodes for x in n.src if isinstance(x, str)}
    return [n.id for n in nodes if n.id not in used and n.uop != "INPUT"]
