"""Conformance cases in the format of MIND's public specification (`conformance.md`), also used for Tiny.

    description: "…"
    category: shapes                # MIND: autodiff asks for the gradient module
    profile: cpu                    # MIND: gpu is skipped. Tiny: strict or seed
    input:
      ir_module: |                  # `source`, text of the MIND language, is skipped
        %0 = Input {name=x} : tensor<f32[2]>
        …
      tensors: {x: [1.0, 2.0]}      # what inputs hold (an addition of ours)
      bind: {N: 2}                  # Tiny: what symbols are (an addition of ours)
    expected:
      status: success               # or error
      output:                       # one of these; without it the module must be accepted
        ir: | …                     # its canonical form
        gradient_module: | …        # what computes the same as its gradient module
        result: {dtype: f32, shape: [2], values: [1.0, 2.0], tolerance: 1e-6}
        results: [ … ]              # of several outputs, in their order (an addition of ours)
      error: {code: E3001, message_contains: "…", location: {line: 1, column: 1}}

`result` may give `values_pattern` (all_zeros, all_ones) instead of `values`. Places are those in the module.
"""

from __future__ import annotations

import re

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Source, Span
from ptir_tools.core.spelling import did_you_mean, near_names
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml")

_INTEGER = regex(r"[-+]?(?:0|[1-9]\d{0,3999})")
_FLOAT = regex(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
_WORDS: dict[str, bool | float | None] = {
    "": None,
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    ".nan": float("nan"),
    ".inf": float("inf"),
    "-.inf": -float("inf"),
}
_DEEPEST = 64
Scalar = str | int | float | bool | None

PATTERNS = {"all_zeros": 0, "all_ones": 1}
STATUSES = ("success", "error")


@dataclass(slots=True, eq=False)
class Node:
    """A value of YAML and its part of the text."""

    value: dict[str, Node] | list[Node] | Scalar
    span: Span


class Malformed(Exception):
    """An error in a case, and its location."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.span = span


def tree(text: str) -> Node:
    """The value of one YAML document, without anchors and tags, which cases do not use. Raises Malformed."""
    whole: Node | None = None
    open_: list[Node] = []  # the lists and mappings around the next value, of which keys are the first, third, … item
    try:
        for event in yaml.parse(text, yaml.BaseLoader):
            span = Span(event.start_mark.index, event.end_mark.index)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
                raise Malformed("anchors and tags of YAML are not read here", span)
            if isinstance(event, yaml.DocumentStartEvent) and whole is not None:
                raise Malformed("a second document of YAML is not read here", span)
            if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
                open_.append(Node([], span))
                if len(open_) > _DEEPEST:
                    raise Malformed(f"nested more than {_DEEPEST} deep", span)
                continue
            if isinstance(event, yaml.ScalarEvent):
                result = Node(event.value if event.style else _scalar(event.value), span)
            elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
                result = open_.pop()
                result.span = Span(result.span.start, event.end_mark.index)
                if isinstance(event, yaml.MappingEndEvent):
                    result.value = _mapping(result.value)
            else:
                continue
            if open_:
                inside = open_[-1].value
                assert isinstance(inside, list)
                inside.append(result)
            else:
                whole = result
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = mark.index if mark else 0
        raise Malformed(": ".join(filter(None, (error.context, error.problem))), Span(at, at + 1)) from None
    except yaml.reader.ReaderError as error:
        raise Malformed(error.reason, Span(error.position, error.position + 1)) from None
    except (OverflowError, ValueError):  # raised by chr, for "\U00110000"
        raise Malformed("an escape that is not a character", Span(0, len(text))) from None
    if whole is None:
        raise Malformed("the file is empty", Span(0, 1))
    return whole


def _mapping(items: object) -> dict[str, Node]:
    """Keys and their values, which alternate."""
    nodes: dict[str, Node] = {}
    assert isinstance(items, list)
    for key, x in zip(items[::2], items[1::2], strict=True):
        if isinstance(key.value, (list, dict)):
            raise Malformed("a key is a text", key.span)
        if str(key.value) in nodes:
            raise Malformed(f"`{key.value}` is given twice", key.span)
        nodes[str(key.value)] = x
    return nodes


def _scalar(word: str) -> Scalar:
    """The value of a plain scalar: a YAML word, a number, or text."""
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


@dataclass(slots=True)
class Result:
    """One expected output. `values` is the text of nested lists; a number where a pattern says that all elements are this."""

    dtype: str
    shape: tuple[int, ...]
    values: str
    tolerance: float | None


@dataclass(slots=True)
class Case:
    """One case. `module` is None where the case is in the MIND language; lists and texts are empty where nothing is expected."""

    description: str
    category: str = ""
    profile: str = ""
    module: str | None = None
    tensors: dict[str, str] = field(default_factory=dict)
    bind: dict[str, int] = field(default_factory=dict)
    fails: bool = False
    ir: str | None = None
    gradient: str | None = None
    results: list[Result] = field(default_factory=list)
    code: str = ""
    message: str = ""
    line: int | None = None
    column: int | None = None


def read(source: Source, diagnostics: Diagnostics) -> Case | None:
    """The case in a file; None, and errors `InvalidCase`, when the file is not a case. Keys that the form does not have are
    warnings."""
    before = diagnostics.errors
    try:
        root = tree(source.text)
    except Malformed as error:
        diagnostics.error("InvalidCase", str(error), error.span)
        return None
    case = _Reading(source, diagnostics).case(root)
    return case if diagnostics.errors == before else None


class _Reading:
    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source = source
        self.diagnostics = diagnostics

    def case(self, root: Node) -> Case:
        top = self._keys(root, "description", "category", "profile", "input", "expected")
        case = Case(self._text(top, "description", root), self._text(top, "category"), self._text(top, "profile"))
        given = self._keys(self._needed(top, "input", root), "source", "ir_module", "tensors", "bind")
        if "source" not in given:
            case.module = self._text(given, "ir_module", top.get("input", root))
        case.tensors = {name: self._spelled(x) for name, x in self._mapping(given.get("tensors")).items()}
        case.bind = {name: self._whole(x) or 0 for name, x in self._mapping(given.get("bind")).items()}
        expected = self._needed(top, "expected", root)
        wanted = self._keys(expected, "status", "output", "error")
        status = self._text(wanted, "status", expected)
        if status not in STATUSES and "status" in wanted:
            self._error(f"status is one of {', '.join(STATUSES)}", wanted["status"])
        case.fails = status == "error"
        self._outcome(case, wanted, expected)
        return case

    def _outcome(self, case: Case, wanted: dict[str, Node], at: Node) -> None:
        if (unfit := wanted.get("output" if case.fails else "error")) is not None:
            self._error(f"this does not go with status {STATUSES[case.fails]}", unfit)
        if case.fails:
            error = self._needed(wanted, "error", at)
            fields = self._keys(error, "code", "message_contains", "location")
            case.code, case.message = self._text(fields, "code", error), self._text(fields, "message_contains")
            place = self._keys(fields["location"], "line", "column") if "location" in fields else {}
            case.line, case.column = (self._whole(place.get(name)) for name in ("line", "column"))
        elif "output" in wanted:
            output = self._keys(wanted["output"], "ir", "gradient_module", "result", "results")
            if len(output) != 1:
                self._error("output is one of ir, gradient_module, result and results", wanted["output"])
            case.ir, case.gradient = (self._text(output, name) or None for name in ("ir", "gradient_module"))
            listed = [output["result"]] if "result" in output else self._list(output.get("results"))
            case.results = [self._result(x) for x in listed]

    def _result(self, node: Node) -> Result:
        fields = self._keys(node, "dtype", "shape", "values", "values_pattern", "tolerance")
        shape = tuple(self._whole(x) or 0 for x in self._list(self._needed(fields, "shape", node)))
        values = ""
        if "values" in fields:
            values = self._spelled(fields["values"])
        elif (pattern := self._text(fields, "values_pattern", node)) in PATTERNS:
            values = str(PATTERNS[pattern])
        elif "values_pattern" in fields:
            self._error(f"values_pattern is one of {', '.join(PATTERNS)}", fields["values_pattern"])
        return Result(self._text(fields, "dtype", node), shape, values, self._number(fields.get("tolerance")))

    def _error(self, message: str, node: Node) -> None:
        self.diagnostics.error("InvalidCase", message, node.span)

    def _mapping(self, node: Node | None) -> dict[str, Node]:
        if node is None or isinstance(node.value, dict):
            return node.value if node is not None and isinstance(node.value, dict) else {}
        self._error("expected a mapping", node)
        return {}

    def _keys(self, node: Node, *known: str) -> dict[str, Node]:
        """The nodes of a mapping by key; other keys are warnings."""
        result = self._mapping(node)
        for key, x in result.items():
            if key not in known:
                suggestion = did_you_mean(near_names(key, known), f"known here: {', '.join(known)}")
                self.diagnostics.warning("InvalidCase", f"`{key}` is not read", x.span, help=suggestion)
        return {key: x for key, x in result.items() if key in known}

    def _needed(self, nodes: dict[str, Node], key: str, at: Node) -> Node:
        if key not in nodes:
            self._error(f"`{key}` is missing", Node(None, Span(at.span.start, at.span.start + 1)))
            return Node({}, at.span)
        return nodes[key]

    def _text(self, nodes: dict[str, Node], key: str, at: Node | None = None) -> str:
        """The text of a key; one that must be there when `at`, where it is missing, is given."""
        node = nodes.get(key) if at is None else self._needed(nodes, key, at)
        if node is None or node.value == {}:
            return ""
        if isinstance(node.value, (list, dict)) or node.value is None:
            self._error(f"`{key}` is a text", node)
            return ""
        return str(node.value)

    def _number(self, node: Node | None) -> int | float | None:
        if node is None:
            return None
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) and node.value >= 0:
            return node.value
        self._error("expected a number that is not negative", node)
        return None

    def _whole(self, node: Node | None) -> int | None:
        result = self._number(node)
        if isinstance(result, float) and node is not None:
            self._error("expected an integer", node)
        return result if isinstance(result, int) else None

    def _list(self, node: Node | None) -> list[Node]:
        if node is None or isinstance(node.value, list):
            return node.value if node is not None and isinstance(node.value, list) else []
        self._error("expected a list", node)
        return []

    def _spelled(self, node: Node) -> str:
        """Nested lists as text that inputs are read from."""
        if isinstance(node.value, list):
            return f"[{', '.join(self._spelled(x) for x in node.value)}]"
        if isinstance(node.value, dict) or node.value is None:
            self._error("expected a number or lists of numbers", node)
            return "0"
        return str(node.value).lower() if isinstance(node.value, (bool, float, str)) else str(node.value)
