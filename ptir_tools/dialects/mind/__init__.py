"""MIND Core IR (Core v1): a flat list of instructions on static tensors; inputs are the function's parameters."""

from ptir_tools.core.dialect import OUTSIDE, PROFILE, WEIGHTS, Codes, Dialect, FormatEntry
from ptir_tools.core.lazy import late, value

_HERE = "ptir_tools.dialects.mind"

_ODD_NAMES = (
    "0", "1", "2", "10", "9999999999999999999999999", "outputs", "inputs", "tensor", "true", "None", "inf", "Add", "x", "v0",
    "_1", "_",
)  # fmt: skip
DIALECT = Dialect(
    name="mind",
    specification="MIND Core IR (https://github.com/cputer/mind)",
    formats=(
        FormatEntry(
            "mind",
            f"{_HERE}.text.format",
            named=False,
            has_weights=True,
            comment="#",
            suffix=".mind.ir",
            keywords="outputs|inputs",
            type_words="tensor|Tensor",
            begins=r"%[\w$.-]+\s*=\s*(?:[A-Z%]|$)|(?:inputs|outputs)\s*:",
            opening=("inputs", "outputs"),
            comments_found=True,
            lines_before=lambda function: len(function.params),  # one line per input
        ),
        FormatEntry("mic", f"{_HERE}.mic.format", named=False, comment="#", suffix=".mic", begins=r"mic@\d", opening=("mic@1",)),
        FormatEntry(
            "mindc",
            f"{_HERE}.mic.listing",
            named=False,
            suffix=".ir",
            begins=r"module\s*\{\s*(?://[^\n]*\s*)*(?:%\d+\s*=\s*const\.|output\s|\}\s*//\s*next_id)",
            imported=True,
            written=False,
        ),
        FormatEntry("mind-json", f"{_HERE}.text.records", readable=False, named=False),
        FormatEntry("mlir", f"{_HERE}.mlir.format", readable=False, named=False),
    ),
    declares=f"{_HERE}.ops",
    codes=Codes(
        encoding="E1001",
        syntax="E1007",
        undefined="E4001",
        redefined="E4002",
        unknown_op="E6003",
        operand_count="E2007",
        unknown_attribute="E4013",
        missing_attribute="E4013",
        result_type="E2001",
        undefined_result="E4003",
        run_time={"GatherIndexOutOfBounds": "E6001", "IntegerDivideByZero": "E6006"},
    ),
    constant="mind.ConstTensor",
    options=(PROFILE, WEIGHTS, OUTSIDE),
    pipeline="canonicalize",
    passes="ptir_tools.passes.mind",
    type_text=late(f"{_HERE}.types", "type_text"),
    dtypes=value(f"{_HERE}.types", "DTYPES"),
    check=late(f"{_HERE}.check", "check"),
    explain=value(f"{_HERE}.codes", "EXPLAIN"),
    generate=late(f"{_HERE}.generate", "generate"),
    odd_names=_ODD_NAMES,
)
