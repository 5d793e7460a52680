"""PTIR to PTO: a program is cut into kernels, each a loop over the blocks of its largest shape, with memory between them.

What a block needs is loaded, computed tile by tile and stored (`ptir_pto_emit`). An op joins the kernel that makes what it
reads if it goes over the same axes, and the target can hold what is then live; else a kernel begins. What PTO has no tile op
for is refused at every op at once (`NotTranslatable`). The largest blocks that fit the target are taken.
"""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.kernel import unfit
from ptir_tools.convert.ptir_to_pto.link import linked
from ptir_tools.convert.ptir_to_pto.partition import Partition, Tiler
from ptir_tools.convert.ptir_to_pto.prepare import prepared
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Function, Value, operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.pto import TARGET
from ptir_tools.dialects.pto.targets import A3, find


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The PTO program that stores what the entry of `program` returns into memrefs behind its parameters; None after
    reporting what cannot be said. The target is that of `options`, else a3."""
    before = diagnostics.errors
    for other in program.functions:
        if other is not program.main:
            diagnostics.error(NOT_TRANSLATABLE, f"only the entry is tiled; @{other.name} is another function", other.loc)
    target = find(name) if (name := options[TARGET]) else A3
    if target is None:
        diagnostics.error("UnknownTarget", f"`{name}` is no target", help="the targets are a3 and a5")
        return None
    main = prepared(program, target, options, diagnostics)
    partition = Partition(main, Tiler(target, program.source), diagnostics, _unheld(main, diagnostics))
    partition.run()
    return None if diagnostics.errors > before else linked(main, partition)


def _unheld(main: Function, diagnostics: Diagnostics) -> list[Value]:
    """Report the parameters and results that no memory holds; the parameters."""
    lost = []
    for p in main.params:
        reason = unfit(p.type) or ("a mask has no memory: cast it" if _is_mask(p) else "")
        if reason:
            diagnostics.error(NOT_TRANSLATABLE, f"parameter %{p.name}: {reason}", main.loc)
            lost.append(p)
    for x in main.results:
        t = operand_type(x)
        held = isinstance(x, Value) and (not isinstance(t, TensorType) or t.dtype is not I1)
        if not held:  # elements that PTO has not are told where they are made
            message = "a result must be a tensor of numbers that an op makes"
            diagnostics.error(NOT_TRANSLATABLE, message, main.loc, help="cast a mask")
    return lost


def _is_mask(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype is I1
