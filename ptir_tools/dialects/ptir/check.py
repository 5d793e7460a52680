"""The checks of a whole PTIR program: an entry, regions without cycles, hints that agree with their body."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir.hints import Hint, hints
from ptir_tools.dialects.ptir.ops.kinds import DIMENSION_NUMBERS, AttrValue
from ptir_tools.rewrite.uses import value_named

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.kernels import targets
else:
    targets = lazy("ptir_tools.dialects.ptir.kernels.targets")

PAYLOADS = {"elementwise_dag_v1": "ElementwiseDag", "dot_epilogue_v1": "DotEpilogue"}
KINDS = ("ElementwiseDag", "DotEpilogue", "ReductionChain")
POLICIES = ("Optional", "Preferred", "Required")
MISMATCH = "HintMismatch"
DEPTH = 96  # nesting of regions that run each other: as deep as the recursion of the evaluator with bounds can go


def check(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Report errors of the whole program: "UnknownFunction", "UnknownRegion", "CyclicRegion", "HintMismatch", and
    "InvalidAttributeValue" for an unknown kind or policy of hints."""
    if program.function(program.entry) is None:
        diagnostics.error("UnknownFunction", f"there is no function @{program.entry}, which is the entry")
    check_regions(program, diagnostics, min(options.limits.nesting, DEPTH))
    for function in program.functions:
        if function.annotations:
            check_hints(function, diagnostics)


def missing_payloads(program: Program, diagnostics: Diagnostics, inline: bool = True) -> bool:
    """Report "MissingPayload" for every literal without a payload; whether there are any. `inline`: also of operands and
    results."""
    help, before = "read it from a file that has it: gpt.rs's program.json", diagnostics.errors
    for block in program.blocks():
        for op in block.body:
            if any(isinstance(x, Literal) and x.is_missing for x in ((*op.operands, *op.attrs) if inline else op.attrs)):
                message = f"the payload of this {op.defn.short} is not in the file"
                diagnostics.error("MissingPayload", message, op.loc, help=help)
        if inline and any(isinstance(x, Literal) and x.is_missing for x in block.results):
            diagnostics.error("MissingPayload", "the payload of a result is not in the file", block.return_loc, help=help)
    return diagnostics.errors > before


def calls(block: Region) -> Iterator[tuple[Op, Region]]:
    """The regions that ops of `block` refer to."""
    for op in block.body:
        for region in dict.fromkeys(op.regions):
            yield op, region


def check_regions(program: Program, diagnostics: Diagnostics, deepest: int) -> None:
    """Check that every region that an op names exists, and that none contains itself. Raises LimitExceeded for more than
    `deepest` nested regions."""
    listed = set(program.regions)
    open_: dict[Region, Iterator[tuple[Op, Region]]] = {}
    done: dict[Region, int] = {}  # the depth of regions that run each other, from each region on
    for start in (*program.functions, *program.regions):
        if start in done:
            continue
        open_[start] = calls(start)
        while open_:
            block = next(reversed(open_))
            found = next(open_[block], None)
            if found is None:
                open_.pop(block)
                depth = 1 + max((done.get(r, 0) for _, r in calls(block)), default=0)
                if depth > deepest:
                    message = f"{depth} regions run each other in turn, more than {deepest}"
                    raise LimitExceeded(message, loc=next(op.loc for op, _ in calls(block)))
                done[block] = depth
                continue
            op, region = found
            if region not in listed:
                diagnostics.error("UnknownRegion", f"the program has no region ^{region.name}", op.loc)
            elif region in open_:
                path = " -> ".join(f"^{r.name}" for r in [*list(open_)[list(open_).index(region) :], region])
                diagnostics.error("CyclicRegion", f"region ^{region.name} runs itself: {path}", op.loc)
            elif region not in done:
                open_[region] = calls(region)


def check_hints(function: Function, diagnostics: Diagnostics) -> None:
    """Check that a hint's body is a copy of ops of the function, and that only exports are used outside of it. Its payload
    must then describe the ops. Reports "HintMismatch", "InvalidAttributeValue"."""
    numbers: Counter[int] = Counter()
    users: defaultdict[Value, list[Op]] = defaultdict(list)
    for op in function.body:
        for v in op.values():
            users[v].append(op)
    for hint in hints(function):
        numbers[hint.id] += 1
        good = (
            passes(diagnostics, hint, check_number, function, hint, numbers[hint.id]),
            passes(diagnostics, hint, check_word, "kind", hint.kind, KINDS),
            passes(diagnostics, hint, check_word, "policy", hint.policy, POLICIES),
            passes(diagnostics, hint, check_values, function, hint)
            and passes(diagnostics, hint, check_inside, function, hint, users),
        )
        if all(good):
            passes(diagnostics, hint, check_payload, hint)


