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
from ptir_tools.dialects.pto.structure import callees
from ptir_tools.dialects.pto.targets import A3, target_of
from ptir_tools.dialects.pto.text.assembly import refused
from ptir_tools.dialects.pto.text.cpp.fifos import guard
from ptir_tools.dialects.pto.text.cpp.flow import body, heading
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel
from ptir_tools.dialects.pto.text.fifos import check


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """A C++ function for each function; one that nothing calls is a kernel. Nothing is written when something is refused."""
    if refused(program, diagnostics):
        return
    target = target_of(program, options) or A3
    if not check(program, target, diagnostics):
        return
    called = {g for f in program.functions for g in callees(f.ops(), program)}
    heads, texts = [], []
    for f in program.functions:
        kernel = Kernel(f, program, target, diagnostics)
        heads.append(heading(kernel, f not in called))
        texts.append(body(kernel))
    if diagnostics.errors:
        return
    yield "#include <pto/pto-inst.hpp>\n\nusing namespace pto;\n"
    guards = [guard(program, f) for f in program.functions]
    yield from (f"\n{begin}{head};\n{end}" for head, (begin, end) in zip(heads, guards, strict=True) if len(heads) > 1)
    for head, lines, (begin, end) in zip(heads, texts, guards, strict=True):
        yield f"\n{begin}{head} {{\n"
        yield from lines
        yield f"}}\n{end}"


FORMAT = Format("pto-cpp", "pto", None, write)
