"""Small faults in a source text: where they can be put, and the text with one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
# Names that are easily taken for each other.
PAIRS = [("left", "right"), ("lhs", "rhs"), ("low", "high"), ("lower", "upper"), ("first", "last"), ("rows", "columns"),
         ("height", "width"), ("m", "n"), ("x", "y"), ("a", "b"), ("start", "stop"), ("on_true", "on_false"),
         ("source", "target"), ("ins", "outs"), ("inputs", "outputs"), ("operands", "results")]  # fmt: skip
CROSSED = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
AXES = ("axis", "axes", "dim", "dims", "shape", "strides", "sizes", "extents", "static_shape", "perm", "contract")
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
# What only words an error: its text may be anything.
WORDS = ("require", "error", "warning", "note", "Violation", "attribute", "want")
# Keywords whose values change nothing in a program that is right.
IDLE = ("strict", "slots", "frozen", "loc", "help", "encoding")
# In C: what a fault turns into what.
TOKENS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "+",
    "+=": "-=", "0": "1", "1": "2", "++": "--",
}  # fmt: skip
_C = re.compile(
    r"(?P<skip>/\*.*?\*/|//[^\n]*|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*|\"(?:[^\"\\]|\\.)*\"|->|<<|>>|[-*/|&^]=|--|0x[0-9a-fA-F.p+-]+f?"
    r"|\d+\.\d*\w*|\w*[A-Za-z_]\w*)|(?P<token><=|>=|==|!=|&&|\|\||\+\+|\+=|(?<=[\w)\]] )[-+*<>](?= )|\b[01]\b)",
    re.DOTALL | re.MULTILINE,
)


# In a rule written as text: what an op on its right side turns into.
TWINS = {"add": "sub", "sub": "add", "mul": "div", "div": "mul", "neg": "abs", "abs": "neg", "maximum": "minimum"}
TWINS |= {"minimum": "maximum", "and": "or", "or": "and", "eq": "ne", "ne": "eq", "lt": "le", "le": "lt"}
_RULE_PARTS = (
    ("rule condition", re.compile(r"\s+if\s+.*?(?=\s*\[[a-z-]+\]|\s*$)"), lambda m: ""),
    ("rule effect", re.compile(r"\[[a-z-]+\]\s*$"), lambda m: ""),
    ("rule mark", re.compile(r"\b(?:const|once|var) "), lambda m: ""),
    ("rule number", re.compile(r"(?<![\w.-])\d+(?![\w.])"), lambda m: str(int(m[0]) + 1)),
    ("rule operands", re.compile(r"(?<==> )(.*?)\((\w+), (\w+)\)"), lambda m: f"{m[1]}({m[3]}, {m[2]})"),
    ("rule op", re.compile(r"(?<=[ (])(?:" + "|".join(TWINS) + r")(?=\()"), lambda m: TWINS[m[0]]),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One change: the bytes from `start` to `end` become `text`."""

    kind: str
    line: int
    start: int
    end: int
    text: str

    def put(self, source: bytes) -> bytes:
        """The source with this fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def of_python(source: bytes) -> Iterator[Fault]:
    """Faults of a Python file: expressions, statements and rules written as text, those in annotations and in the words of errors
    left out."""
    tree = ast.parse(source)
    _mark_keys(tree)
    yield from _of_rules(source, tree)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    yield from _of_statements(source, tree, starts)
    for node in _nodes(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            node, variants = node.test, [("negated condition", ast.UnaryOp(ast.Not(), node.test))]
        else:
            variants = list(_variants(node))
        for kind, new in variants:
            text = ast.unparse(new)
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            yield Fault(kind, node.lineno, start, end, f"({text})" if isinstance(new, ast.expr) else text)


def _of_statements(source: bytes, tree: ast.AST, starts: list[int]) -> Iterator[Fault]:
    """Faults that a maintainer makes: a case that is forgotten, a check that is dropped, names that are crossed, a loop that ends
    one early, a key that lacks a part."""

    def place(node: ast.expr | ast.stmt | ast.excepthandler) -> tuple[int, int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return node.lineno, starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    for node in _nodes(tree):
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[0], (ast.Raise, ast.Return, ast.Continue)):
            yield Fault("dropped check", *place(node), "pass")
        elif isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            branch = node.orelse[0].test
            yield Fault("forgotten case", *place(branch), "False")
        elif (
            isinstance(node, ast.match_case) and not isinstance(node.pattern, (ast.MatchAs, ast.MatchStar)) and node.guard is None
        ):
            line, start, end = place(node.pattern)  # type: ignore[arg-type]
            yield Fault("forgotten case", line, start, end, f"{source[start:end].decode()} if False")
        elif isinstance(node, ast.FunctionDef):
            known = {a.arg for a in node.args.args} | {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and CROSSED.get(name.id) in known:
                    yield Fault("crossed operands", *place(name), CROSSED[name.id])


def _of_rules(source: bytes, tree: ast.AST) -> Iterator[Fault]:
    """Faults of the rules that a file has as text: a condition, an effect or a mark gone, another number, operand or op."""
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("\n") and "=>" in node.value
        ):
            continue
        for number in range(node.lineno, node.end_lineno or node.lineno):
            line = lines[number].decode().rstrip("\n")
            if "=>" not in line or line.lstrip().startswith("#"):
                continue
            for kind, part, change in _RULE_PARTS:
                for m in part.finditer(line):
                    start, end = (starts[number] + len(line[:at].encode()) for at in m.span())
                    if (new := change(m)) != m[0]:
                        yield Fault(kind, number + 1, start, end, new)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that matter when the program runs well."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment", "msg"):
            continue
        for child in value if isinstance(value, list) else [value]:
            skipped = (
                not isinstance(child, ast.AST)
                or isinstance(child, (ast.JoinedStr, ast.Import, ast.ImportFrom))
                or (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant))
                or (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING")
                or isinstance(child, ast.Assert)  # for the type checker
                or (isinstance(child, ast.keyword) and child.arg in IDLE)
                or (isinstance(child, ast.Assign) and ast.unparse(child.targets[0]).startswith("__"))
            )
            if skipped or (name in ("args", "keywords") and _words(node) and child is not node.args[0]):
                continue
            yield child
            yield from _nodes(child)


def _words(node: ast.AST) -> bool:
    """Whether a call words an error; its first argument may be a condition."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in WORDS


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node may become, with the kind of fault."""
    new = deepcopy(node)
    if isinstance(node, ast.Compare) and isinstance(new, ast.Compare):
        for i, op in enumerate(node.ops):
            changed = deepcopy(new)
            changed.ops[i] = COMPARISONS[type(op)]()
            yield "comparison", changed
    elif isinstance(new, ast.BoolOp):
        new.op = ast.And() if isinstance(new.op, ast.Or) else ast.Or()
        yield "and/or", new
        for i in range(len(new.values)):
            rest = [v for k, v in enumerate(new.values) if k != i]
            yield "dropped condition", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, (ast.Not, ast.USub)):
        yield "removed not" if isinstance(new.op, ast.Not) else "sign", new.operand
    elif isinstance(new, ast.BinOp) and type(new.op) in ARITHMETIC:
        if isinstance(new.op, ORDERED):
            yield "swapped operands", ast.BinOp(new.right, new.op, new.left)
        yield "arithmetic", ast.BinOp(new.left, ARITHMETIC[type(new.op)](), new.right)
    elif isinstance(new, ast.Constant) and type(new.value) in (bool, int, float):
        yield "constant", ast.Constant(not new.value if isinstance(new.value, bool) else new.value + 1)
    elif isinstance(new, ast.Subscript) and isinstance(new.slice, ast.Constant) and new.slice.value in (0, 1):
        changed = ast.Constant(1 - new.slice.value)
        yield "wrong axis" if _name(node.value) in AXES else "crossed operands", ast.Subscript(new.value, changed, new.ctx)
    elif isinstance(new, ast.Subscript) and _name(node.value) in AXES and ast.unparse(node.slice) == "-1":
        yield "wrong axis", ast.Subscript(new.value, ast.Constant(-2), new.ctx)
    elif isinstance(new, ast.Tuple) and isinstance(new.ctx, ast.Load) and len(new.elts) > 1 and _is_key(node):
        for i in range(len(new.elts)):
            yield "stale key", ast.Tuple([x for k, x in enumerate(new.elts) if k != i], new.ctx)
    elif isinstance(new, ast.Call) and ast.unparse(new.func) == "range" and len(new.args) in (1, 2):
        last = ast.BinOp(new.args[-1], ast.Sub(), ast.Constant(1))
        yield "tail of a loop", ast.Call(new.func, [*new.args[:-1], last], [])
    elif isinstance(new, ast.Call):
        for i, word in enumerate(new.keywords):
            if word.arg not in (None, *IDLE) and not _words(node):
                yield "keyword", ast.Call(new.func, new.args, [w for k, w in enumerate(new.keywords) if k != i])
        if len(new.args) == 2 and not new.keywords and not any(isinstance(a, ast.Starred) for a in new.args) and not _words(node):
            yield "swapped operands", ast.Call(new.func, new.args[::-1], [])
    elif isinstance(new, (ast.AugAssign, ast.Continue, ast.Break)) or (
        isinstance(new, ast.Expr) and isinstance(new.value, (ast.Call, ast.YieldFrom))
    ):
        yield "deleted statement", ast.Pass()


_IN_C = [
    ("tail of a loop", re.compile(r"(?<=for \()([^;]*; \w+) < (\w+)(?=;)"), lambda m: f"{m[1]} + 1 < {m[2]}"),
    ("dropped check", re.compile(r"^( *)if \([^\n]*\)\n *(?:return|continue|break)[^\n]*;$", re.M), lambda m: f"{m[1]};"),
    ("forgotten case", re.compile(r"case [^\n]*break;$", re.M), lambda m: ""),
    ("crossed operands", re.compile(r"\b(?:rows|columns|left|right|first|last|m|n|low|high|height|width)\b(?! =|\()"),
     lambda m: CROSSED[m[0]]),
]  # fmt: skip
_NOT_CODE = re.compile(r"/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.DOTALL | re.MULTILINE)


def _of_c_kinds(text: str) -> Iterator[Fault]:
    """Faults of the kinds that a maintainer makes in C."""
    code = _NOT_CODE.sub(lambda m: " " * len(m[0]), text)
    for kind, part, change in _IN_C:
        for m in part.finditer(code):
            start, end = (len(text[:at].encode()) for at in m.span())
            yield Fault(kind, text.count("\n", 0, m.start()) + 1, start, end, change(m))


def _name(node: ast.expr) -> str:
    """The last name of an expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_key(node: ast.AST) -> bool:
    """Whether a tuple may be the key of something that is kept: `of_python` marks these."""
    return getattr(node, "is_key", False)


def _mark_keys(tree: ast.AST) -> None:
    """Mark tuples that are assigned to a key, or given first to what keeps and finds by key."""
    for node in ast.walk(tree):
        found: ast.AST | None = None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.endswith("key"):
            found = node.value
        elif isinstance(node, ast.Call) and _name(node.func) in ("kept", "once", "setdefault", "get") and node.args:
            found = node.args[0]
        if isinstance(found, ast.Tuple):
            found.is_key = True  # type: ignore[attr-defined]


def of_c(source: bytes) -> Iterator[Fault]:
    """Faults of a C file: tokens outside of comments, texts and what the preprocessor reads."""
    text = source.decode()
    yield from _of_c_kinds(text)
    for found in _C.finditer(text):
        if (token := found["token"]) is not None:
            start = len(text[: found.start()].encode())
            line = text.count("\n", 0, found.start()) + 1
            kind = "constant" if token.isdigit() else "arithmetic" if token in "+-*++=" else "comparison"
            yield Fault(kind, line, start, start + len(token.encode()), TOKENS[token])
