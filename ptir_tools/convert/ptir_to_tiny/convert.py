"""PTIR to Tiny: movement, elementwise ops and reductions; all other ops are refused at once.

A PTIR value becomes a node, a constant, or one of these per element of a tuple. A constant of equal elements is an immediate;
every other is an INPUT in storage "const_pool" where the caller takes their values (the option CONSTANTS). Ops on constants are
folded. Regions are inlined. Dead ops are not translated.
"""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.legality import decomposed
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.ptir_to_tiny.control import CONTROL
from ptir_tools.convert.ptir_to_tiny.elementwise import FUNCTIONS
from ptir_tools.convert.ptir_to_tiny.emit import TinyEmit
from ptir_tools.convert.ptir_to_tiny.indexing import INDEXING
from ptir_tools.convert.ptir_to_tiny.movement import MOVEMENT
from ptir_tools.convert.ptir_to_tiny.patterns import PATTERNS
from ptir_tools.convert.ptir_to_tiny.ranking import RANKING
from ptir_tools.convert.ptir_to_tiny.reductions import REDUCTIONS
from ptir_tools.convert.ptir_to_tiny.steps import STEPS
from ptir_tools.convert.ptir_to_tiny.windows import WINDOWS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import SI32
from ptir_tools.dialects.ptir.composites import express
from ptir_tools.dialects.ptir.composites.express import EXACT, PAIRS, PERIODIC

RULES = {**FUNCTIONS, **MOVEMENT, **REDUCTIONS, **INDEXING, **RANKING, **STEPS, **WINDOWS, **CONTROL}


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The Tiny graph equal to the entry of the verified `program`; None after reporting what Tiny cannot express."""
    before = diagnostics.errors
    for other in program.functions:
        if other is not program.main:
            diagnostics.error(NOT_TRANSLATABLE, f"a graph is one function; @{other.name} is not the entry", other.loc)
    rules = EXACT | express.FUNCTIONS | (PERIODIC | PAIRS if options[LOSSY] else {})
    for op in (op for block in program.blocks() for op in block.body if op.defn.short in express.FUNCTIONS):
        becomes = f"{op.defn.short} becomes a formula, in fp32, within 4 units of the last place"
        diagnostics.note("ConditionalTranslation", becomes, op.loc)
    program = decomposed(program, rules, widest=SI32)
    new = TinyEmit(RULES, program.main, diagnostics, options, patterns=PATTERNS).run()
    return new if diagnostics.errors == before else None
