"""Conversions between dialects, with PTIR as the hub.

A conversion is a function `convert(program, diagnostics, options) -> Program | None` that reports everything that the target
cannot express. Those of the toolkit are modules with a function of that name, loaded when first used; others are registered
(contract: "Conversion infrastructure").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from ptir_tools.convert.legality import (
    ANYTHING,
    NOT_TRANSLATABLE,
    ConversionDiagnostic,
    Legality,
    check_program_legality,
    entry_point_name,
    walk_program,
)
from ptir_tools.convert.options import CONSTANTS, LOSSY
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, PluginFault, Rejected
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.limits import using
from ptir_tools.core.records import dataclass, replace
from ptir_tools.core.source import Span
from ptir_tools.core.typed import cast
from ptir_tools.core.verify import legalized
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import DIALECTS

__all__ = [
    "CONSTANTS",
    "LOSSY",
    "NOT_TRANSLATABLE",
    "ConversionDiagnostic",
    "ConversionTarget",
    "Legality",
    "check_program_legality",
    "entry_point_name",
    "get_conversion_target",
    "register_conversion_target",
    "route",
    "translate",
    "walk_program",
]

HUB = "ptir"

Convert = Callable[[Program, Diagnostics, Options], Program | None]


@dataclass(slots=True, frozen=True)
class ConversionTarget:
    """A conversion from `source` to `target`: the function, or the module that has it. Its legality is checked first."""

    source: str
    target: str
    convert: Convert | str
    legality: Legality = ANYTHING

    def run(self, program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
        """The converted program, or None after reporting why there is none."""
        illegal = check_program_legality(program, self.legality)
        for d in illegal:
            diagnostics.error(NOT_TRANSLATABLE, d.message, d.loc)
        if illegal:
            return None
        convert = import_module(self.convert).convert if isinstance(self.convert, str) else self.convert
        try:
            made = cast(Convert, convert)(program, diagnostics, options)
        except Violation as violation:  # not of a single op
            diagnostics.error(NOT_TRANSLATABLE, violation.message, violation.loc or program.main.loc, help=violation.help)
            return None
        what = f"the conversion from {self.source} to {self.target}"
        if made is None and not diagnostics.errors:
            raise PluginFault(convert, f"{what} returns neither a program nor an error")
        known = isinstance(made, Program) and (made.dialect.name == self.target or self.target not in DIALECTS)
        if made is not None and not known:
            raise PluginFault(convert, f"{what} gives {made!r}, not a program of {self.target}")
        return made


_TARGETS: dict[tuple[str, str], ConversionTarget] = {}


def register_conversion_target(target: ConversionTarget) -> None:
    """Register a conversion for `translate`. Raises ValueError when there is one between the same dialects."""
    key = (target.source, target.target)
    if key in _TARGETS:
        raise ValueError(f"there is a conversion from {target.source} to {target.target} already")
    _TARGETS[key] = target


def get_conversion_target(target: str, source: str = HUB) -> ConversionTarget | None:
    """The conversion from `source` to `target`, or None."""
    return _TARGETS.get((source, target))


for _source, _target, _module in (
    ("mind", "ptir", "ptir_tools.convert.mind_to_ptir.convert"),
    ("tiny", "ptir", "ptir_tools.convert.tiny_to_ptir.convert"),
    ("ptir", "mind", "ptir_tools.convert.ptir_to_mind.convert"),
    ("ptir", "tiny", "ptir_tools.convert.ptir_to_tiny.convert"),
    ("ptir", "pto", "ptir_tools.convert.ptir_to_pto.convert"),
):
    register_conversion_target(ConversionTarget(_source, _target, _module))


def route(source: str, target: str) -> list[ConversionTarget] | None:
    """The conversions from one dialect to another, in order; None when there is no route. Equal dialects need none."""
    if source == target:
        return []
    if (direct := get_conversion_target(target, source)) is not None:
        return [direct]
    steps = [get_conversion_target(HUB, source), get_conversion_target(target)]
    known = [s for s in steps if s is not None]
    return known if len(known) == len(steps) else None


def translate(program: Program, target: str, diagnostics: Diagnostics, options: Options | None = None) -> Program | None:
    """`program`, which verifies, as a new program of the dialect `target`; None after reporting what cannot be translated.

    Symbols stay symbols. A program that is already of that dialect is returned itself.
    """
    options = options or Options()
    source = program.dialect.name
    steps = route(source, target)
    if steps is None:
        known = ", ".join(f"{a} to {b}" for a, b in _TARGETS)
        diagnostics.error(NOT_TRANSLATABLE, f"no conversion leads from {source} to {target} (there are: {known})")
        return None
    with using(options.limits):
        return _led(program, steps, target, diagnostics, options)


def _led(
    program: Program, steps: Sequence[ConversionTarget], target: str, diagnostics: Diagnostics, options: Options
) -> Program | None:
    """`program` after the conversions `steps`, or None."""
    try:
        program = legalized(program)
    except Rejected as rejected:
        for entry in rejected.diagnostics:
            diagnostics.add(entry)
        return None
    source = program.dialect.name
    named = _names(program) if len(steps) > 1 else {}
    if steps:
        _drop_hints(program, target, diagnostics)
    with collector_paused():
        for step in steps:
            report = Diagnostics(program.source)
            converted = step.run(program, report, options)
            for entry in report:
                diagnostics.add(entry if step.source == source else _as_written(entry, named))
            if converted is None:
                return None
            converted.source = program.source
            program = converted
    return program


def _drop_hints(program: Program, target: str, diagnostics: Diagnostics) -> None:
    """Report the entry's fusion hints, which are dropped since no other IR has them; a required one is a warning."""
    for hint in program.main.annotations:
        diagnostics.dropped(hint, f"{target} has no fusion hints")


def _names(program: Program) -> dict[Span, str]:
    """The names of the ops by their spans in the text."""
    source = program.source
    if source is None:
        return {}
    places = ((source.span(op.loc), op.defn.short) for op in program.main.body)
    return {span: name for span, name in places if span is not None}


def _as_written(result: Diagnostic, named: dict[Span, str]) -> Diagnostic:
    """A diagnostic about an op of the hub, with the name of the op that the user wrote."""
    name = named.get(result.span) if result.span is not None else None
    return result if name is None or name in result.message else replace(result, message=f"{name}: {result.message}")
