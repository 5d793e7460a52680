"""Tiny IR: a DAG of movement, elementwise and reduction nodes, written as JSON."""

from ptir_tools.core.dialect import PROFILE, Codes, Dialect, Extents, FormatEntry
from ptir_tools.core.lazy import late, value

_HERE = "ptir_tools.dialects.tiny"

_ODD_NAMES = (
    "0", "01", "1", "1.5", "true", "null", "uops", "outputs", "a b", "a.b", "%x", "x.0", "[0]", '"', "\\", "\n", "\u2028", "é",
    "٣", "v0", "v1_0", "_", "_1", "N", "x",
)  # fmt: skip
DIALECT = Dialect(
    name="tiny",
    specification="Tiny IR (https://github.com/bokutotu/shoto)",
    formats=(FormatEntry("tiny", f"{_HERE}.text.format", suffix=".json", json_keys=('"uops"',), comments_found=True),),
    declares=f"{_HERE}.ops",
    codes=Codes(
        undefined="UndefinedNode",
        redefined="DuplicateId",
        unknown_op="UnknownUop",
        operand_count="InvalidSource",
        unknown_attribute="InvalidArg",
        missing_attribute="InvalidArg",
        undefined_result="UndefinedNode",
        extent="AxisAlignmentMismatch",
    ),
    pipeline="canonicalize",
    passes="ptir_tools.passes.tiny",
    type_text=late(f"{_HERE}.ops.rules", "type_text"),
    dtypes=value(f"{_HERE}.ops.rules", "DTYPES"),
    legalize=late(f"{_HERE}.legalize", "legalize"),
    options=(PROFILE,),
    check=late(f"{_HERE}.check", "check"),
    explain=value(f"{_HERE}.codes", "EXPLAIN"),
    extents=Extents(
        late(f"{_HERE}.symbols", "symbols"),
        late("ptir_tools.core.expressions", "put"),
        late(f"{_HERE}.symbols", "bind"),
        late(f"{_HERE}.symbols", "complete"),
        late(f"{_HERE}.symbols", "specialize"),
        late(f"{_HERE}.sizes", "choose"),
        late("ptir_tools.core.expressions", "symbols_in"),
        late(f"{_HERE}.symbols", "given"),
        late(f"{_HERE}.symbols", "determined"),
    ),
    generate=late(f"{_HERE}.generate", "generate"),
    odd_names=_ODD_NAMES,
    renames_results=True,
    constants_outside=True,
)
