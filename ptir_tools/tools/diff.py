"""The structure of a program as text, to compare programs whose names and layout differ."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.dialects.writing import program_text


def plain_text(program: Program, options: Options | None = None) -> str:
    """The text of a copy in which every value, function and region is called by its number."""
    copy = clone(program)
    form = program.dialect.formats[0].name
    for block in copy.blocks():
        for number, v in enumerate([*block.params, *(v for op in block.body for v in op.results)]):
            v.name = str(number)
    for number, function in enumerate(copy.functions):
        copy.entry = f"f{number}" if function.name == copy.entry else copy.entry
        function.name = f"f{number}"
        function.attrs = {k: v for k, v in function.attrs.items() if k not in ("input_names", "output_names")}
    return "".join(program_text(copy, form, Diagnostics(), options or Options()))
