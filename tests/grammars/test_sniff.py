"""Formats are recognized by content, whatever stands before."""

from __future__ import annotations

import time

import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.dialects.reading import decode
from ptir_tools.dialects.sniff import sniff

TEXTS = [
    ("func @f(%x: tensor<f32>) -> tensor<f32> {", "ptir"),
    ("func f(x: tensor<f32>) -> tensor<f32> {", "ptir"),
    ("function @f(%x", "ptir"),
    ("region ^r0(%x: tensor<f32>)", "ptir"),
    ("program @p (spec_version = ptir.v0.4) {\n  func @main(%x: tensor<f32>)", "ptir"),
    ("program @p (spec_version = ptir.v0.4) {\n  // func @main {\n  func @main(%x", "ptir"),
    ("program @p (spec_version = ptir.v0.4) {\n  region ^r0(%x", "ptir"),
    ("program @p (spec_version = ptir.v0.4) {\n  func @main {\n    params:\n      %0 : tensor<F32 x 2>", "ptir-dump"),
    ("program @p (spec_version = ptir.v0.4) { func @main {", "ptir-dump"),
    ("program @p (spec_version = ptir.v0.4) {", "ptir-dump"),
    ("module {", "pto"),
    ("module attributes { pto.target = #pto.target<a3> } {", "pto"),
    ("func.func @f(%a: index) {", "pto"),
    ("%c0 = pto.constant 0 : index", "pto"),
    ("%t, %e = pto.tile.load %v async", "pto"),
    ("%t:2 = scf.if %c", "pto"),
    ("pto.wait %e", "pto"),
    ("%0 = Input {name=x} : tensor<f32[2]>", "mind"),
    ("%1 = %0", "mind"),
    ("inputs: %0", "mind"),
    ("outputs: %0", "mind"),
    ('{"uops": []}', "tiny"),
    ('{"dims": {"M": 4}, "uops": []}', "tiny"),
    ('{"a": {"uops": 1}, "functions": []}', "ptir-json"),
    ('{"a": "\\"uops\\": [", "spec_version": "x"}', "ptir-json"),
    ('{ // "uops": 1\n "functions" /* : */ : []}', "ptir-json"),
    ('{"a": "uops", "b": 1}', None),
    ('{"a": {"uops": 1}} {"uops": 1}', None),
    ("[]", None),
    ("{}", None),
    ("", None),
    ("   \n // only a comment\n", None),
    ("hello", None),
    ("%x = add(%y)", None),
    ("/* never closed", None),
    ("\0\0\0", None),
]


@pytest.mark.parametrize("before", ["", "\ufeff", "\n  ", "// a comment\n", "/* one\n two */ ", "# hash\n\n"])
@pytest.mark.parametrize(("text", "format"), TEXTS)
def test_content_tells(before: str, text: str, format: str | None) -> None:
    assert sniff(before + text) == format


def test_time_is_linear_in_hostile_text() -> None:
    for text in (
        " " * 1_000_000,
        "\n" * 1_000_000,
        "/*" * 500_000,
        "{" * 1_000_000,
        "%a," * 300_000,
        "program {" + "\n " * 500_000,
    ):
        start = time.process_time()
        sniff(text)
        assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"a\r\nb", "a\nb"), (b"\xef\xbb\xbfab", "ab"), ("é漢".encode(), "é漢"), (b"a\rb\n", "a\rb\n")],
)
def test_decoding(data: bytes, text: str) -> None:
    source = decode(data, "f", Diagnostics(), Limits())
    assert source is not None and source.text == text


def test_what_is_not_utf8_is_rejected_where_it_stands() -> None:
    diagnostics = Diagnostics()
    assert decode(b"\xef\xbb\xbfab\r\nc\xffd", "f", diagnostics, Limits()) is None
    (found,) = diagnostics
    assert (found.code, found.where) == ("InvalidEncoding", ("f", 2, 2))


@pytest.mark.parametrize(
    ("data", "form", "code"),
    [
        (b"%0 = Input {name=\xff} : tensor<f32[2]>\n", None, "E1001"),
        (b"\xff", "mind", "E1001"),
        (b"\xff", "ptir", "InvalidEncoding"),
        (b"func @f() -> () { \xff }", None, "InvalidEncoding"),
        (b"\xff", None, "InvalidEncoding"),
    ],
)
def test_what_is_not_utf8_has_the_code_of_its_format(data: bytes, form: str | None, code: str) -> None:
    diagnostics = Diagnostics()
    assert decode(data, "f", diagnostics, Limits(), form) is None
    assert [d.code for d in diagnostics] == [code]


def test_utf16_is_told_by_its_name() -> None:
    diagnostics = Diagnostics()
    assert decode("func".encode("utf-16"), "f", diagnostics, Limits()) is None
    (found,) = diagnostics
    assert found.code == "InvalidEncoding" and "UTF-16" in str(found.help)


def test_a_binary_file_has_a_limit_of_its_own() -> None:
    data = b"\x08\x0a\x3a\x20" + bytes(32)  # the version and the graph of an ONNX model
    source = decode(data, "f", Diagnostics(), Limits(file_bytes=10, binary_bytes=len(data)))
    assert source is not None and source.data == data
    with pytest.raises(LimitExceeded, match=f"more than {len(data) - 1} bytes") as found:
        decode(data, "f", Diagnostics(), Limits(binary_bytes=len(data) - 1))
    assert found.value.flag == "--max-binary-bytes"


def test_a_file_above_the_limit() -> None:
    with pytest.raises(LimitExceeded, match="more than 10 bytes") as found:
        decode(b"x" * 11, "f", Diagnostics(), Limits(file_bytes=10))
    assert found.value.source is not None and found.value.source.name == "f"
