"""TextMate grammars of the text formats, made of the op tables: what editors color by."""

from __future__ import annotations

import re
from typing import Any

from ptir_tools.core.ir import SEGMENTS
from ptir_tools.dialects import load_dialect

# Format: its own words, the beginnings of its types, and what may be before the name of an op.
FORMATS = {
    "ptir": ("program|func|region|return|hint|as", "tensor|tuple|dense", ""),
    "pto": (
        "module|func\\.func|return|to|wait|iter_args|step|else|do",
        "tile|memref|vector|index|strided",
        "(?:pto\\.|arith\\.)?",
    ),
    "mind": ("outputs|inputs", "tensor|Tensor", ""),
}
_DTYPES = r"(?:bf16|cf(?:32|64)|fp8_e\dm\d|f8\w+|[suif]{1,2}(?:1|4|8|16|32|64)|index)"


def grammar(form: str) -> dict[str, Any]:
    """The grammar of `ptir`, `pto` or `mind`."""
    words, types, prefix = FORMATS[form]
    dialect = load_dialect(form)
    ops = "|".join(sorted(map(re.escape, dialect.ops), key=lambda name: (-len(name), name)))
    attributes = {a.name for d in dialect.ops.values() for a in d.attrs if a.name != SEGMENTS}
    attributes |= {r for d in dialect.ops.values() for r in d.regions}
    mark = re.escape(dialect.formats[0].comment)

    def rule(name: str, pattern: str) -> dict[str, str]:
        return {"name": f"{name}.{form}", "match": pattern}

    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": form.upper(),
        "scopeName": f"source.{form}",
        "patterns": [
            rule("comment.line", f"{mark}(?!pto\\b).*$" if mark == "\\#" else f"{mark}.*$"),
            {"name": f"comment.block.{form}", "begin": "/\\*", "end": "\\*/"},
            {"name": f"string.quoted.double.{form}", "begin": '"', "end": '"', "patterns": [{"match": "\\\\."}]},
            rule("variable.other", r"%[\w$][\w$.-]*"),
            rule("entity.name.function", r"[@^][\w$][\w$.-]*"),
            rule("variable.parameter", r"\?[A-Za-z_]\w*"),
            rule("support.function", rf"(?<![\w.%@]){prefix}(?:{ops})(?![\w.])"),
            rule("keyword.control", rf"(?<![\w.%])(?:{words})(?![\w.])"),
            rule("storage.type", rf"\b(?:{types})\b(?=\s*<)|(?<![A-Za-wyz_]){_DTYPES}\b"),
            rule("entity.other.attribute-name", rf"\b(?:{'|'.join(sorted(attributes))})\b(?=\s*[\[=:])"),
            rule("constant.language", r"\b(?:true|false|inf|nan)\b"),
            rule("constant.numeric", r"(?<![\w.%@?])-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"),
        ],
    }