def passes(diagnostics: Diagnostics, hint: Hint, check: Callable[..., None], *arguments: object) -> bool:
    """Whether `check` raises no Violation; one that it raises is reported at `hint`."""
    try:
        check(*arguments)
    except Violation as violation:
        diagnostics.violation(violation, hint.loc)
        return False
    return True


def check_number(function: Function, hint: Hint, count: int) -> None:
    """Check that no earlier hint has the id."""
    require(count == 1, MISMATCH, f"{count} hints of @{function.name} have the id {hint.id}")


def check_word(name: str, value: str, known: tuple[str, ...]) -> None:
    """Check that the kind or policy is known."""
    require(value in known, "InvalidAttributeValue", f"the {name} of a hint is one of {', '.join(known)}; got {value}", at=value)


def check_values(function: Function, hint: Hint) -> None:
    """Check the values of a hint. Inputs are values of the function. The body copies ops that read inputs, broadcasts of
    inputs and each other, and computes the exports."""
    known = set(function.params) | {v for op in function.body for v in op.results}
    for v in hint.inputs:
        require(v in known, MISMATCH, f"input %{v.name} of hint {hint.id} is not a value of @{function.name}", at=f"%{v.name}")
    there, made = set(hint.inputs), set[Value]()
    for op in hint.body:
        require(copied(op), MISMATCH, f"hint {hint.id}: its {op.defn.short} is not the op of the function that it copies")
        for v in op.values():
            message = (
                f"hint {hint.id}: its {op.defn.short} reads %{v.name}, which is neither an input nor computed before in its body"
            )
            require(not there.isdisjoint(sources(v)), MISMATCH, message, at="inputs")
        there.update(op.results)
        made.update(op.results)
    for v in hint.exports:
        require(v in made, MISMATCH, f"hint {hint.id} exports %{v.name}, which its body does not compute", at="exports")


def check_inside(function: Function, hint: Hint, users: Mapping[Value, list[Op]]) -> None:
    """Check that a value of the body that is not exported is not used outside of it."""
    made = {v for op in hint.body for v in op.results}
    returned = {value_named(x) for x in function.results}
    for v in sorted(made.difference(hint.exports), key=lambda v: v.name):
        inside = v not in returned and all(made.issuperset(op.results) for op in users.get(v, ()))
        message = f"hint {hint.id} computes %{v.name}, which is used outside of it and not exported"
        require(inside, MISMATCH, message, at="exports")


def check_payload(hint: Hint) -> None:
    """Check that the payload describes the body, for the payloads of gpt.rs."""
    attrs = {key: value for key, (_, value) in hint.attrs}
    payload = attrs.get("fusion_kind")
    if payload is None or not isinstance(payload, str) or payload not in PAYLOADS:
        return
    require(PAYLOADS[payload] == hint.kind, MISMATCH, f"hint {hint.id} is {hint.kind}, its payload is {payload}")
    {"ElementwiseDag": check_dag, "DotEpilogue": check_dot}[hint.kind](hint, attrs)


def copied(op: Op) -> bool:
    """Whether `op` of a hint body equals the op of the function that defines the same values."""
    original = op.results[0].op if op.results else None
    if original is None or original.defn is not op.defn or len(original.operands) != len(op.operands):
        return False
    same_attrs = op.defn.key(original.attrs) == op.defn.key(op.attrs)
    return same_attrs and original.results == op.results and all(map(same_operand, original.operands, op.operands))


def same_operand(a: Operand, b: Operand) -> bool:
    """Whether two operands are the same value, element or literal. Of literals without payload only the types are compared."""
    if isinstance(a, Element) and isinstance(b, Element):
        return a.value is b.value and a.index == b.index
    if isinstance(a, Literal) and isinstance(b, Literal):
        return a.same(b) or (a.type is b.type and a.data is None and b.data is None)
    return a is b


def integers(attrs: dict[str, AttrValue], key: str) -> tuple[int, ...]:
    """The I64Array `key`. Raises Violation("HintMismatch") when it is missing."""
    value = attrs.get(key)
    if not isinstance(value, tuple) or not all(type(v) is int for v in value):
        raise Violation(MISMATCH, f"the payload has no I64Array {key}", at=key)
    return tuple(v for v in value if isinstance(v, int))


