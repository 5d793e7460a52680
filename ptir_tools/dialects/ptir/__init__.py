"""PTIR, the portable tensor IR of gpt.rs (contract ptir.v0.4): ops on whole tensors, three serializations."""

import re
from collections.abc import Collection, Mapping, Sequence

from ptir_tools.core.dialect import OUTSIDE, WEIGHTS, Codes, Dialect, FormatEntry, Hash, Option, Pipeline, Sidecar
from ptir_tools.core.lazy import late, value
from ptir_tools.core.typed import IO

_HERE = "ptir_tools.dialects.ptir"
# The first function or region of a program. Its parameters are in parentheses in text, in `params:` in a dump.
_HEADER = r"^(?:[^\n{]*\{)?[ \t]*(?:func|region)\s*[@^]?[^\s({]*\s*(?P<open>\()?"
_BARE = r"(?!\w+\.[A-Za-z_])(?:func(?:tion)?|region)\s*[@^\w(]"  # a word with a point is an op of another dialect
_LOOKED_AT = 1 << 16  # characters, which have the first header


def _is_text(text: str, start: int) -> bool:
    if not re.compile(r"program\b").match(text, start):
        return re.compile(_BARE).match(text, start) is not None
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text[start : start + _LOOKED_AT], flags=re.DOTALL)
    header = re.search(_HEADER, plain, re.MULTILINE)
    return header is not None and header["open"] is not None


def assignment(text: str) -> tuple[str, str]:
    """`NAME=TEXT`. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals or not value:
        raise ValueError(f"{text!r} is not NAME=TEXT")
    return name.strip(), value


_NONE: Mapping[str, object] = {}

# Reading. The values of placeholders by name; folders and files where payloads may be, next to the program's own folder.
PLACEHOLDERS = Option(
    "placeholders",
    _NONE,
    flag="--set",
    metavar="NAME=TEXT",
    many=True,
    parse=assignment,
    help="Fill {{NAME}} in a snippet of PTIR; make an input of an ONNX model a constant: NAME=[1,2].",
)
# Reading a model of ONNX: what leads from some of its values to others.
FROM_VALUES: Option[Sequence[str]] = Option(
    "from_values", (), flag="--from-value", metavar="NAME", many=True, help="ONNX: read only what these values lead to."
)
TO_VALUES: Option[Sequence[str]] = Option(
    "to_values", (), flag="--to-value", metavar="NAME", many=True, help="ONNX: read only what leads to these values."
)
# Inputs of a model of ONNX that have a value already, and are to stay inputs.
GIVEN: Option[Collection[str]] = Option("given", ())
# Writing. The operator set of a model of ONNX; a file for the bytes of its constants, and what the model calls it.
OPSET: Option[int | None] = Option("opset", None)
DATA: Option[tuple[str, IO[bytes]] | None] = Option("data", None)
# How values are cut over a mesh of devices (plan.mesh.Sharding), for StableHLO.
SHARDING: Option[object] = Option("sharding", None)
# Constants of more elements become `dense<?>`.
ELIDE_CONSTANTS: Option[int | None] = Option("elide_constants", None)

_ODD_NAMES = (
    "0", "00", "01", "1", "2", "10", "9999999999999999999999999", ".5", "1.5", "1e5", "inf", "true", "return", "func", "hint",
    "dense", "tensor", "a.b", "a$", "$", "...", "x", "x0", "x.0", "v0", "v1", "v2_0", "_", "_1", "arg0", "res0", "i", "e0", "N",
    "é", "٣",
)  # fmt: skip
DIALECT = Dialect(
    name="ptir",
    specification="PTIR backend contract (https://github.com/Lallapallooza/gpt.rs)",
    formats=(
        FormatEntry(
            "ptir",
            f"{_HERE}.text.format",
            suffix=".ptir",
            has_weights=True,
            opening=("program", "func"),
            begins=_is_text,
            keywords="program|func|region|return|hint|as",
            type_words="tensor|tuple|dense",
            comments_found=True,
            lines_before=lambda _: 1,
        ),
        FormatEntry(
            "ptir-dump",
            f"{_HERE}.gptrs.dump",
            named=False,
            begins=r"program\b",
            sidecar=Sidecar(*(late(f"{_HERE}.gptrs.trace", name) for name in ("payloads", "supply", "fill"))),
        ),
        FormatEntry(
            "onnx",
            "ptir_tools.bridges.onnx.format",
            suffix=".onnx",
            binary=late("ptir_tools.dialects.foreign", "is_onnx"),
            options=(FROM_VALUES, TO_VALUES),
            made_by="to_onnx",
            capacity=(1 << 31) - (1 << 20),  # what protobuf takes, less a megabyte for all else
            peer=late("ptir_tools.bridges.onnx.runtime", "peer"),
            imported=True,
        ),
        FormatEntry(
            "stablehlo",
            "ptir_tools.bridges.stablehlo.reader",
            suffix=".mlir",
            begins=late("ptir_tools.dialects.foreign", "is_stablehlo"),
            meshes=True,
            imported=True,
        ),
        FormatEntry(
            "stablehlo-bytecode",
            "ptir_tools.bridges.stablehlo.bytecode",
            suffix=".mlirbc",
            binary=b"ML\xefR",
            imported=True,
        ),
        FormatEntry("c", "ptir_tools.bridges.c.format", readable=False, suffix=".c", capacity=1 << 24),
        FormatEntry("ptir-json", f"{_HERE}.gptrs.json", named=False, suffix=".json", json_keys=('"functions"', '"spec_version"')),
    ),
    declares=f"{_HERE}.ops",
    constant="ptir.constant",
    pipeline="canonicalize,cse,dce",
    pipelines={
        "convolutions": Pipeline(
            "recognize{convolutions=true},fold,layout",
            "Recognize convolutions, fold their weights, and choose the order of axes with few transposes.",
        ),
        "network": Pipeline(
            "convolutions,fold-scales,canonicalize,cse,dce",
            "Keep convolutions whole, with folded biases and few transposes, then canonicalize.",
            suits=("ptir.extract_patches",),
        ),
    },
    passes="ptir_tools.passes.ptir",
    options=(PLACEHOLDERS, WEIGHTS, FROM_VALUES, TO_VALUES, GIVEN, OPSET, DATA, SHARDING, ELIDE_CONSTANTS, OUTSIDE),
    check=late(f"{_HERE}.check", "check"),
    codes=Codes(untranslated=frozenset({"IntegerDivideByZero", "GatherIndexOutOfBounds", "ScatterIndexOutOfBounds"})),
    explain=value(f"{_HERE}.codes", "EXPLAIN"),
    stop=late(f"{_HERE}.kernels.targets", "stop"),
    generate=late(f"{_HERE}.generate", "generate"),
    networks=late(f"{_HERE}.networks", "generate"),
    odd_names=_ODD_NAMES,
    hash=Hash(late(f"{_HERE}.gptrs.bincode", "program_hash"), late(f"{_HERE}.gptrs.bincode", "symbol")),
)
