"""The fast path of the reader: a statement is read by the grammar once for every skeleton, its text without names and indices.

Lines that certainly begin a statement cut a text into pieces. Two pieces of one skeleton differ in the text of tokens alone, so
the parse of one, moved, is that of the other. A text with a piece that does not parse by itself goes to the grammar whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass, field, fields
from ptir_tools.core.source import Loc, pack
from ptir_tools.dialects.pto.text import recovery
from ptir_tools.dialects.pto.text.syntax import File, FunctionText, Statement, parse_piece
from ptir_tools.grammars.parser import Token, token

_BLANKS = " \t\r\n\f\ufeff"
# The terminal SSA, and plain numbers in lists and constants: what differs between statements of one skeleton.
_HOLE = regex(
    r"(%[A-Za-z0-9_$.-]+(?:#\d+)?|(?<=\[)-?[0-9]+(?=[,\]])|(?<=, )-?[0-9]+(?=[,\]])|(?<=\.constant )-?[0-9]+(?:\.[0-9]+)?(?= ))"
)
_NESTED = r"<(?:[^<>]|<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)*>"
_COMMENT = regex(rf'"(?:[^"\\\n]|\\.)*"|{_NESTED}|\bloc\((?:[^()]|\([^()]*\))*\)|(//[^\n]*|;[^\n]*)')
_ELSE = regex(rf"\}}[{_BLANKS}]*else[{_BLANKS}]*\{{")
_CLOSING = regex(rf"\}}[}}{_BLANKS}]*")


@dataclass(slots=True, eq=False)
class Skeleton:
    """One piece of text as the grammar reads it. Hole k of a piece is `parts[2 * k + 1]` of it.

    `usual` says that it is one statement without blocks, in which the first `results` holes are its results, `operands` its
    operands, and `fixed` all others.
    """

    file: File
    parts: list[str]
    ends: list[int]  # of the holes
    usual: bool = False
    results: int = 0
    operands: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    rest: int = 0  # characters of the piece behind its statement
    plans: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # of the reader, by texts of `fixed` and operand types

    def moved(self, parts: list[str], start: int) -> File:
        """The parse of the piece at `start` with these parts."""
        grown = (len(b) - len(a) for a, b in zip(self.parts[1::2], parts[1::2], strict=True))
        by = list(accumulate(grown, initial=start))
        return _copy(self.file, lambda at: at + by[bisect_right(self.ends, at)], "".join(parts), start)  # type: ignore[no-any-return]


@dataclass(slots=True, eq=False)
class Line:
    """A usual statement: its skeleton, the parts of its text, where it stands."""

    skeleton: Skeleton
    parts: list[str]
    start: int
    end: int

    @property
    def loc(self) -> Loc:
        return pack(self.start, self.end)

    def statement(self) -> Statement:
        """The statement as the grammar reads it."""
        return self.skeleton.moved(self.parts, self.start).statements[0]


def _copy(x: Any, move: Callable[[int], int], text: str, start: int) -> Any:
    """What the grammar made of a piece, for another piece of the same skeleton; every integer in it is a place."""
    if isinstance(x, Token):
        begin, end = move(x.start_pos), move(x.end_pos)
        return token(x.type, text[begin - start : end - start], begin, end)
    if isinstance(x, int):
        return move(x)
    if x is None or isinstance(x, str):
        return x
    if isinstance(x, (list, tuple, set)):
        return type(x)(_copy(y, move, text, start) for y in x)
    return type(x)(*(_copy(getattr(x, f.name), move, text, start) for f in fields(x)))


def scan(text: str) -> File | None:
    """The statements of `text`, the usual ones as lines; None when it must be read by the grammar whole."""
    code = _COMMENT.sub(lambda m: " " * len(m[0]) if m[1] else m[0], text) if "//" in text or ";" in text else text
    starts = recovery.starts(code)
    if not starts or code[: starts[0]].strip(_BLANKS):
        return None
    scanned = _Scan()
    for start, end in zip(starts, [*starts[1:], len(code)], strict=True):
        if not scanned.piece(code[start:end].rstrip(_BLANKS), start, code.startswith("%", end)):
            return None
    return scanned.finish()


@dataclass(slots=True)
class _Open:
    """What a brace has opened: where its statements go, and what they belong to."""

    statements: list[Any]
    owner: File | FunctionText | Statement


@dataclass(slots=True)
class _Scan:
    top: File = field(default_factory=File)
    modules: list[File] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    skeletons: dict[tuple[str, ...], Skeleton | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stack.append(_Open(self.top.statements, self.top))

    def finish(self) -> File | None:
        for m in self.modules:
            self.top.attributes += m.attributes
        self.top.functions[:0] = [f for m in self.modules for f in m.functions]
        self.top.statements[:0] = [s for m in self.modules for s in m.statements]
        return self.top if len(self.stack) == 1 else None

    def piece(self, piece: str, start: int, value_next: bool) -> bool:
        """Take a piece of text; False when only the whole text can be read. `value_next`: the next piece begins with a value."""
        if piece[0] == "}":
            return self.close(piece, start)
        if piece[-1] == "{":
            return self.header(piece + "}", start)
        head, colon, tail = piece.partition(":")
        parts = _HOLE.split(head)
        parts[-1] += colon + tail
        skeleton = self.skeleton(parts, piece)
        if skeleton is None or (value_next and _bare(skeleton.file.statements[-1])):
            return False
        into = self.stack[-1].statements
        if skeleton.usual:
            into.append(Line(skeleton, parts, start, start + len(piece) - skeleton.rest))
        else:
            into += skeleton.moved(parts, start).statements
        return True

    def skeleton(self, parts: list[str], piece: str) -> Skeleton | None:
        """The skeleton of a piece; None when the piece is not one or more whole statements."""
        key = _key(parts, "")
        if key not in self.skeletons:
            file = None if piece.startswith(("module", "func.func")) else parse_piece(piece)
            self.skeletons[key] = None if file is None or not file.statements else _skeleton(file, parts, piece)
        return self.skeletons[key]

    def header(self, piece: str, start: int) -> bool:
        """Take what opens a block; `piece` closes it again at once."""
        parts = _HOLE.split(piece)
        key = _key(parts, "{")
        if key not in self.skeletons:
            file = parse_piece(piece)
            self.skeletons[key] = None if file is None else Skeleton(file, parts, _ends(parts))
        skeleton = self.skeletons[key]
        if skeleton is None:
            return False
        made, inside = skeleton.moved(parts, start), self.stack[-1]
        if len(made.statements) == 1 and made.statements[0].blocks:
            inside.statements.append(owner := made.statements[0])
            self.stack.append(_Open(owner.blocks[-1], owner))
        elif made.functions and isinstance(inside.owner, File):
            inside.owner.functions.append(function := made.functions[0])
            self.stack.append(_Open(function.body, function))
        elif not made.statements and not made.functions and inside.owner is self.top:
            self.modules.append(made)
            self.stack.append(_Open(made.statements, made))
        else:
            return False
        return True

    def close(self, piece: str, start: int) -> bool:
        """Take braces that close blocks, the last of them perhaps for an `else`."""
        owner = self.stack[-1].owner
        if _ELSE.fullmatch(piece):
            if not isinstance(owner, Statement) or owner.name != "scf.if" or len(owner.blocks) != 1:
                return False
            owner.blocks.append([])
            self.stack[-1].statements = owner.blocks[-1]
            return True
        if not _CLOSING.fullmatch(piece) or len(self.stack) <= piece.count("}"):
            return False
        for at, c in enumerate(piece, start + 1):
            if c == "}" and not isinstance(owner := self.stack.pop().owner, File):
                owner.end = at
        return True


def _bare(s: Statement) -> bool:
    """Whether a statement is a name alone, to which a value that follows would belong."""
    return s.before is None and not (s.operands or s.attributes or s.waits or s.blocks)


def _key(parts: list[str], kind: str) -> tuple[str, ...]:
    """Equal for pieces of one skeleton: what stands between the holes, and which of these are names."""
    return (kind, "".join(["%" if hole[0] == "%" else "0" for hole in parts[1::2]]), *parts[::2])


def _ends(parts: list[str]) -> list[int]:
    return list(accumulate(map(len, parts)))[1::2]


def _skeleton(file: File, parts: list[str], piece: str) -> Skeleton:
    ends = _ends(parts)
    made = Skeleton(file, list(parts), ends)
    s = file.statements[0]
    if len(file.statements) > 1 or s.blocks or s.start or s.name in ("return", "func.return", "scf.yield", "scf.condition"):
        return made
    made.usual, made.results, made.rest = True, len(s.results), len(piece) - s.end
    used = [t for x in s.operands for t in (x.token, *(t for part in x.subscripts for t in part))] + s.waits
    used += [t for e in s.attributes if e.key == "valid" and isinstance(e.value, list) for t in e.value]
    places = {t.end_pos for t in used if t.type == "SSA"}
    places |= {t.end_pos for x in s.operands for part in x.subscripts for t in part}
    holes = range(made.results, len(ends))
    made.operands = tuple(k for k in holes if ends[k] in places)
    made.fixed = tuple(k for k in holes if ends[k] not in places)
    return made
