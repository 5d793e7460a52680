"""The structure of a program as text, to compare programs whose names and layout differ; and how their constants differ."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher, unified_diff

from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import lazy, np, regex
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.writing import program_text

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = lazy("hashlib")

_DATA = regex(r"[0-9A-Fa-f]{64,}|[-+0-9.e,\[\] ]{160,}")  # of a constant: hex, or a list of numbers
_SHOWN = 12  # characters of data that are shown
_FEW = 16  # elements of a constant that a line shows well


def plain_text(program: Program, options: Options | None = None) -> str:
    """The text of a copy in which every value, function and region is called by its number, and long data by its hash."""
    copy = clone(program)
    form = program.dialect.formats[0].name
    for block in copy.blocks():
        for number, v in enumerate(block.values()):
            v.name = str(number)
    for number, function in enumerate(copy.functions):
        copy.entry = f"f{number}" if function.name == copy.entry else copy.entry
        function.name = f"f{number}"
        function.attrs = {k: v for k, v in function.attrs.items() if k not in ("input_names", "output_names")}
    text = "".join(program_text(copy, form, Diagnostics(), options or Options()))
    return _DATA.sub(lambda data: _short(data[0]), text)


def differences(first: Program, second: Program, names: tuple[str, str], options: Options | None = None) -> list[str]:
    """The lines of a unified diff of the plain texts, then those of the constants that differ. Raises UsageError for two IRs."""
    if first.dialect is not second.dialect:
        raise UsageError(
            f"one is a {first.dialect.name} program, the other {second.dialect.name}; `ptir diff --run` compares those"
        )
    old, new = (plain_text(p, options).splitlines(keepends=True) for p in (first, second))
    lines = list(unified_diff(old, new, *names))
    return [*lines, *constant_differences(first, second)] if lines else []


def _short(data: str) -> str:
    return f"{data[:_SHOWN]}…{hashlib.sha256(data.encode()).hexdigest()[:8]}"


def constant_differences(first: Program, second: Program) -> Iterator[str]:
    """A line for each constant of more than a few elements that differs from the one in its place."""
    a, b = (list(_constants(p)) for p in (first, second))
    for tag, i, j, k, m in SequenceMatcher(None, [x.key for _, x in a], [x.key for _, x in b], autojunk=False).get_opcodes():
        if tag == "replace":
            for (name, x), (other, y) in zip(a[i:j], b[k:m], strict=False):
                if x.type.shape == y.type.shape and not (x.is_missing or y.is_missing):
                    yield f"# constant {name}{f' = {other}' if other != name else ''}: {x.type}, {_distance(x, y)}\n"


def _constants(program: Program) -> Iterator[tuple[str, Literal]]:
    """The constants of more than a few elements, with the value that has or uses each."""
    for op in (op for block in program.blocks() for op in block.body):
        for x in (*op.operands, *op.attrs):
            if isinstance(x, Literal) and x.type.count > _FEW:
                yield op.results[0].name if op.results else op.defn.short, x


def _distance(x: Literal, y: Literal) -> str:
    """How two constants of the same shape differ."""
    a, b = (arrays.widen(arrays.from_literal(each)) for each in (x, y))
    off = ~((a == b) | ((a != a) & (b != b)))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    retyped = "" if x.type.dtype is y.type.dtype else f"{y.type.dtype} in B; "
    if not off.any():
        return f"{retyped}all elements are equal" if retyped else "the signs of zeros or NaN differ"
    with np.errstate(all="ignore"):
        gap = np.abs(a[off] - b[off]) if a.dtype.kind in "fc" and b.dtype.kind in "fc" else None
    most = "" if gap is None else f", by at most {float(np.max(gap)):.3g}"
    where = f"[{', '.join(map(str, at))}]"
    return f"{retyped}{int(np.count_nonzero(off))} of {off.size} elements differ{most}; {where} is {b[at]}, was {a[at]}"
