"""StableHLO text to PTIR: functions, calls (which are inlined), scopes and regions. The handlers of ops are in `ops`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ptir_tools.bridges.node import Place
from ptir_tools.bridges.stablehlo import faults, narrow, portable, quantized  # declared before a program is read
from ptir_tools.bridges.stablehlo import ops as ops
from ptir_tools.bridges.stablehlo.checks import Checks
from ptir_tools.bridges.stablehlo.scopes import CALLS, POISON, InError, Scope, fits, read_names
from ptir_tools.bridges.stablehlo.symbolic import SymbolicElements
from ptir_tools.bridges.stablehlo.symbolic_rules import note
from ptir_tools.bridges.stablehlo.syntax import (
    Block,
    FunctionText,
    Item,
    Keyed,
    ModuleText,
    Parameter,
    Product,
    Statement,
    Typed,
    parse,
)
from ptir_tools.bridges.stablehlo.table import HANDLERS, REFUSED, Entry, Site, plain, unknown_op
from ptir_tools.bridges.stablehlo.types import UNSUPPORTED, Kind, Quantized, Tuple, refused, type_of
from ptir_tools.bridges.stablehlo.types import Token as TokenType
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Function
from ptir_tools.core.lazy import late, regex
from ptir_tools.core.limits import Expansion, LimitExceeded, current, integer
from ptir_tools.core.source import Loc, Source
from ptir_tools.core.spelling import proposed
from ptir_tools.core.types import UNKNOWN, Sym, TensorType, sym
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.builder.build import Block as Target
from ptir_tools.dialects.ptir.builder.build import Graph, Tensor
from ptir_tools.grammars.parser import Token

_VERSIONED = regex(r"^[^\S\n]*\"?vhlo\.func_v\d", re.MULTILINE)


class Reader:
    """Reads the functions of one text."""

    def __init__(
        self, source: Source, diagnostics: Diagnostics, options: Options, handlers: Mapping[str, Entry] = HANDLERS
    ) -> None:
        self.diagnostics, self.options, self.handlers, self.text = diagnostics, options, handlers, source.text
        self.narrow = bool(narrow.named(source.text))
        self.functions: dict[str, FunctionText] = {}
        self.here = Place()
        self.calls: list[str] = []  # the functions that are being inlined
        self.reported: set[Loc] = set()
        self.lost: set[str] = set()  # names that statements with a syntax error would define
        self.meshes: dict[str, dict[str, int]] = {}  # the extents of their axes
        self.symbols = 0
        self.symbolic = SymbolicElements()
        self.checks = Checks()
        self.expansion = Expansion(0)

    def collect(self, items: Sequence[Item]) -> None:
        """Note the functions of modules."""
        for item in items:
            if isinstance(item, ModuleText):
                self.collect(item.content)
            elif isinstance(item, FunctionText):
                if item.name in self.functions:
                    self.diagnostics.error("RedefinedValue", f"@{item.name} is defined twice", item.loc)
                self.functions.setdefault(item.name, item)
            elif item.name in ("builtin.module", "module"):
                self.collect([s for region in item.regions() for s in region.body])
            elif item.name == "func.func":
                self.collect([_generic_function(item)])
            elif item.name == "sdy.mesh":
                self.meshes.update((str(x.key)[1:], _mesh(str(x.value))) for x in item.pieces if isinstance(x, Keyed))
            else:
                self.diagnostics.error("SyntaxError", f"`{item.name}` is not in a function", item.loc)

    def roots(self) -> list[FunctionText]:
        """The functions of the program: those that are not called in it, and public ones; `main` is first."""
        called: set[str] = set()
        for f in self.functions.values():
            for s in statements(f.body):
                if s.name in CALLS or s.name.endswith((".composite", ".custom_call")):
                    called.update(x[1:].strip('"') for x in _symbols(s))
        kept = [
            f
            for f in self.functions.values()
            if f.body and (f.name == "main" or f.visibility == "public" or (f.visibility != "private" and f.name not in called))
        ]
        return sorted(kept, key=lambda f: f.name != "main")

    def program(self) -> Program | None:
        """The program of the functions; None after reporting errors."""
        roots = self.roots()
        self.expansion = Expansion(sum(1 for f in self.functions.values() for _ in statements(f.body)))
        if not roots:
            self.diagnostics.error("UndefinedValue", "there is no function that is not called by others", 0)
            return None
        graph = Graph(roots[0].name)
        graph.caller = self.here
        with collector_paused():
            for i, text in enumerate(roots):
                function = graph.program.functions[0] if i == 0 else Function(text.name)
                if i:
                    graph.program.functions.append(function)
                self.function(text, function, graph if i == 0 else Target(graph, function))
        return None if self.diagnostics.errors else graph.program

    def function(self, text: FunctionText, function: Function, block: Target) -> None:
        """Read a function of the program."""
        assert text.body is not None
        function.loc = text.loc
        scope = Scope(self, block)
        params = text.params or text.body.params
        for p in params:
            try:
                name = p.called[1:]
            except Violation as violation:
                self.diagnostics.violation(violation, p.type.loc)
                continue
            try:
                value: object = self.parameter(p, self.type(p.type), block)
            except Violation as violation:
                self.diagnostics.violation(violation, violation.loc or p.type.loc)
                value = POISON
            scope.values[name] = [value]
        try:
            results = scope.body(text.body)
            self.promised(text, results)
            block.builder.results(*(self.checks.before(block, x).operand for x in flattened(results)))
        except InError:
            return
        except Violation as violation:
            if text.loc not in self.reported:
                self.diagnostics.violation(violation, text.loc)

    def promised(self, text: FunctionText, results: Sequence[object]) -> None:
        """Compare the results of a function with the declared ones. Raises Violation."""
        end = text.body.body[-1] if text.body is not None and text.body.body else None
        if end is None or not text.results:
            return
        tokens = read_names(end.pieces)
        if len(results) != len(text.results):
            message = f"@{text.name} returns {len(results)} values, and declares {len(text.results)}"
            extra = tokens[len(text.results)].loc if len(tokens) > len(text.results) else end.at.loc
            raise Violation("OperandCountMismatch", message, loc=extra)
        for p, x, token in zip(text.results, results, tokens, strict=False):
            if isinstance(x, Tensor) and not fits(self.type(p.type), x.type):
                message = faults.worded(f"`{token}` is {x.type}, and @{text.name} returns {p.type}")
                raise Violation("ResultTypeMismatch", message, loc=token.loc, labels=[(p.type.loc, "declared here")])

    def parameter(self, p: Parameter, t: Kind, block: Target) -> object:
        """The value of a parameter; an extent `?` becomes a symbol."""
        if isinstance(t, TokenType):
            raise refused("a token is a parameter")
        if isinstance(t, Tuple):
            return tuple(self.parameter(p, e, block) for e in t.elements)
        if isinstance(t, Quantized):
            return quantized.Value(self.tensor(p, t.storage, block), t)
        return self.tensor(p, t, block)

    def tensor(self, p: Parameter, t: TensorType, block: Target) -> Tensor:
        """A parameter that is a tensor."""
        shape = [self.fresh() if d is UNKNOWN else d for d in t.shape]
        return Tensor(block, block.builder.param(t.with_shape(shape), p.called[1:].replace("-", "_")))

    def fresh(self) -> Sym:
        """A new symbol."""
        self.symbols += 1
        return sym(f"d{self.symbols - 1}")

    # Statements

    def error(self, violation: Violation, s: Statement) -> None:
        """Report an error of an op, once even where it is inlined several times."""
        loc = violation.loc or s.loc
        if loc in self.reported:
            return
        self.reported.add(loc)
        named = violation.code != UNSUPPORTED or f"`{s.name}`" in violation.message
        entry = self.handlers.get(s.name)
        pretty = entry.spelled if entry is not None and s.at.type == "NAME" else {}
        message = faults.worded(violation.message if named else f"`{s.name}`: {violation.message}", pretty)
        at = faults.place(violation, s, self.text, entry.spelled if entry is not None else {})
        labels = [(loc, text) for loc, text in violation.labels if isinstance(loc, int)]
        help = faults.HELPS.get(violation.help or "", violation.help)
        self.diagnostics.error(violation.code, message, at, help=help, labels=labels, instead=violation.instead)

    def statement(self, s: Statement, scope: Scope) -> None:
        """Append the translation of an op, and bind its results."""
        self.expansion.charge(1, s.loc)
        before, self.here.loc = self.here.loc, s.loc
        try:
            values = self.values(s, scope)
        except InError:
            values = [POISON] * sum(n for _, n in s.results)
        except Violation as violation:
            self.error(violation, s)
            values = [POISON] * sum(n for _, n in s.results)
        except LimitExceeded as limit:
            raise limit.at(s.loc) from None
        finally:
            self.here.loc = before
        at = 0
        for name, count in s.results:
            try:
                scope.define(s.at, name, values[at : at + count])
            except Violation as violation:
                violation.at = f"%{name}"
                self.error(violation, s)
            at += count

    def values(self, s: Statement, scope: Scope) -> list[object]:
        """The values of the results of an op. Raises Violation, InError."""
        if s.name in CALLS:
            return self.call(s, scope)
        if (entry := self.handlers.get(s.name)) is None:
            if s.name in REFUSED:
                raise refused(REFUSED[s.name])
            raise unknown_op(s.name, self.handlers)
        faults.check_words(s, self.text, scope.values)
        site = Site(scope, s, entry.spelled)
        operands = [self.operand(token, scope) for token in site.names]
        types = [self.type(t) for t in s.returned or s.given or []]
        if any(isinstance(x, (quantized.Value, Quantized)) for x in (*operands, *types)):
            count = sum(n for _, n in s.results)
            return quantized.perform(site, entry.handler, operands, types if len(types) == count else types[-1:] * count)
        count, most = len(operands), entry.most
        if count < entry.least or (most is not None and count > most):
            expected = f"{entry.least}" if most == entry.least else f"{entry.least} or more" if most is None else f"up to {most}"
            loc = site.names[most].loc if most is not None and count > most else 0  # the first that is too many
            raise Violation("OperandCountMismatch", f"`{s.name}` takes {expected} operands, got {count}", loc=loc)
        if s.given is not None and (s.returned is not None or (len(s.given) == 1 and operands and not entry.values)):
            self.declared(s, site.names, operands, scope)
        if not entry.values:
            list(site.each(operands))
        kinds = [narrow.named(str(t)) for t in s.returned or s.given or []] if self.narrow else []
        try:
            if any(kinds):
                outputs = sum(n for _, n in s.results)
                result = narrow.perform(site, entry.handler, operands, kinds if len(kinds) == outputs else kinds[-1:] * outputs)
            else:
                result = entry.handler(site, *operands)
        except Violation as violation:
            raise site.misspelled(violation.code == "MissingAttribute") or violation from None
        if (misspelled := site.misspelled()) is not None:
            raise misspelled
        results = (
            list(result)
            if isinstance(result, (tuple, list)) and not entry.values
            else result
            if isinstance(result, list)
            else [result]
        )
        found_values = self.checked(s, site, results)
        note(site, operands, found_values)
        return found_values

    def operand(self, token: Token, scope: Scope) -> object:
        """The value of an operand. Raises Violation that points at it, InError."""
        try:
            return scope.lookup(token)
        except Violation as violation:
            v = violation
            raise Violation(v.code, v.message, help=v.help, loc=token.loc, instead=v.instead) from None

    def type(self, token: Token) -> Kind:
        """The type spelled by a token. Raises Violation that points at it."""
        try:
            return type_of(str(token))
        except Violation as violation:
            raise Violation(violation.code, violation.message, help=violation.help, loc=faults.within(token, violation)) from None

    def declared(self, s: Statement, names: Sequence[Token], operands: Sequence[object], scope: Scope) -> None:
        """Compare operands with their declared types. One type alone is that of all operands and the result, except of a complex
        number that is made of its parts. Raises Violation."""
        given = s.given or []
        alone = s.returned is None
        t = scope.type(given[0]) if given else None
        if alone and (not isinstance(t, TensorType) or (t.dtype.is_complex and len(operands) == 2)):
            return
        if len(given) != len(operands) and not alone:
            raise Violation("OperandCountMismatch", f"{len(operands)} operands, {len(given)} types")
        for name, text, x in zip(names, given * len(operands) if alone else given, operands, strict=True):
            if isinstance(x, Tensor) and not fits(scope.type(text), x.type):
                message = f"`{name}` is {x.type}, and `{s.name}` declares it {text}"
                raise Violation("OperandTypeMismatch", message, loc=name.loc if alone else text.loc)

    def checked(self, s: Statement, site: Site, results: list[object]) -> list[object]:
        """The results, which must have their declared types. Raises Violation."""
        count = sum(n for _, n in s.results)
        if count == 0:
            return []
        require(len(results) == count, "OperandCountMismatch", f"`{s.name}` gives {len(results)} results, {count} are named")
        written = s.returned if s.returned is not None else s.given or []
        for i, (t, x) in enumerate(zip(site.types, results, strict=True)):
            if isinstance(x, Tensor) and not fits(t, x.type):
                token = written[min(i, len(written) - 1)] if written else None
                instead = faults.worded(str(x.type)) if token is not None and "?" not in str(x.type) else None
                help = f"did you mean `{instead}`?" if instead is not None else None
                message = f"the result is declared {t}, and is {x.type}"
                loc = token.loc if token is not None else 0
                raise Violation("ResultTypeMismatch", message, help=help, loc=loc, instead=instead)
        return results

    def returned(self, s: Statement, scope: Scope) -> list[object]:
        """The operands of a return. Raises Violation, InError."""
        self.here.loc = s.loc
        try:
            names = read_names(s.pieces)
            operands = [self.operand(token, scope) for token in names]
            if s.given is not None:
                require(len(s.given) == len(operands), "OperandCountMismatch", f"{len(operands)} operands, {len(s.given)} types")
                for name, text, x in zip(names, s.given, operands, strict=True):
                    if isinstance(x, Tensor) and not fits(scope.type(text), x.type):
                        message = f"`{name}` is {x.type}, and the return declares it {text}"
                        raise Violation("OperandTypeMismatch", message, loc=text.loc)
            return operands
        except Violation as violation:
            self.error(violation, s)
            raise InError from None

    def call(self, s: Statement, scope: Scope) -> list[object]:
        """The results of a called function, whose ops are inlined here."""
        names = _symbols(s)
        require(len(names) == 1, "SyntaxError", "a call names one function")
        tokens = read_names(s.pieces)
        operands = [self.operand(token, scope) for token in tokens]
        self.declared(s, tokens, operands, scope)
        try:
            return self.inlined(names[0][1:].strip('"'), operands, scope)
        except Violation as violation:
            violation.loc = violation.loc or names[0].loc
            raise

    def inlined(self, name: str, operands: Sequence[object], scope: Scope) -> list[object]:
        """The results of the function called `name`. Raises Violation, InError."""
        entry = self.functions.get(name)
        if entry is None or entry.body is None:
            help, instead = proposed(name, self.functions, "@{}", "@{}")
            raise Violation("UndefinedValue", f"there is no function @{name} with a body", help=help, instead=instead)
        if name in self.calls:
            raise refused(f"@{name} calls itself")
        if len(self.calls) >= current().nesting:
            raise LimitExceeded(f"{len(self.calls)} calls within each other", "--max-nesting")
        self.calls.append(name)
        try:
            inner = Scope(self, scope.block, None, scope.lift)
            inner.device = scope.on_device
            inner.parameters(entry.params or entry.body.params, [scope.lifted(x) for x in operands])
            return inner.body(entry.body)
        finally:
            self.calls.pop()


def statements(block: Block | None) -> list[Statement]:
    """All ops of a block, those of inner regions included."""
    listed: list[Statement] = []
    todo = [block] if block is not None else []
    while todo:
        for s in todo.pop().body:
            listed.append(s)
            todo += s.regions()
    return listed


def _symbols(s: Statement) -> list[Token]:
    """The function symbols in an op."""
    tokens: list[Token] = []
    todo: list[object] = list(s.pieces)
    for x in todo:
        if isinstance(x, Token) and x.type == "SYMBOL":
            tokens.append(x)
        elif isinstance(x, dict):
            todo += x.values()
        elif isinstance(x, Typed):
            todo.append(x.value)
        elif isinstance(x, list):
            todo += x
    return tokens


def _mesh(text: str) -> dict[str, int]:
    """The extents of the axes in `<["x"=4]>`."""
    return {name: integer(n) for name, n in re.findall(r'"([^"]*)"\s*=\s*(\d+)', text)}


def flattened(values: Sequence[object]) -> list[Tensor]:
    """The tensors of values; tuples are taken apart, tokens left out."""
    tensors: list[Tensor] = []
    for x in values:
        if isinstance(x, tuple):
            tensors += flattened(x)
        elif isinstance(x, Tensor):
            tensors.append(x)
        elif isinstance(x, quantized.Value):
            tensors.append(x.storage)
    return tensors


def _generic_function(s: Statement) -> FunctionText:
    """A function in the generic form."""
    attrs: dict[str, Typed] = {k: v for piece in s.pieces if isinstance(piece, dict) for k, v in piece.items()}
    body = next(s.regions(), None)
    text = {k: str(plain(attrs[k])) for k in ("sym_name", "sym_visibility") if k in attrs}
    kind = attrs["function_type"].value if "function_type" in attrs else None
    last = kind.factors[-1] if isinstance(kind, Product) else []
    results = [Parameter(None, t, {}) for t in last if isinstance(t, Token)] if isinstance(last, list) else []
    return FunctionText(text.get("sym_name", ""), s.at, text.get("sym_visibility", ""), [], results, body, s.loc)


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in `source`; None after reporting every op that is wrong or cannot be expressed."""
    if _VERSIONED.search(source.text):
        text = portable.text_of(source.text.encode("utf-8"), diagnostics, "VHLO")
        if text is None:
            return None
        source.text, source.data = text, source.text.encode("utf-8")
    lost: set[str] = set()
    items = parse(source, diagnostics, DIALECT.codes.syntax, lost)
    if items is None:
        return None
    reader = Reader(source, diagnostics, options)
    reader.lost = lost
    reader.collect(items)
    return reader.program()


FORMAT = Format("stablehlo", "ptir", read, late("ptir_tools.bridges.stablehlo.writer", "write"))
