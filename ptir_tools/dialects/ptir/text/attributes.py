"""Attributes of a statement in text PTIR: which are written, and those that are read, in the order of the declaration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.ir import REQUIRED, Attr, Derived, OpDef, Operand, operand_type
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Loc, Span
from ptir_tools.core.spelling import attribute_meant
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import POISON, TensorType, Type
from ptir_tools.core.violations import OP_NAME, Violation
from ptir_tools.core.violations import attribute as place
from ptir_tools.core.violations import key as place_of
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.text import forms
from ptir_tools.dialects.ptir.text.literals import read_payload

if TYPE_CHECKING:
    from ptir_tools.core import places
    from ptir_tools.dialects.ptir.text.external import Files
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


def shown(defn: OpDef, attrs: tuple[object, ...], types: tuple[Type, ...]) -> list[tuple[Attr, object]]:
    """The attributes that are printed: not what the result type says, not what equals its default."""
    left = FROM_RESULT.get(defn.short, ())
    named: dict[str, object] = {}
    found = []
    for a, value in zip(defn.attrs, attrs, strict=True):
        default = a.default.rule(named, types) if isinstance(a.default, Derived) else a.default
        named[a.name] = value
        if a.name not in left and (default is REQUIRED or default != value or type(default) is not type(value)):
            found.append((a, value))
    return found


# Names and the plain values between their brackets, in the order of the text.
Given = Sequence[tuple[str, Sequence[forms.Plain]]]
# Attributes that are read under another name.
_ALIASES = {("broadcast_to", "shape"): ("result_shape",), ("dot_general", "batch"): ("batch_lhs", "batch_rhs")}


class Filling:
    """Reads attributes, and reports what is wrong with them; `files` are those that payloads may be in."""

    def __init__(self, diagnostics: Diagnostics, files: Files) -> None:
        self.diagnostics, self.files = diagnostics, files

    def attributes(
        self, defn: OpDef, given: Given, operands: tuple[Operand, ...], result: Type, at: Loc
    ) -> tuple[tuple[object, ...], tuple[str, ...]] | None:
        """(attributes in declaration order, names of the regions), or None after reporting what is wrong with them."""
        errors = self.diagnostics.errors
        named: dict[str, object] = {}
        regions: dict[str, str] = {}
        for key, values in self.distinct(defn, given, at):
            if key not in defn.regions and key in FROM_RESULT.get(defn.short, ()):
                self.implied(defn, key, at)
                continue
            try:
                self.attribute(defn, key, values, operands, result, named, regions)
            except Violation as violation:
                self.diagnostics.violation(violation, at)
        try:
            named |= {n: of_result(n, result) for n in FROM_RESULT.get(defn.short, ())}
            if self.diagnostics.errors > errors:
                return None
            if missing := [r for r in defn.regions if r not in regions]:
                message = f"{defn.short} needs the attribute `{missing[0]}`"
                raise Violation(CODES.missing_attribute, message, at=OP_NAME, help=f"write {missing[0]}[^r0]")
            return defn.fill(named, _types(operands)), tuple(regions[r] for r in defn.regions)
        except Violation as violation:
            self.diagnostics.violation(violation, at)
        return None

    def distinct(self, defn: OpDef, given: Given, at: Loc) -> Iterable[tuple[str, Sequence[forms.Plain]]]:
        """What is given, aliases replaced; unknown and repeated names are reported and left out."""
        said: set[str] = set()
        for key, values in given:
            if key in said:
                twice = Violation(
                    "DuplicateAttribute", f"`{key}` is given twice", at=place_of(key, 1), help="keep one of the two"
                )
                self.diagnostics.violation(twice, at)
                continue
            said.add(key)
            names = _ALIASES.get((defn.short, key), (key,))
            if names[0] not in defn.attr_index and names[0] not in defn.regions:
                self.unknown_attribute(defn, key, at)
            elif names == (key,):
                yield key, values
            else:  # what is said under its own name wins over the common one
                own = {k for k, _ in given}
                yield from ((n, values) for n in names if n not in own)

    def unknown_attribute(self, defn: OpDef, key: str, at: Loc) -> None:
        left_out = FROM_RESULT.get(defn.short, ())
        known = [*defn.regions, *(a.name for a in defn.attrs if a.name not in left_out)]
        message = f"{defn.short} has no attribute `{key}` (it has: {', '.join(known) or 'none'})"
        meant = attribute_meant(key, known)
        help = None if meant else f"drop {key}[…]"
        self.diagnostics.violation(Violation(CODES.unknown_attribute, message, at=place_of(key), help=help, instead=meant), at)

    def implied(self, defn: OpDef, key: str, at: Loc) -> None:
        """Report an attribute that the result type says already; the edit drops it."""
        source, span, fix = self.diagnostics.source, None, None
        if source is not None and (whole := source.span(at)) is not None:
            span, value = places.find(source, whole, place_of(key)), places.find(source, whole, place(key))
            if span is not None and value is not None and source.text.startswith("]", value.end):
                fix = Fix(Span(len(source.text[: span.start].rstrip()), value.end + 1), "")
        message = f"`{key}` of {defn.short} is not written: it is that of the result type"
        self.diagnostics.error(CODES.unknown_attribute, message, span or at, help=f"drop {key}[…]", fix=fix)

    def attribute(
        self,
        defn: OpDef,
        key: str,
        values: Sequence[forms.Plain],
        operands: tuple[Operand, ...],
        result: Type,
        named: dict[str, object],
        regions: dict[str, str],
    ) -> None:
        """Read one attribute into `named` or `regions`. Raises Violation."""
        if key in defn.regions:
            if len(values) != 1 or not isinstance(values[0], forms.RegionName):
                raise Violation("InvalidAttributeValue", f"`{key}` takes a region: [^r0]", at=place(key))
            regions[key] = values[0]
            return
        attr = defn.attrs[defn.attr_index[key]]
        if attr.kind != "Literal":
            types = _types(operands[:1])
            named[key] = forms.read(attr, values, types[0] if types else None)
        elif len(values) != 1 or not isinstance(values[0], forms.Payload):
            plain = len(values) == 1 and isinstance(values[0], (int, float))
            wanted, meant = f"`{key}` takes a literal: dense<…>", f"dense<{values[0]}>" if plain else None
            raise Violation("InvalidAttributeValue", wanted, at=place(key), instead=meant)
        elif not isinstance(result, TensorType):
            raise Violation("ResultTypeMismatch", f"a literal is a tensor, the result is {result}")
        else:
            named[key] = read_payload(values[0], result, self.files)


def _types(operands: Sequence[Operand]) -> tuple[Type, ...]:
    """The operand types, () when one is not known."""
    try:
        types = tuple(map(operand_type, operands))
    except Violation:
        return ()
    return () if POISON in types else types
