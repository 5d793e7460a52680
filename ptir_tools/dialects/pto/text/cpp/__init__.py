"""`pto-cpp`: C++ that calls the PTO tile library, in its public spelling. Output only.

    Tile<TileType::Vec, float, 32, 32, BLayout::RowMajor, -1, -1, SLayout::NoneBox, 512, PadValue::Null> t(32, 32);
    TASSIGN(t, 0);
    TLOAD(t, t_gm);
    set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);

A tile is an object with its address (`pto.tile.assign`) and its valid region. A carried tile is a copy of the object: no bytes
move. Flags give the order (`pto.order.signals`). A function for both cores has the parts of each between
`#if defined(__DAV_CUBE__)` or `__DAV_VEC__` and `#endif`. Scratch is after the last tile of Vec. Every op without such a form is
refused.

An op says how it is called in its declaration (`facts.Form`), and what is valid in its result (`facts.valid`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.dialects.pto.order.signals import cores_of
from ptir_tools.dialects.pto.structure import callees
from ptir_tools.dialects.pto.targets import A3, target_of
from ptir_tools.dialects.pto.text.assembly import refused
from ptir_tools.dialects.pto.text.cpp.flow import body, heading
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """A C++ function for each function; one that nothing calls is a kernel. Nothing is written when something is refused."""
    if refused(program, diagnostics):
        return
    target, cores = target_of(program, options) or A3, cores_of(program)
    called = {g for f in program.functions for g in callees(f.ops(), program)}
    heads, texts = [], []
    for f in program.functions:
        kernel = Kernel(f, program, target, cores, diagnostics)
        heads.append(heading(kernel, f not in called))
        texts.append(body(kernel))
    if diagnostics.errors:
        return
    yield "#include <pto/pto-inst.hpp>\n\nusing namespace pto;\n"
    yield from (f"\n{head};\n" for head in heads if len(heads) > 1)
    for head, lines in zip(heads, texts, strict=True):
        yield f"\n{head} {{\n"
        yield from lines
        yield "}\n"


FORMAT = Format("pto-cpp", "pto", None, write)
