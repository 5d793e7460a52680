"""PTIR to PTO: a program is partitioned into kernels, each a loop over blocks of its largest shape, with memory between them.

A block's operands are loaded, its values computed tile by tile, its results stored (`emit.py`). An op joins the kernel of its
operands if it has the same axes and the live tiles fit the target; else a new kernel begins. All ops without a tile op are
refused at once (`NotTranslatable`). The largest blocks that fit are used.
"""

from __future__ import annotations

from collections.abc import Set
from shlex import quote

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.naming import spelled
from ptir_tools.convert.options import CONSTANTS
from ptir_tools.convert.ptir_to_pto.kernel import unfit
from ptir_tools.convert.ptir_to_pto.link import linked
from ptir_tools.convert.ptir_to_pto.outline import Outline, values_of
from ptir_tools.convert.ptir_to_pto.partition import Partition, Tiler
from ptir_tools.convert.ptir_to_pto.prepare import prepared
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Rejected, Severity, UsageError
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.ir import Value
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import replace
from ptir_tools.core.source import Loc, Span
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import CORES, TARGET
from ptir_tools.dialects.pto.targets import A3, Target, find
from ptir_tools.passes import PassContext, PassFailure, run_pipeline

# Passes that may replace ops which tiles lack, those that round last.
_F32 = "convert-float{from=f64, to=f32, signature=true}"
_PASSES = ("decompose", "canonicalize", "raise-strides", _F32, f"decompose, {_F32}")
_TRIED = 1000  # ops of a program that is tried after each of them, at most


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
    partition = Partition(outline, Tiler(target, program.source, options[CORES]), diagnostics)
    partition.run()
    if diagnostics.errors > before:
        _name_passes(program, target, diagnostics, options)
        return None
    result = linked(partition, used, others)
    if options[CORES] > 1:
        run_pipeline(result, f"pto-split-cores{{cores={options[CORES]}}}", PassContext(verify_each=False))
    return result


def _name_passes(program: Program, target: Target, diagnostics: Diagnostics, options: Options) -> None:
    """Give each refusal without a help the name of the first pass after which it is not reported."""
    options = options.having(**{CONSTANTS.name: None})
    main = _place(Diagnostic(Severity.NOTE, "", "", program.source, program.main.loc))
    for pipeline in _PASSES:
        left = [i for i, d in enumerate(diagnostics.items) if d.code == NOT_TRANSLATABLE and d.help is None]
        if not left or sum(len(block.body) for block in program.blocks()) > _TRIED:
            return
        report = Diagnostics(program.source)
        try:
            changed = clone(program)
            run_pipeline(changed, pipeline, PassContext(verify_each=False))
            outline = prepared(changed, target, options, report)
            _report_unheld(outline, report)
            Partition(outline, Tiler(target, program.source), report).run()
        except (Violation, LimitExceeded, UsageError, PassFailure, Rejected):
            continue
        wrong = {(_place(d), d.message) for d in report if d.severity is Severity.ERROR}
        for i in left:
            place, message = _place(d := diagnostics.items[i]), d.message
            if (place, message) not in wrong and (place == main or all(place != other for other, _ in wrong)):
                diagnostics.items[i] = replace(d, help=f"run a pass first: ptir opt -p {quote(pipeline)}")


def _place(d: Diagnostic) -> Loc | Span | None:
    return d.span or d.at


def _report_unheld(outline: Outline, diagnostics: Diagnostics) -> None:
    """Report the results that cannot be stored in memory."""
    loc = outline.function.loc
    for x in outline.function.results:
        if outline.lost.intersection(values_of([x])):
            continue
        if not isinstance(x, Value) or not isinstance(x.type, TensorType):
            diagnostics.error(NOT_TRANSLATABLE, "a result must be a tensor", loc)
        elif reason := unfit(x.type):
            diagnostics.error(NOT_TRANSLATABLE, f"result %{x.name}: {reason}", loc)
