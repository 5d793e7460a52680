"""The generic verifier: one walk over every block, then the dialect's own check.

Per op, in this order: operands defined, operand count, the type rule with its constraints, declared against inferred result
types, the op's own check. Per block: result count and types. A value in error poisons its users, which stay silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.extents import may_be_equal
from ptir_tools.core.ir import MEASURES, Element, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.limits import ELEMENTS, LimitExceeded, Limits, using
from ptir_tools.core.source import Loc
from ptir_tools.core.types import POISON, UNKNOWN, UNTYPED, Dim, ShapedType, Sym, TensorType, TupleType, Type, leaves
from ptir_tools.core.violations import OP_NAME, RETURNED, Place, Violation, operand, result
from ptir_tools.core.where import define

# The generic codes that `Violation`s of the core carry, and the field of `Codes` that renames them for a dialect.
_RENAMED = {
    "OperandCountMismatch": "operand_count",
    "UnknownAttribute": "unknown_attribute",
    "MissingAttribute": "missing_attribute",
    "ResultTypeMismatch": "result_type",
}


def verify(program: Program, diagnostics: Diagnostics, options: Options | None = None) -> bool:
    """Report every error of `program` to `diagnostics`; True if there is none. Fills in missing types.

    Raises LimitExceeded for a type above the limits.
    """
    options = options or Options()
    before = diagnostics.errors
    with using(options.limits):
        if program.dialect.legalize is not None:
            program.dialect.legalize(program, diagnostics, options)
        visible: set[Value] = set()
        define(program)
        for block in [*program.functions, *program.regions]:
            _Walk(program, diagnostics).block(block, visible)
        check_types(program, options.limits)
        if (check := program.dialect.check_despite_errors if diagnostics.errors else program.dialect.check) is not None:
            check(program, diagnostics, options)
    return diagnostics.errors == before


def legalize(program: Program) -> None:
    """Make `program` explicit in place, as `verify` does. Raises Rejected if it has errors."""
    if program.dialect.legalize is not None:
        diagnostics = Diagnostics(program.source)
        program.dialect.legalize(program, diagnostics, Options())
        diagnostics.raise_if_errors()


def legalized(program: Program) -> Program:
    """`program` made explicit: itself if it already is, else a copy. Everything that computes with a program calls this,
    because a program that was built or changed by hand may not have been verified. Raises Rejected."""
    if program.dialect.legalize is None:
        return program
    result = clone(program)
    legalize(result)
    return program if list(map(_contents, program.functions)) == list(map(_contents, result.functions)) else result


def _contents(function: Function) -> list[tuple[object, ...]]:
    """The parts of a function that `legalize` may change: types, attributes, immediates and the number of ops."""
    shown = [(op.defn, op.attrs, *map(operand_type, op.operands), *(v.type for v in op.results)) for op in function.body]
    return [tuple(p.type for p in function.params), *shown, tuple(map(operand_type, function.results))]


def check_types(program: Program, limits: Limits) -> None:
    """Raise LimitExceeded if a type of `program` has more extents or elements than `limits` allow."""
    types: set[Type] = set()
    for block in program.blocks():
        types.update([v.type for v in block.params], [v.type for op in block.body for v in op.results])
        literals = (x for op in block.body for x in (*op.operands, *op.attrs) if isinstance(x, Literal))
        types.update([x.type for x in literals], [x.type for x in block.results if isinstance(x, Literal)])
    if any(_too_big(t, limits) for t in types):
        for loc, t in _types_in_order(program):
            if (output := _too_big(t, limits)) is not None:
                raise output.at(loc)


def _too_big(t: Type, limits: Limits) -> LimitExceeded | None:
    """The error for a type of more extents or elements than `limits` allow."""
    for leaf in leaves(t):
        if isinstance(leaf, ShapedType):
            if leaf.rank > limits.rank:
                return LimitExceeded(f"a type of rank {leaf.rank}, the limit is {limits.rank}", "--max-rank")
            if prod([d for d in leaf.shape if isinstance(d, int)]) > limits.elements:
                flag = "--max-elements" if limits.elements < ELEMENTS else None
                return LimitExceeded(f"a type of more than {limits.elements} elements: {leaf}", flag)
    return None


def _types_in_order(program: Program) -> Iterator[tuple[Loc, Type]]:
    """The types of a program, with their places."""
    for block in program.blocks():
        yield from ((block.loc, v.type) for v in block.params)
        for op in block.body:
            yield from ((op.loc, v.type) for v in op.results)
            yield from ((op.loc, x.type) for x in (*op.operands, *op.attrs) if isinstance(x, Literal))
        yield from ((block.return_loc, x.type) for x in block.results if isinstance(x, Literal))


def check_sizes(program: Program, limits: Limits) -> None:
    """Raise LimitExceeded if there are more ops, operands of one op, or longer names than `limits` allow."""
    blocks = list(program.blocks())
    ops = sum([len(block.body) for block in blocks])
    operands = max([len(op.operands) for block in blocks for op in block.body], default=0)
    names = [v.name for block in blocks for v in block.params]
    names += [v.name for block in blocks for op in block.body for v in op.results]
    longest = max(map(len, names), default=0)
    for entry, limit, what, flag, size in (
        (ops, limits.ops, "ops", "--max-ops", None),
        (operands, limits.operands, "operands of one op", "--max-operands", lambda op: len(op.operands)),
        (longest, limits.name_length, "characters of one name", "--max-name-length", _longest_name),
    ):
        if entry > limit:
            all_ops = (op for block in blocks for op in block.body)
            at = next((op.loc for op in all_ops if size is not None and size(op) == entry), 0)
            raise LimitExceeded(f"{entry} {what}, the limit is {limit}", flag, at)


def _longest_name(op: Op) -> int:
    return max((len(v.name) for v in op.results), default=0)


def names_extents(declared: Type, inferred: Type) -> bool:
    """Whether two tensor types differ only where extents may be equal for some symbols."""
    if not (isinstance(declared, TensorType) and isinstance(inferred, TensorType)):
        return False
    if declared.dtype is not inferred.dtype or len(declared.shape) != len(inferred.shape):
        return False
    pairs = zip(declared.shape, inferred.shape, strict=True)
    return all(_may_declare(a, b) for a, b in pairs)


def _may_declare(declared: Dim, inferred: Dim) -> bool:
    """Whether an extent may be declared for the inferred one; if it is not certain, the run checks it."""
    if declared == inferred or UNKNOWN in (declared, inferred):
        return True
    if isinstance(inferred, int):
        return isinstance(declared, Sym) and may_be_equal(declared, inferred)
    return inferred.poly is not None and may_be_equal(declared, inferred)


def symbolic_clash(declared: Type, inferred: Type) -> bool:
    """Whether two types differ only where at least one extent is a symbol."""
    if isinstance(declared, TupleType) and isinstance(inferred, TupleType):
        pairs = list(zip(declared.elements, inferred.elements, strict=False))
        different = [(a, b) for a, b in pairs if a is not b]
        fits = len(declared.elements) == len(inferred.elements)
        return fits and bool(different) and all(symbolic_clash(a, b) for a, b in different)
    if not (isinstance(declared, TensorType) and isinstance(inferred, TensorType)):
        return False
    if declared.dtype is not inferred.dtype or len(declared.shape) != len(inferred.shape):
        return False
    differing = [(a, b) for a, b in zip(declared.shape, inferred.shape, strict=True) if a != b]
    return bool(differing) and all(isinstance(a, Sym) or isinstance(b, Sym) for a, b in differing)


class _Walk:
    def __init__(self, program: Program, diagnostics: Diagnostics) -> None:
        self.dialect = program.dialect
        self.codes = program.dialect.codes
        self.diagnostics = diagnostics

    def block(self, block: Region, outer: set[Value]) -> None:
        visible = set() if block.isolated else outer
        visible.update(block.params)
        for op in block.body:
            if not self.known(op, visible):
                self.op(op, visible)
                visible.update(op.results)
        self.results(block, visible)
        if not block.isolated:
            visible.difference_update(block.params, *[op.results for op in block.body])

    def known(self, op: Op, visible: set[Value]) -> bool:
        """Whether the op needs no check: its signature was checked before, and its operands are defined. Ops with regions are
        always checked."""
        d, results = op.defn, op.results
        types = []
        for x in op.operands:
            if (x not in visible) if x.__class__ is Value else x.__class__ is not Literal:
                return False
            types.append(x.type)  # type: ignore[union-attr]
        cached = d.cache.get((tuple(types), d.signature(op.attrs)))
        if cached.__class__ is not tuple or cached != tuple([v.type for v in results]) or UNTYPED in cached:
            return False
        if d.check is not None:
            try:
                d.check(op)
            except Violation:
                return False  # the full check reports it
        visible.update(results)
        return True

    def op(self, op: Op, visible: set[Value]) -> None:
        try:
            if self.poisoned(op, visible):
                op.defn.split(op.attrs, op.operands)  # the op has this many for all types
                return self.poison(op)
            types = tuple([operand_type(x) if isinstance(x, Element) else x.type for x in op.operands])
            inferred = op.defn.result_types(types, op.attrs, op.regions)
            self.declare(op, inferred)
            if op.defn.check is not None:
                op.defn.check(op)
        except Violation as violation:
            self.violation(violation, op)
            self.poison(op)
        for r in op.regions:
            if not r.isolated:
                self.block(r, visible)

    def poisoned(self, op: Op, visible: set[Value]) -> bool:
        """Whether an operand or the signature of a region is in error; an operand that is not defined yet is reported."""
        bad = any(p.type is POISON for r in op.regions if r.isolated for p in r.params)
        for v in op.values():
            if v not in visible and v.type is not POISON:
                raise Violation(self.codes.undefined, f"%{v.name} is used before it is defined", at=f"%{v.name}")
            bad = bad or v.type is POISON
        return bad

    def poison(self, op: Op) -> None:
        for v in op.results:
            v.type = POISON

    def declare(self, op: Op, inferred: tuple[Type, ...]) -> None:
        """Fill in missing result types; refuse declared types that differ from the rule's."""
        results = op.results
        if len(results) != len(inferred):
            raise Violation(self.codes.result_type, f"{op.defn.short} has {len(inferred)} results, {len(results)} are declared")
        for v, t in zip(results, inferred, strict=True):
            if v.type is UNTYPED and t is UNTYPED:
                raise Violation(self.codes.result_type, f"{op.defn.short} needs a declared result type")
            if v.type is t or t is UNTYPED:  # the rule leaves the extent to the declaration
                continue
            if v.type is UNTYPED:
                v.type = t
            elif not v.type.accepts(t) and not (MEASURES in op.defn.traits and names_extents(v.type, t)):
                code = "DynamicDimensionMismatch" if symbolic_clash(v.type, t) else self.codes.result_type
                text = self.dialect.type_text
                message, shown = f"{op.defn.short} gives {text(t)}, declared {text(v.type)}", result(op.results.index(v))
                raise Violation(code, message, at=shown, instead=text(t), was=text(v.type))

    def violation(self, violation: Violation, op: Op) -> None:
        """Report `violation`. Without a place, it points at the operand if there is one, else at the op's name."""
        v = violation
        at = v.at if v.at is not None else operand(0) if len(op.operands) == 1 else OP_NAME
        code = getattr(self.codes, _RENAMED[v.code]) if v.code in _RENAMED else v.code
        also = {"instead": v.instead, "was": v.was, "through": v.through}
        labels = (*v.labels, *self.makers(op, at)) if self.dialect.shows_makers else v.labels
        output = Violation(code, v.message, help=v.help, at=at, loc=v.loc, labels=labels, **also)
        self.diagnostics.violation(output, op.loc, op)

    def makers(self, op: Op, at: object) -> list[tuple[Loc, str]]:
        """The op that made the operand at `at`, if it is the place of one, with the type that the op gave it."""
        x = (
            op.operands[int(at.key)]
            if isinstance(at, Place) and at.kind == "operand" and int(at.key) < len(op.operands)
            else None
        )
        if not isinstance(x, Value) or x.op is None:
            return []
        return [(x.op.loc, f"`{x.op.defn.short}` makes %{x.name}, which is {self.dialect.type_text(x.type)}")]

    def results(self, block: Region, visible: set[Value]) -> None:
        """Results are defined, and of the declared number and types."""
        at = block.return_loc or block.loc
        if block.result_types and len(block.results) != len(block.result_types):
            output, want = len(block.results), len(block.result_types)
            message, labels = f"results returned: {output}, declared: {want}", [(block.loc, "declared here")]
            self.diagnostics.violation(Violation(self.codes.result_type, message, at=RETURNED, labels=labels), at)
            return
        for i, x in enumerate(block.results):
            try:
                self.result(i, x, block.result_types, visible)
            except Violation as violation:
                self.diagnostics.violation(violation, at)

    def result(self, i: int, x: Operand, declared: list[Type], visible: set[Value]) -> None:
        """Result `i` of a block is defined and of its declared type."""
        v = x if isinstance(x, Value) else x.value if isinstance(x, Element) else None
        if v is not None and v not in visible and v.type is not POISON:
            message = f"result {i} is %{v.name}, which is not defined"
            raise Violation(self.codes.undefined_result, message, at=f"%{v.name}")
        t, text = operand_type(x), self.dialect.type_text
        if declared and not declared[i].accepts(t):
            code = "DynamicDimensionMismatch" if symbolic_clash(declared[i], t) else self.codes.result_type
            shown = None if v is None else f"%{v.name}[{x.index}]" if isinstance(x, Element) else f"%{v.name}"
            raise Violation(code, f"result {i} is {text(t)}, declared {text(declared[i])}", at=shown)
