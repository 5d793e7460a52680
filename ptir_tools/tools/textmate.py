"""TextMate grammars of the text formats, from the tables of ops and the records of formats, for coloring in editors."""

from __future__ import annotations

import re

from ptir_tools.core.ir import SEGMENTS
from ptir_tools.core.typed import Any
from ptir_tools.dialects import FORMATS, OWNERS, load_dialect

_DTYPES = r"(?:bf16|cf(?:32|64)|fp8_e\dm\d|f8\w+|[suif]{1,2}(?:1|4|8|16|32|64)|index)"


def colored() -> list[str]:
    """The formats with words to color."""
    return [name for name, entry in FORMATS.items() if entry.keywords]


def grammar(form: str) -> dict[str, object]:
    """The grammar of a format. Raises KeyError for an unknown format."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": form.upper(),
        "scopeName": f"source.{form}",
        "patterns": rules(form),
    }


def rules(form: str) -> list[dict[str, Any]]:
    """The rules of a grammar, from the first that applies at a place to the last."""
    entry, dialect = FORMATS[form], load_dialect(OWNERS[form].name)
    ops = "|".join(sorted(map(re.escape, dialect.ops), key=lambda name: (-len(name), name)))
    attributes = {a.name for d in dialect.ops.values() for a in d.attrs if a.name != SEGMENTS}
    attributes |= {r for d in dialect.ops.values() for r in d.regions}
    comment = re.escape(entry.comment) + ".*$"

    def rule(name: str, pattern: str) -> dict[str, str]:
        return {"name": f"{name}.{form}", "match": pattern}

    return [
        rule("comment.line", comment),
        {"name": f"comment.block.{form}", "begin": "/\\*", "end": "\\*/"},
        {"name": f"string.quoted.double.{form}", "begin": '"', "end": '"', "patterns": [{"match": "\\\\."}]},
        rule("variable.other", r"%[\w$][\w$.-]*"),
        rule("entity.name.function", r"[@^][\w$][\w$.-]*"),
        rule("variable.parameter", r"\?[A-Za-z_]\w*"),
        rule("support.function", rf"(?<![\w.%@]){entry.op_prefix}(?:{ops})(?![\w.])"),
        rule("keyword.control", rf"(?<![\w.%])(?:{entry.keywords})(?![\w.])"),
        rule("storage.type", rf"\b(?:{entry.type_words})\b(?=\s*<)|(?<![A-Za-wyz_]){_DTYPES}\b"),
        rule("entity.other.attribute-name", rf"\b(?:{'|'.join(sorted(attributes))})\b(?=\s*[\[=:])"),
        rule("constant.language", r"\b(?:true|false|inf|nan)\b"),
        rule("constant.numeric", r"(?<![\w.%@?])-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"),
    ]