def check_dag(hint: Hint, attrs: dict[str, AttrValue]) -> None:
    """Check that the payload's nodes, from the last one down, are the elementwise ops that compute the export.

    A node's operand `i` is input `i`, or node `i - inputs`; -1 is none. Broadcasts are looked through.
    """
    columns = [integers(attrs, key) for key in targets.COLUMNS]
    kinds, codes, lhs, rhs = columns
    sized = len({len(c) for c in columns}) == 1 and len(kinds) > 0
    require(sized, MISMATCH, f"hint {hint.id}: ops_kind, ops_code, lhs and rhs are not lists of one length")
    require(len(hint.exports) == 1, MISMATCH, f"hint {hint.id}: an elementwise payload computes one value", at="exports")
    body = {v: op for op in hint.body for v in op.results}
    unread = set(range(len(kinds)))
    pending: list[tuple[Operand, int]] = [(hint.exports[0], len(hint.inputs) + len(kinds) - 1)]
    seen: set[tuple[Operand, int]] = set()
    while pending:
        x, at = pending.pop()
        if (x, at) in seen:
            continue
        seen.add((x, at))
        if 0 <= at < len(hint.inputs):
            fits = hint.inputs[at] in sources(x)
            require(fits, MISMATCH, f"hint {hint.id}: the payload reads input {at}, the body {_named(x)}", at="lhs")
            continue
        node = at - len(hint.inputs)
        require(0 <= node < len(kinds), MISMATCH, f"hint {hint.id}: the payload refers to {at}, which is not a node", at="lhs")
        op = next((body[v] for v in sources(x) if v in body and body[v].defn.family.startswith("elementwise")), None)
        want = node_name(kinds[node], codes[node])
        found = op.defn.short if op is not None else _named(x)
        if op is None or op.defn.short != want:
            raise Violation(
                MISMATCH, f"hint {hint.id}: node {node} of the payload is {want}, the body has {found}", at="ops_code"
            )
        unread.discard(node)
        reads = (lhs[node], rhs[node])[: len(op.operands)]
        binary = len(op.operands) == 2 or rhs[node] == -1
        require(binary, MISMATCH, f"hint {hint.id}: node {node} is {want}, which has no rhs; it is -1, not {rhs[node]}", at="rhs")
        pending.extend(zip(op.operands, reads, strict=True))
    message = f"hint {hint.id}: the body does not compute the payload's node {min(unread, default=0)}"
    require(not unread, MISMATCH, message, at="ops_code")


def node_name(kind: int, code: int) -> str:
    """The op of a payload's node."""
    table = targets.NODES.get(kind, ())
    return table[code] if 0 <= code < len(table) else f"unknown ({kind}, {code})"


def sources(x: Operand) -> Iterator[Value]:
    """`x`, and the source of the broadcast `x`."""
    while isinstance(x, Value):
        yield x
        if x.op is None or x.op.defn.short != "broadcast_to":
            return
        x = x.op.operands[0]


def _named(x: Operand) -> str:
    return f"%{x.name}" if isinstance(x, Value) else "an element or literal"


def check_dot(hint: Hint, attrs: dict[str, AttrValue]) -> None:
    """Check that the payload's dimension numbers are those of the body's dot_general, and its bias is the added value."""
    dot = next((op for op in hint.body if op.defn.short == "dot_general"), None)
    if dot is None:
        raise Violation(MISMATCH, f"hint {hint.id}: a dot payload, and no dot_general in the body")
    for name in DIMENSION_NUMBERS:
        said, found = integers(attrs, f"dot_{name}"), dot.attr(name)
        message = f"hint {hint.id}: dot_{name} is {list(said)}, the body's dot_general has {list(found)}"
        require(said == found, MISMATCH, message, at=f"dot_{name}")
    bias = attrs.get("dot_add_input")
    added = [x for op in hint.body if op.defn.short == "add" for x in op.operands if x is not dot.result]
    fits = isinstance(bias, int) and 0 <= bias < len(hint.inputs) and any(hint.inputs[bias] in sources(x) for x in added)
    message = f"hint {hint.id}: dot_add_input is {bias}, the body adds another value"
    require(bias is None or fits, MISMATCH, message, at="dot_add_input")
