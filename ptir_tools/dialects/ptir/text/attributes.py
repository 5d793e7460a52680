"""Attributes of a statement in text PTIR: what is read, in the order of the declaration, and what the result type says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.ir import OpDef, Operand, operand_type
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Loc, Span
from ptir_tools.core.spelling import attribute_meant
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import POISON, TensorType, Type
from ptir_tools.core.violations import OP_NAME, Place, Violation
from ptir_tools.core.violations import attribute as place
from ptir_tools.core.violations import key as place_of
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.text import forms
from ptir_tools.dialects.ptir.text.literals import read_payload

if TYPE_CHECKING:
    from ptir_tools.core import places
    from ptir_tools.dialects.external import Files
else:
    places = lazy("ptir_tools.core.places")

CODES = DIALECT.codes


# Attributes that the result type says.
FROM_RESULT: dict[str, tuple[str, ...]] = {
    "cast": ("dtype",),
    "iota": ("shape", "dtype"),
    "rng_uniform": ("shape", "dtype"),
    "rng_normal": ("shape", "dtype"),
}


def of_result(name: str, result: Type) -> object:
    """The attribute `name` as the result type says it. Raises Violation("ResultTypeMismatch") when that is not a tensor."""
    if not isinstance(result, TensorType):
        raise Violation("ResultTypeMismatch", f"the result is {result}, a tensor is wanted")
    return getattr(result, name)


# Names and the plain values between their brackets, in the order of the text.
Given = Sequence[tuple[str, Sequence[forms.Plain]]]
# Attributes that are read under another name.
_ALIASES = {("broadcast_to", "shape"): ("result_shape",), ("dot_general", "batch"): ("batch_lhs", "batch_rhs")}


class Filling:
    """Reads the attributes of one statement, and reports what is wrong with them; `files` are those that payloads may be in."""

    def __init__(
        self, diagnostics: Diagnostics, files: Files, defn: OpDef, operands: tuple[Operand, ...], result: Type, at: Loc
    ) -> None:
        self.diagnostics, self.files, self.defn, self.result, self.at = diagnostics, files, defn, result, at
        self.types, self.first = _types(operands), next(iter(_types(operands[:1])), None)
        self.implied = FROM_RESULT.get(defn.short, ())
        self.named: dict[str, object] = {}
        self.regions: dict[str, str] = {}

    def fill(self, given: Given) -> tuple[tuple[object, ...], tuple[str, ...]] | None:
        """(attributes in declaration order, names of the regions), or None after reporting what is wrong with them."""
        errors, defn = self.diagnostics.errors, self.defn
        for key, values in self.distinct(given):
            try:
                self.read(key, values)
            except Violation as violation:
                self.diagnostics.violation(violation, self.at)
        try:
            self.named |= {n: of_result(n, self.result) for n in self.implied}
            if self.diagnostics.errors > errors:
                return None
            if missing := [r for r in defn.regions if r not in self.regions]:
                message = f"{defn.short} needs the attribute `{missing[0]}`"
                raise Violation(CODES.missing_attribute, message, at=OP_NAME, help=f"write {missing[0]}[^r0]")
            return defn.fill(self.named, self.types), tuple(self.regions[r] for r in defn.regions)
        except Violation as violation:
            self.diagnostics.violation(violation, self.at)
        return None

    def distinct(self, given: Given) -> Iterable[tuple[str, Sequence[forms.Plain]]]:
        """What is given, aliases replaced; unknown and repeated names are reported and left out."""
        said: set[str] = set()
        for key, values in given:
            names = _ALIASES.get((self.defn.short, key), (key,))
            if key in said:
                self.report("DuplicateAttribute", f"`{key}` is given twice", place_of(key, 1), "keep one of the two")
            elif names[0] not in self.defn.attr_index and names[0] not in self.defn.regions:
                self.unknown(key)
            elif key in self.implied:
                self.already(key)
            elif names == (key,):
                yield key, values
            else:  # what is said under its own name wins over the common one
                own = {k for k, _ in given}
                yield from ((n, values) for n in names if n not in own)
            said.add(key)

    def report(self, code: str, message: str, at: Place, help: str | None, instead: str | None = None) -> None:
        self.diagnostics.violation(Violation(code, message, at=at, help=help, instead=instead), self.at)

    def unknown(self, key: str) -> None:
        """Report a name that is not one of an attribute."""
        short, known = self.defn.short, [*self.defn.regions, *(a.name for a in self.defn.attrs if a.name not in self.implied)]
        message = f"{short} has no attribute `{key}` (it has: {', '.join(known) or 'none'})"
        meant = attribute_meant(key, known)
        self.report(CODES.unknown_attribute, message, place_of(key), None if meant else f"drop {key}[…]", meant)

    def already(self, key: str) -> None:
        """Report an attribute that the result type says already; the edit drops it."""
        source, span, fix = self.diagnostics.source, None, None
        if source is not None and (whole := source.span(self.at)) is not None:
            span, value = places.find(source, whole, place_of(key)), places.find(source, whole, place(key))
            if span is not None and value is not None and source.text.startswith("]", value.end):
                fix = Fix(Span(len(source.text[: span.start].rstrip()), value.end + 1), "")
        message = f"`{key}` of {self.defn.short} is not written: it is that of the result type"
        self.diagnostics.error(CODES.unknown_attribute, message, span or self.at, help=f"drop {key}[…]", fix=fix)

    def read(self, key: str, values: Sequence[forms.Plain]) -> None:
        """Read one attribute, or the name of a region. Raises Violation."""
        value, wrong = values[0] if len(values) == 1 else None, "InvalidAttributeValue"
        if key in self.defn.regions:
            if not isinstance(value, forms.RegionName):
                raise Violation(wrong, f"`{key}` takes a region: [^r0]", at=place(key))
            self.regions[key] = value
            return
        attr = self.defn.attrs[self.defn.attr_index[key]]
        if attr.kind != "Literal":
            self.named[key] = forms.read(attr, values, self.first)
        elif not isinstance(value, forms.Payload):
            meant = f"dense<{value}>" if isinstance(value, (int, float)) else None
            raise Violation(wrong, f"`{key}` takes a literal: dense<…>", at=place(key), instead=meant)
        elif not isinstance(self.result, TensorType):
            raise Violation("ResultTypeMismatch", f"a literal is a tensor, the result is {self.result}")
        else:
            self.named[key] = read_payload(value, self.result, self.files)


def _types(operands: Sequence[Operand]) -> tuple[Type, ...]:
    """The operand types, () when one is not known."""
    try:
        types = tuple(map(operand_type, operands))
    except Violation:
        return ()
    return () if POISON in types else types
