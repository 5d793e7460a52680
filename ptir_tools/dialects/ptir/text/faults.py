"""What is said of a text that does not fit, and what to write instead: for all readers of PTIR."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import OpDef, Region
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Loc, Source, Span
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import OP_NAME, Violation
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.synonyms import op_meant

if TYPE_CHECKING:
    from ptir_tools.core import places
else:
    places = lazy("ptir_tools.core.places")

CODES = DIALECT.codes

# Operations that other systems have, and what to write for them.
ADVICE = {
    "sqrt": "write it as reciprocal(rsqrt(x)), or as mul(x, rsqrt(x)) where x is positive",
    "relu": "write it as maximum(x, 0), with a constant 0 that is broadcast",
    "sigmoid": "write it with neg, exp, add and reciprocal",
    "softmax": "write it with reduce_max, sub, exp, reduce_sum and div",
    "gelu": "write it with erf or tanh",
    "flatten": "write it as reshape(x) new_shape[-1]",
    **dict.fromkeys(("squeeze", "unsqueeze"), "write it as reshape(x) new_shape[…]"),
    **dict.fromkeys(("mean", "reduce_mean"), "write it with reduce_sum, and div by the count"),
    **dict.fromkeys(("conv", "conv2d"), "write it with extract_patches and dot_general"),
    **dict.fromkeys(
        ("matmul", "dot"), "write dot_general(%a, %b) contract_lhs[1] contract_rhs[0]; `ptir ops dot_general` describes it"
    ),
}


def unknown_op(op: str, ops: Mapping[str, OpDef]) -> Violation:
    """The Violation for an op that there is not."""
    meant = op_meant(op, ops)
    help = ADVICE.get(op.lower()) or (None if meant else "`ptir ops` lists the operations")
    instead = None if op.lower() in ADVICE else meant
    return Violation(CODES.unknown_op, f"there is no operation `{op}`", at=OP_NAME, help=help, instead=instead)


def named(source: Source, name: str, at: Loc, again: int = 0) -> Loc | Span:
    """Where the item at `at` has `name` first, which is where it defines it, or `again`; the item when it is not known."""
    whole = source.span(at)
    if whole is None or source.text.startswith("{", whole.start):  # in JSON
        return at
    found = re.compile(rf"(?<![\w.$%@])%?{re.escape(name)}(?![\w.$])").finditer(source.text, *whole)
    return next((Span(*m.span()) for m in islice(found, again, None)), at)


def returning(source: Source, block: Region, at: Loc) -> Fix | None:
    """The edit that returns the last value, where that alone has the declared type, before the brace `at`."""
    span, types = source.span(at), block.result_types
    last = block.body[-1].results if block.body else []
    if span is None or len(types) != 1 or [v.type for v in last] != [*types]:
        return None
    start = source.text.rfind("\n", 0, span.start) + 1
    alone = not source.text[start : span.start].strip()
    place, indent = (start, source.text[start : span.start]) if alone else (span.start, "")
    return Fix(Span(place, place), f"{'' if alone else chr(10)}{indent}  return %{last[0].name}\n")


def no_entry(program: Program, source: Source, header: Loc, diagnostics: Diagnostics) -> None:
    """Report that the name of the program is not that of a function. The only function is what was meant."""
    names = [f.name for f in program.functions]
    meant = names[0] if len(names) == 1 else nearest(program.entry, names)
    whole = source.span(header) or Span(0, len(source.text))
    sigils = [s for s in ("@{}", '"{}"') if places.word(source, whole, s.format(program.entry))]
    at = places.word(source, whole, sigils[0].format(program.entry)) if sigils else None
    message = f"the entry function @{program.entry} is not in the program"
    help = f"a program is called like the function that runs: {', '.join(f'@{n}' for n in names) or 'there is none'}"
    instead = sigils[0].format(meant) if sigils and meant else None
    diagnostics.error("UnknownFunction", message, at or Span(0, min(7, whole.end)), help=help, instead=instead)
