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
    yield from _of_rules(source, tree)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
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


def of_c(source: bytes) -> Iterator[Fault]:
    """Faults of a C file: tokens outside of comments, texts and what the preprocessor reads."""
    text = source.decode()
    for found in _C.finditer(text):
        if (token := found["token"]) is not None:
            start = len(text[: found.start()].encode())
            line = text.count("\n", 0, found.start()) + 1
            kind = "constant" if token.isdigit() else "arithmetic" if token in "+-*++=" else "comparison"
            yield Fault(kind, line, start, start + len(token.encode()), TOKENS[token])
