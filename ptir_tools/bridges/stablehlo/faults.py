"""Errors of StableHLO ops, in the words of StableHLO, and their places in the text of the op."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from ptir_tools.bridges.stablehlo.scopes import read_names
from ptir_tools.bridges.stablehlo.syntax import Keyed, Statement
from ptir_tools.bridges.stablehlo.types import SPELLING
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.violations import Place, Violation
from ptir_tools.grammars.parser import Token

_TENSOR = regex(r"tensor<([a-z]\w*)((?:, [^<>]*)?)>")
_DTYPE = regex(r"\bsi(4|8|16|32|64)\b")
_QUOTED = regex(r"`([\w.]+)`")
_VALUE = r"""\s*(\[[^\]]*\](?:\s*x\s*\[[^\]]*\])?|"[^"\n]*"|(?:#[\w.]+|array|dense)<[^>]*>|[\w.+-]+)"""
_NAMES = {dtype.name: text for dtype, text in SPELLING.items()}
# Attributes of PTIR's ops, and the words for them in StableHLO.
_ATTRIBUTES = {
    "contract_lhs": "contracting_dims", "contract_rhs": "contracting_dims", "batch_lhs": "batching_dims",
    "batch_rhs": "batching_dims", "perm": "dims", "axes": "dimensions", "axis": "dim", "low": "low", "high": "high",
}  # fmt: skip
_SHAPES = ("new_shape", "result_shape")  # attributes that are the result's type in StableHLO
_ABOUT = {"contract axes": "contracting_dims", "batch axes": "batching_dims"}  # how messages about attributes begin
# The helps of PTIR's rules that name its ops, and what StableHLO has for them.
HELPS = {
    "make the shapes equal with broadcast_to": "make the shapes equal with stablehlo.broadcast_in_dim",
    "insert a cast": "insert a stablehlo.convert",
}


def worded(message: str, spelled: Mapping[str, str] | None = None) -> str:
    """A message about PTIR's types and attributes with those of StableHLO; `spelled` are the words of the pretty form."""
    message = _TENSOR.sub(_type, message)
    for word, name in (spelled or {}).items():
        message = message.replace(f"`{name}`", f"`{word}`")
    return _DTYPE.sub(r"i\1", message)


def _type(m: re.Match[str]) -> str:
    if m[1] not in _NAMES:
        return m[0]
    shape = re.sub(r"\?\w+", "?", m[2].removeprefix(", ").replace(" ", ""))
    return f"tensor<{shape}{'x' if shape else ''}{_NAMES[m[1]]}>"


def place(violation: Violation, s: Statement, text: str, spelled: Mapping[str, str]) -> Loc:
    """The part of the statement that a violation is about: the one that it names, else the name of the op."""
    if violation.loc:
        return violation.loc
    at, names = violation.at, read_names(s.pieces)
    if str(at.key if isinstance(at, Place) else at) in _SHAPES and (types := s.returned or s.given):
        return types[-1].loc
    if isinstance(at, str) and (found := re.compile(rf"(?<![\w$%@]){re.escape(at)}(?![\w$.])").search(text, s.start, s.end)):
        return pack(*found.span())
    wanted = _QUOTED.findall(violation.message)
    wanted += [word for begin, word in _ABOUT.items() if violation.message.startswith(begin)]
    if isinstance(at, Place) and not any(map(violation.message.startswith, _ABOUT)):
        if at.kind == "operand" and 0 <= int(at.key) < len(names):
            return names[int(at.key)].loc
        wanted.append(_ATTRIBUTES.get(str(at.key), str(at.key)))
    words = [w for name in wanted for w in (name, *(word for word, other in spelled.items() if other == name))]
    for word in words:
        if found := re.compile(rf'(?<![\w$%@."]){re.escape(word)}"?\s*={_VALUE}').search(text, s.at.end_pos, s.end):
            return _entry(found, at.entry if isinstance(at, Place) else ())
    if violation.code in ("LiteralSizeMismatch", "InvalidLiteral"):
        literal = next((x for x in s.pieces if isinstance(x, Token) and x.type == "DENSE"), None)
        return literal.loc if literal is not None else s.at.loc
    return s.at.loc


def _entry(found: re.Match[str], entry: tuple[int, ...]) -> Loc:
    """The number of a list that `entry` counts, or the list."""
    numbers = list(re.finditer(r"-?\d+", found[1])) if len(entry) == 1 else []
    if not entry or not entry[0] < len(numbers):
        return pack(*found.span(1))
    start, stop = numbers[entry[0]].span()
    return pack(found.start(1) + start, found.start(1) + stop)


def within(token: Token, violation: Violation) -> Loc:
    """The part of a type that a violation is about: its last word, if it is in the type."""
    word = violation.message.rpartition(" ")[2]
    at = token.rfind(word)
    return pack(token.start_pos + at, token.start_pos + at + len(word)) if at > 0 else token.loc


def check_words(s: Statement, text: str, known: Mapping[str, object]) -> None:
    """Raise Violation for a missing comma between operands, or an operand without `%`."""
    for piece in s.pieces:
        if isinstance(piece, Token) and piece.type == "WORD" and str(piece) in known and s.at.type == "NAME":
            message = f"`{piece}` is no operand: a value begins with `%`"
            raise Violation("SyntaxError", message, help=f"did you mean `%{piece}`?", loc=piece.loc, instead=f"%{piece}")
    for before, after in pairwise(s.pieces):
        if not isinstance(before, Token) or before.type != "SSA" or not isinstance(after, Keyed) or after.key is after.value:
            continue
        if not text[before.end_pos : after.key.start_pos].strip():
            message = f"`,` is missing before `{after.key}`"
            raise Violation("SyntaxError", message, help="write `,`", loc=pack(before.start_pos, after.key.end_pos))
    tokens = [x for x in s.pieces if isinstance(x, Token) and x.type == "SSA"]
    for x, y in pairwise(tokens):
        if not text[x.end_pos : y.start_pos].strip():
            raise Violation(
                "SyntaxError", "`,` is missing between the operands", help="write `,`", loc=pack(x.start_pos, y.end_pos)
            )
