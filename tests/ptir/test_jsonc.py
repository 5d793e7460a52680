"""JSON with comments: values, spans of every node, and what is said of a text that is not JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source, Span
from ptir_tools.dialects import jsonc


def read(text: str) -> tuple[Any, list[tuple[int, int, str]], Source]:
    source = Source("x.json", text)
    diagnostics = Diagnostics(source)
    value = jsonc.parse(source, diagnostics)
    return value, [(*d.where[1:], d.message) for d in diagnostics.sorted()], source


def test_comments_are_blanks() -> None:
    value, errors, _ = read('{"a": 1, // one "\n /* {\n */ "b": ["//", "/* */", 2]}')
    assert value == {"a": 1, "b": ["//", "/* */", 2]}
    assert errors == []


def test_spans_of_every_node() -> None:
    text = '{ "a": 1, // c\n "b": [1,2,/*x*/ {"q" : "z"}], "c": [] }'
    _, _, source = read(text)
    assert source.json_span is not None
    expected: dict[tuple[str | int, ...], str] = {
        ("a",): "1",
        ("b", 1): "2",
        ("b", 2): '{"q" : "z"}',
        ("b", 2, "q"): '"z"',
        ("b", 2, "q", jsonc.KEY): '"q"',
        ("c",): "[]",
        ("b", 7): '[1,2,/*x*/ {"q" : "z"}]',  # nothing there: the nearest ancestor
    }
    for path, shown in expected.items():
        span = source.json_span(path)
        assert span is not None
        assert text[span.start : span.end] == shown
    assert source.json_span(()) == Span(0, len(text))


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ('{"a":1,"a":2}', (1, 8), 'the key "a" is given twice'),
        ('{"a":1,"\\u0061":2}', (1, 8), 'the key "\\u0061" is given twice'),
        ("[1,2,]", (1, 5), "a comma before the closing bracket"),
        ('{"a": 1,\n}', (1, 8), "a comma before the closing bracket"),
        ('{"a": 1, // [N, K]\n /* } */ "b": 1 // ]}\n "c": 2}', (2, 15), '`,` is missing before `"c"`'),
        ('{"a": 1, // [N, K]\n /* b */ }', (1, 8), "a comma before the closing bracket"),
        ('{"a" 1}', (1, 6), "`:` is missing before `1`"),
        ("[1\n 2]", (1, 2), "`,` is missing before `2`"),
        ('{"a": NaN}', (1, 7), "JSON has no NaN"),
        ('{"a": -Infinity}', (1, 7), "JSON has no -Infinity"),
        ("[1e999]", (1, 2), "1e999 is beyond float64"),
        ('["\\ud800"]', (1, 2), "half of a surrogate pair"),
        ('{"a": [1, 2', (1, 12), "found end of input, expected `,` or `]`"),
        ("[1] 2", (1, 5), "found `2`, expected end of input"),
        ("{\n  'a': 1}", (2, 3), "strings are in double quotes"),
    ],
)
def test_errors_say_where_and_what(text: str, where: tuple[int, int], message: str) -> None:
    value, errors, _ = read(text)
    assert value is None
    assert errors == [(*where, message)]


def test_several_errors_in_one_run() -> None:
    _, errors, _ = read('{"a": [1 2],\n "a": NaN,\n "b": 1,}')
    assert [(line, column) for line, column, _ in errors] == [(1, 8), (2, 2), (2, 7), (3, 8)]


@pytest.mark.parametrize("text", ["", " ", "/* open", '"open', "[" * 256, "{" * 256, "]", "\\", "\x00", "tru", "-"])
def test_nonsense_is_refused_and_never_raises(text: str) -> None:
    value, errors, _ = read(text)
    assert value is None
    assert errors


def test_limits() -> None:
    with pytest.raises(LimitExceeded, match="5000 digits"):
        read("[" + "1" * 5000 + "]")
    for text in ("[" * 257, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "[], " * 300 + "[" * 257):
        with pytest.raises(LimitExceeded, match="nested deeper than 256"):
            read(text)
    assert read("NaN, " + json.dumps("[" * 257) + "// " + "[" * 257)[1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(json_values, st.sampled_from([None, 0, 2]))
def test_what_json_writes_is_read_and_the_grammar_takes_it(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    got, errors, source = read(text)
    assert got == value
    assert errors == []
    grammars.load("json").parse(text)
    for path, node in nodes(value):
        span = source.json_span(path) if source.json_span else None
        assert span is not None
        assert json.loads(text[span.start : span.end]) == node


def nodes(value: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [((), value)] + [((step, *path), node) for step, child in children for path, node in nodes(child)]


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='{}[]",:0123456789.eE-+ truefalsn/*\n', max_size=24))
def test_the_fast_path_and_the_grammar_take_the_same_texts(text: str) -> None:
    _, errors, _ = read(text)
    if errors:
        assert "this is not a JSON value that can be read" not in errors[0][2]  # the grammar found what was wrong
    else:
        grammars.load("json").parse(text)
