"""How text PTIR spells names, dtypes, extents and types: the terminals, and their meaning.

The patterns are those of grammars/ptir.lark; a test compares the two.
"""

from __future__ import annotations

import re

from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import integer
from ptir_tools.core.spelling import dtype_meant
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, TensorType, sym, tensor
from ptir_tools.core.violations import Violation

if TYPE_CHECKING:
    import unicodedata
else:
    unicodedata = lazy("unicodedata")

NAME = r"[\w.$]+"
WORD = r"[A-Za-z_][\w.$]*"
QUOTED = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
TENSOR = rf"[Tt]ensor[ \t]*<[^<>\"{{}}()]*(?:{QUOTED}[^<>\"{{}}()]*)*>"
SYMBOL = rf"\?(?:[A-Za-wyz_][A-Za-wyz0-9_]*|{QUOTED})"

_TENSOR = regex(r"[Tt]ensor[ \t]*<\s*([^\s,>]*)\s*(?:,(.*))?>", re.DOTALL)
_DIM = regex(rf"\s*(?:([0-9]+)|({SYMBOL}))\s*")
_LISTED = regex(rf"\s*[\[(]?((?>\s*(?:[0-9]++|{SYMBOL})\s*,?)+)[\])]?\s*")
_ESCAPE = regex(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_UNSAFE = regex(r"[^ !#-\[\]-~]")  # anything but printable ASCII, and of that `"` and `\`

DTYPES: dict[str, DType] = {d.name: d for d in PTIR_DTYPES}
DTYPES |= {d.name.replace("_", ""): d for d in PTIR_DTYPES}


def read_dtype(text: str) -> DType:
    """The dtype spelled `text`, in any case. Raises Violation("DTypeNotSupported")."""
    name = text.strip().lower()
    found = DTYPES.get(name)
    if found is None:
        meant = dtype_meant(name, DTYPES)
        help = None if meant else f"the dtypes are {', '.join(d.name for d in PTIR_DTYPES)}"
        raise Violation("DTypeNotSupported", f"there is no dtype `{text}`", help=help, at=text.strip(), instead=meant)
    return found


def read_tensor(text: str) -> TensorType:
    """The type spelled `tensor<dtype, dims>`. Raises Violation: "DTypeNotSupported", "NegativeDimension", "SyntaxError"."""
    parts = _TENSOR.fullmatch(text)
    if parts is None and (apart := re.fullmatch(r"[Tt]ensor\s*<\s*(\w+)\s+([\d?][\w?\s]*)>", text)) is not None:
        meant = f"tensor<{apart[1]}, {apart[2].strip()}>"
        raise Violation(
            "SyntaxError", f"`,` is missing after the dtype of `{text}`", help=f"write {meant}", at=text, instead=meant
        )
    if parts is None:
        raise Violation("SyntaxError", f"`{text}` is not a type", help="a type is written tensor<f32, 2x3>")
    dtype, dims = parts[1], parts[2]
    if re.fullmatch(r"(?:(?:\d+|\?[^\Wx]*)x)+[a-z]\w*", dtype):
        extents, _, element = dtype.rpartition("x")
        meant = f"tensor<{element if element in DTYPES else dtype_meant(element, DTYPES) or element}, {extents}>"
        raise Violation("SyntaxError", f"`{text}` is spelled as MLIR does", help=f"write {meant}", at=text, instead=meant)
    return tensor(read_dtype(dtype), read_dims(dims) if dims and not dims.isspace() else ())


def read_dims(text: str) -> list[Dim]:
    """Extents separated by `x`. Raises Violation: "NegativeDimension", "SyntaxError"."""
    dims: list[Dim] = []
    at = 0
    if "," in text and (listed := _LISTED.fullmatch(text)) is not None:  # as Python writes a shape
        wrong, meant = text.strip(), "x".join(part.strip() for part in listed[1].strip(" ,").split(","))
        help = f"extents are separated by x: {meant}"
        raise Violation("SyntaxError", f"`{wrong}` is a list of extents", help=help, at=wrong, instead=meant)
    while True:
        found = _DIM.match(text, at)
        if found is None:
            raise _bad_dim(text[at:].strip())
        dims.append(sym(read_symbol(found[2])) if found[2] else integer(found[1]))
        at = found.end()
        if at == len(text):
            break
        if text[at] != "x":
            raise _bad_dim(text[at:].strip())
        at += 1
    return dims


def _bad_dim(text: str) -> Violation:
    if re.match(r"-\d", text):
        return Violation("NegativeDimension", f"`{text}` is a negative extent", at=text)
    help = "extents are separated by x, a scalar is tensor<f32>: tensor<f32, 2x?Nx4>"
    if text[:1] in ("?", "*"):
        help = "an extent that is not known yet has a name: ?N"
    elif re.match(r"[A-Za-wyz_]", text):
        help = f"a name of an extent begins with `?`: `{re.sub('(?<![A-Za-wyz_0-9?])(?=[A-Za-wyz_])', '?', text)}`"
    message = f"`{text}` is not an extent" if text else "an extent is missing"
    return Violation("SyntaxError", message, help=help, at=text or None)


def read_symbol(text: str) -> str:
    """The name in `?N` or `?"max"`."""
    return unquote(text[1:]) if text[1] == '"' else text[1:]


def unquote(text: str) -> str:
    r"""The string in a quoted text, with the escapes of Rust: \n \t \r \0 \\ \" \' \u{7f}."""
    return _ESCAPE.sub(lambda m: _code_point(m[1]) if m[1] else _ESCAPES.get(m[2], m[2]), text[1:-1])


def _code_point(digits: str) -> str:
    value = int(digits, 16)
    if value > 0x10FFFF or 0xD800 <= value < 0xE000:
        raise Violation("SyntaxError", f"\\u{{{digits}}} is not a character")
    return chr(value)


def quote(text: str) -> str:
    """The string in quotes, escaped as Rust's `{:?}` does; everything printable is kept, but marks that combine."""

    def escape(char: str) -> str:
        short = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", '"': '\\"', "\\": "\\\\"}
        shown = char.isprintable() and unicodedata.category(char) not in ("Mn", "Me")
        return short.get(char) or (char if shown else f"\\u{{{ord(char):x}}}")

    return f'"{"".join(map(escape, text)) if _UNSAFE.search(text) else text}"'
