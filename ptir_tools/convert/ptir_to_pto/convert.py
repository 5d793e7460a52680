"""PTIR to PTO: a program is partitioned into kernels, each a loop over blocks of its largest shape, with memory between them.

A block's operands are loaded, its values computed tile by tile, its results stored (`emit.py`). An op joins the kernel of its
operands if it has the same axes and the live tiles fit the target; else a new kernel begins. All ops without a tile op are
refused at once (`NotTranslatable`). The largest blocks that fit are used.
"""

from __future__ import annotations

from collections.abc import Set

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.naming import spelled
from ptir_tools.convert.options import CONSTANTS
from ptir_tools.convert.ptir_to_pto.kernel import unfit
from ptir_tools.convert.ptir_to_pto.link import linked
from ptir_tools.convert.ptir_to_pto.outline import Outline, values_of
from ptir_tools.convert.ptir_to_pto.partition import Partition, Tiler
from ptir_tools.convert.ptir_to_pto.prepare import prepared
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Value
from ptir_tools.core.records import replace
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.pto import TARGET
from ptir_tools.dialects.pto.targets import A3, Target, find


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The PTO program of `program`: each function stores its results into memrefs after its parameters. None after reporting what
    cannot be translated of the entry; other such functions are left out, with warnings. The target is that of `options`, else
    a3."""
    target = find(name) if (name := options[TARGET]) else A3
    if target is None:
        diagnostics.error("UnknownTarget", f"`{name}` is not a target", help="the targets are a3 and a5")
        return None
    used_names = {spelled(f.name) for f in program.functions}
    whole = _tiled(program, target, diagnostics, options, used_names)
    if whole is None:
        return None
    for other in (f for f in program.functions if f is not program.main):
        alone = Program(program.dialect, [other], program.regions, other.name, dict(program.attrs), program.source)
        report = Diagnostics(program.source)
        constants = options[CONSTANTS]
        before = {*(constants or ())}
        names = {p.name for f in whole.functions for p in f.params}  # the file of constants may have other arrays
        if (made := _tiled(alone, target, report, options, used_names, names)) is not None:
            while whole.function(made.main.name) is not None:  # two names have one spelling
                made.main.name += "_"
            whole.functions += made.functions
        elif constants is not None:
            for name in constants.keys() - before:
                del constants[name]
        for d in report:
            wrong = d.severity is Severity.ERROR
            message = f"@{other.name} is left out: {d.message}" if wrong else d.message
            diagnostics.add(replace(d, severity=Severity.WARNING, message=message) if wrong else d)
    return whole


def _tiled(
    program: Program, target: Target, diagnostics: Diagnostics, options: Options, used: set[str], others: Set[str] = frozenset()
) -> Program | None:
    """The kernels of the entry, with names not in `used`, to which they are added; None after reporting errors. New names differ
    from `others`, the parameters of other functions."""
    before = diagnostics.errors
    outline = prepared(program, target, options, diagnostics, others)
    _report_unheld(outline, diagnostics)
    partition = Partition(outline, Tiler(target, program.source), diagnostics)
    partition.run()
    return None if diagnostics.errors > before else linked(partition, used, others)


def _report_unheld(outline: Outline, diagnostics: Diagnostics) -> None:
    """Report the results that cannot be stored in memory."""
    for x in outline.results:
        tensor = isinstance(x, Value) and isinstance(x.type, TensorType)
        if outline.lost.intersection(values_of([x])):
            continue
        if not tensor:
            diagnostics.error(NOT_TRANSLATABLE, "a result must be a tensor", outline.loc)
        elif reason := unfit(x.type):  # type: ignore[union-attr]
            diagnostics.error(NOT_TRANSLATABLE, f"result %{x.name}: {reason}", outline.loc)  # type: ignore[union-attr]
