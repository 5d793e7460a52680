"""What editors ask: on the text itself, and through a client of the Language Server Protocol where pytest-lsp is installed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ptir_tools.tools.language import TOKENS, Document
from ptir_tools.tools.server import Text
from tests.conftest import ROOT, run_ptir

PTIR = """// a program
program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32, 2>, %p: tensor<i1>) -> tensor<f32, 2> {
    %y = neg(%x) -> tensor<f32, 2> // %x again
    %z = cond(%p, %y) true_region[^r0] false_region[^r0] -> tensor<f32, 2>
    return %z
  }
  region ^r0(%x: tensor<f32, 2>) -> tensor<f32, 2> {
    %e = exp(%x) -> tensor<f32, 2>
    return %e
  }
}
"""
PTO = """func.func @f(%a: pto.memref<32x32xf32>) {
  %c0 = pto.constant 0 : index
  %t = pto.tile.load %a[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32>
  pto.tile.store %t, %a[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32>
  return
}
"""
MIND = "%0 = Input {name=x} : tensor<f32[3]>\n%1 = Relu (%0)\noutputs: %1\n"
TINY = (
    '{"uops":[\n {"id":"a","uop":"INPUT","arg":{"tensor_id":"A","dtype":"fp32","shape":[2,3]}},\n'
    ' {"id":"b","uop":"NEG","src":["a"]}\n]}\n'
)


def opened(text: str) -> Document:
    document = Document("case")
    document.change(text)
    return document


def at(text: str, word: str, number: int = 0) -> int:
    """Where `word` is for the time `number`, counted from 0."""
    place = -1
    for _ in range(number + 1):
        place = text.index(word, place + 1)
    return place


def lines(document: Document, offset: int) -> list[int]:
    return [document.text.count("\n", 0, span.start) + 1 for span in document.uses(offset)]


@pytest.mark.parametrize(
    ("text", "word", "number", "defined", "used"),
    [
        (PTIR, "%x", 1, 3, [3, 4]),  # not in the comment, not in the region
        (PTIR, "%x", 4, 8, [8, 9]),
        (PTIR, "%y", 1, 4, [4, 5]),
        (PTIR, "^r0", 0, 8, [5, 5, 8]),
        (PTO, "%c0", 2, 2, [2, 3, 3, 4, 4]),
        (PTO, "%a", 1, 1, [1, 3, 4]),
        (MIND, "%0", 1, 1, [1, 2]),
        (MIND, "%1", 1, 2, [2, 3]),
        (TINY, '"a"', 1, 2, [2, 3]),
    ],
)
def test_names_are_found_in_their_block(text: str, word: str, number: int, defined: int, used: list[int]) -> None:
    document, offset = opened(text), at(text, word, number)
    found = document.definition(offset)
    assert found is not None and text.count("\n", 0, found.start) + 1 == defined
    assert lines(document, offset) == used


@pytest.mark.parametrize(
    ("text", "word", "number", "type"),
    [
        (PTIR, "%y", 1, "tensor<f32, 2>"),
        (PTO, "%t", 1, "tile<32x32xf32>"),
        (MIND, "%1", 1, "tensor<f32[3]>"),
        (TINY, '"a"', 1, "fp32[2, 3]"),
    ],
)
def test_hover_knows_the_type_of_a_value(text: str, word: str, number: int, type: str) -> None:
    found = opened(text).hover(at(text, word, number) + 1)
    assert found is not None and found.value is not None and found.type == type


@pytest.mark.parametrize(("text", "word"), [(PTIR, "neg"), (PTO, "pto.tile.load"), (MIND, "Relu"), (TINY, '"NEG"')])
def test_hover_knows_the_op(text: str, word: str) -> None:
    found = opened(text).hover(at(text, word) + 1)
    assert found is not None and found.op is not None and found.op.short in word


def test_renaming_leaves_a_program_that_means_the_same() -> None:
    for text, word, name in ((PTIR, "%y", "longer"), (PTO, "%t", "%tile0"), (MIND, "%1", "7"), (TINY, '"a"', "first")):
        document = opened(text)
        after = text
        for fix in reversed(document.rename(at(text, word), name)):
            after = after[: fix.span.start] + fix.text + after[fix.span.end :]
        changed = opened(after)
        assert after != text and name.strip("%") in after and not [d for d in changed.diagnostics if d.severity == "error"], (
            changed.diagnostics
        )
    assert not opened(PTIR).rename(at(PTIR, "neg"), "x")


@pytest.mark.parametrize(
    ("text", "word", "name"),
    [
        (PTIR, "%y", "two words"),
        (PTIR, "%y", "x"),
        (PTIR, "%y", "%z"),
        (PTIR, "^r0", ""),
        (PTO, "%t", "c0"),
        (MIND, "%1", "0"),
        (TINY, '"a"', "b"),
    ],
)
def test_renaming_to_another_name_is_refused(text: str, word: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"is (another name here|not a name)"):
        opened(text).rename(at(text, word), name)


def test_a_name_of_another_block_captures_nothing() -> None:
    assert len(opened(PTIR).rename(at(PTIR, "%y"), "e")) == 2  # %e is of the region
    assert len(opened(PTIR).rename(at(PTIR, "%y"), "y")) == 2  # its own name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PTIR, {"// a program": "comment", "func": "keyword", "@main": "function", "%x": "parameter", "%y": "variable",
                "neg": "method", "tensor": "type", "f32": "type", "2": "number", "true_region": "property", "^r0": "function"}),
        (PTO, {"pto.tile.load": "method", "%t": "variable", "%a": "parameter", "func.func": "keyword", "0": "number"}),
        (MIND, {"Relu": "method", "%1": "variable", "f32": "type"}),
    ],
)  # fmt: skip
def test_words_have_kinds(text: str, words: dict[str, str]) -> None:
    found = opened(text).tokens()
    kinds = {text[span.start : span.end]: kind for span, kind in found}
    assert {word: kinds.get(word) for word in words} == words
    assert {kind for _, kind in found} <= {*TOKENS}
    ends = [span.end for span, _ in found]
    assert all(span.start >= end for (span, _), end in zip(found[1:], ends, strict=False))
    assert all("\n" not in text[span.start : span.end] for span, _ in found)


def test_blocks_and_comments_fold() -> None:
    assert opened(PTIR).folds() == [(1, 10), (2, 5), (7, 9)]
    assert opened("// a\n// b\n// }\n" + PTO).folds()[0] == (0, 2)
    assert opened(TINY).folds() == [(0, 2)]


def test_the_uses_of_a_name_are_highlighted() -> None:
    assert [(PTIR.count("\n", 0, s.start) + 1, d) for s, d in opened(PTIR).highlights(at(PTIR, "%y"))] == [(4, True), (5, False)]


def test_the_signature_of_the_op_around_a_place() -> None:
    text = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = select(%x, exp(%x, %x), %"
    document = opened(PTIR)
    document.text = text
    for place, op, number in (
        (len(text), "select", 2),
        (text.index("exp(") + 4, "exp", 0),
        (text.index("%x, %x)") + 4, "exp", 1),
    ):
        found = document.signature(place)
        assert found is not None and (found[0].short, found[1]) == (op, number)
    assert document.signature(5) is None


def test_every_format_has_an_outline() -> None:
    assert [name for name, _ in opened(MIND).symbols()] == ["%0", "%1 = Relu"]
    assert [name for name, _ in opened(TINY).symbols()] == ["a", "b = NEG"]
    for text in (MIND, TINY):  # inputs are where they are defined, too
        assert [text.count("\n", 0, at.start) for _, at in opened(text).symbols()] == ([0, 1] if text is MIND else [1, 2])


def test_completion_offers_dtypes_and_snippets() -> None:
    document = opened(PTIR)
    document.text = "func @f(%x: tensor<"
    assert ("bf16", "type", "") in document.completions(len(document.text))
    document.text = "fu"
    assert [about for _, kind, about in document.completions(2) if kind == "snippet"] == ["a function", "a region"]
    document.text = "  %y = "
    assert not [t for t, kind, _ in document.completions(7) if kind == "snippet"]


def test_a_text_with_errors_keeps_what_was_known() -> None:
    document = opened(PTIR)
    document.change(broken := PTIR.replace("neg(%x)", "nge(%x)"))
    assert [d.code for d in document.diagnostics] == ["UnknownOp"] and document.diagnostics[0].fix is not None
    assert document.definition(at(broken, "%y", 1)) is not None
    document.change("")
    assert document.layout() is None or document.layout() == ""


def test_completion_offers_values_ops_and_attributes() -> None:
    text = PTIR.replace("neg(%x)", "neg(%")
    document = opened(PTIR)
    document.text = text
    offered = document.completions(at(text, "neg(%") + 5)
    assert {"%x", "%p"} <= {t for t, kind, _ in offered if kind == "value"}
    start = at(text, "%y = ") + 5
    document.text = text[:start]
    assert {"neg", "exp", "dot_general"} <= {t for t, kind, _ in document.completions(start) if kind == "op"}
    document.text = "func @f(%x: tensor<f32, 2>) -> tensor<f32> {\n  %y = reduce_sum(%x) "
    assert ("axes", "attribute", "reduce_sum") in document.completions(len(document.text))


def test_a_type_that_is_not_written_is_a_hint() -> None:
    assert list(opened(MIND).hints()) == [(MIND.index("(%0)") + 4, "tensor<f32[3]>")]
    assert [t for _, t in opened(TINY).hints()] == ["fp32[2, 3]"]
    assert not list(opened(PTIR).hints())


def test_a_text_that_cannot_be_read_has_the_values_of_the_last_one_but_no_hints() -> None:
    document = opened(TINY)
    assert [*document.hints()]
    values = [found for found in document.completions(5) if found[1] == "value"]
    document.change(TINY[:-3])
    assert document.diagnostics and not [*document.hints()]
    assert [found for found in document.completions(5) if found[1] == "value"] == values != []


@pytest.mark.parametrize("text", [PTIR, PTO, MIND], ids=["ptir", "pto", "mind"])
def test_words_of_a_comment_of_several_lines_are_its_lines(text: str) -> None:
    comment = ["/* one", "", "   two %x", "three */"]
    document = opened("\n".join([*comment, text]))
    words = [(document.text[span.start : span.end], kind) for span, kind in document.tokens()]
    assert words[:3] == [(line, "comment") for line in comment if line]


def test_a_value_is_that_of_its_function() -> None:
    one = "  func @f{n}(%x: tensor<f32, {n}>) -> tensor<f32, {n}> {{\n    %y = exp(%x) -> tensor<f32, {n}>\n    return %y\n  }}\n"
    text = f"program @f2 (spec_version = ptir.v0.4) {{\n{one.format(n=2)}{one.format(n=3)}}}\n"
    document = opened(text)
    for name, number, wanted in (("%x", 1, 2), ("%y", 1, 2), ("%x", 3, 3), ("%y", 3, 3)):
        found = document.hover(at(text, name, number))
        assert found is not None and found.type == f"tensor<f32, {wanted}>"


def test_functions_and_regions_are_symbols() -> None:
    assert [name for name, _ in opened(PTIR).symbols()] == ["func @main", "region ^r0"]


def test_positions_are_counted_in_code_units_of_utf_16() -> None:
    """Each place of each line, before, in and behind characters that take two units."""
    types = pytest.importorskip("lsprotocol.types")
    text = "// \U0001f600 \u00e9\u4e2d\U00010000x\U0001f600\U0001f600\n\n\U0001f600%x = a\n" + PTIR
    seen = Text(opened(text))
    for offset in range(len(text) + 1):
        before = text[:offset].rpartition("\n")[2]
        position = seen.position(offset)
        assert (position.line, position.character) == (text.count("\n", 0, offset), len(before.encode("utf-16-le")) // 2)
        assert seen.offset(position) == offset
    assert seen.offset(types.Position(0, 999)) == text.index("\n") and seen.offset(types.Position(999, 0)) == len(text)


def test_layout_is_that_of_fmt() -> None:
    assert opened(PTIR.replace("    %y", "  %y")).layout() == PTIR


def test_the_command_names_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pygls"] + ["pygls"]:
        monkeypatch.setitem(sys.modules, name, None)
    ran = run_ptir("lsp")
    assert ran.status == 2 and "pip install 'ptir-tools[lsp]'" in ran.err


# ---- a real client


async def _session(text: str, ask: Any) -> Any:
    from lsprotocol import types
    from pytest_lsp import LanguageClient, client_capabilities, make_test_lsp_client

    client: LanguageClient = make_test_lsp_client()
    await client.start_io(sys.executable, "-m", "ptir_tools", "lsp", cwd=ROOT, env=dict(os.environ))
    try:
        await client.initialize_session(
            types.InitializeParams(capabilities=client_capabilities("visual_studio_code"), root_uri=Path(ROOT).as_uri())
        )
        uri = "file:///case.ptir"
        client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "ptir", 1, text)))
        await client.wait_for_notification("textDocument/publishDiagnostics")
        answer = await ask(client, uri, types)
        await client.shutdown_session()
        return answer
    finally:
        if client._server and client._server.returncode is None:
            client._server.kill()


def ask(text: str, question: Any) -> Any:
    pytest.importorskip("pygls")
    pytest.importorskip("pytest_lsp")
    return asyncio.run(asyncio.wait_for(_session(text, question), 120))


def test_a_client_gets_findings_and_their_fixes() -> None:
    """Of two, each alone at its place."""
    text = PTIR.replace("neg(%x)", "nge(%x)").replace("exp(%x)", "xep(%x)")

    async def question(client: Any, uri: str, types: Any) -> Any:
        document, all_found = types.TextDocumentIdentifier(uri), client.diagnostics[uri]
        places = [types.CodeActionParams(document, d.range, types.CodeActionContext([d])) for d in all_found]
        return all_found, [await client.text_document_code_action_async(place) for place in places]

    found, actions = ask(text, question)
    for d, (action,), line, column, name in zip(found, actions, (3, 8), (9, 9), ("neg", "exp"), strict=True):
        assert (d.code, d.range.start.line, d.range.start.character) == ("UnknownOp", line, column)
        (edit,) = next(iter(action.edit.changes.values()))
        assert edit.new_text == name and action.title == f"did you mean `{name}`?"


def test_a_client_gets_everything_else() -> None:
    async def question(client: Any, uri: str, types: Any) -> Any:
        doc = types.TextDocumentIdentifier(uri)
        on_y, on_op = types.Position(4, 19), types.Position(3, 10)
        asked: dict[str, Any] = {
            "hover": await client.text_document_hover_async(types.HoverParams(doc, on_y)),
            "op": await client.text_document_hover_async(types.HoverParams(doc, on_op)),
            "definition": await client.text_document_definition_async(types.DefinitionParams(doc, on_y)),
            "references": await client.text_document_references_async(
                types.ReferenceParams(types.ReferenceContext(True), doc, on_y)
            ),
            "rename": await client.text_document_rename_async(types.RenameParams(doc, on_y, "longer")),
            "completion": await client.text_document_completion_async(types.CompletionParams(doc, on_y)),
            "format": await client.text_document_formatting_async(
                types.DocumentFormattingParams(doc, types.FormattingOptions(2, True))
            ),
            "symbols": await client.text_document_document_symbol_async(types.DocumentSymbolParams(doc)),
            "tokens": await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(doc)),
            "folds": await client.text_document_folding_range_async(types.FoldingRangeParams(doc)),
            "highlights": await client.text_document_document_highlight_async(types.DocumentHighlightParams(doc, on_y)),
            "signature": await client.text_document_signature_help_async(types.SignatureHelpParams(doc, types.Position(3, 14))),
            "everywhere": await client.workspace_symbol_async(types.WorkspaceSymbolParams("MAIN")),
            "refused": await _refusal(client.text_document_rename_async(types.RenameParams(doc, on_y, "x"))),
        }
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(2, uri),
                [types.TextDocumentContentChangeWholeDocument(PTIR.replace("exp(", "xep("))],
            )
        )
        await client.wait_for_notification("textDocument/publishDiagnostics")
        asked["after"] = client.diagnostics[uri]
        return asked

    laid = PTIR.replace("// a", "// \U0001f600").replace("    %y", "   %y")
    found = ask(laid, question)
    assert "%y : tensor<f32, 2>" in found["hover"].contents.value and "ptir.neg" in found["op"].contents.value
    assert found["definition"].range.start.line == 3
    assert [place.range.start.line for place in found["references"]] == [3, 4]
    assert len(next(iter(found["rename"].changes.values()))) == 2
    assert "%x" in {item.label for item in found["completion"].items}
    assert found["format"][0].new_text == laid.replace("   %y", "    %y") and [s.name for s in found["symbols"]] == [
        "func @main",
        "region ^r0",
    ]
    assert [d.code for d in found["after"]] == ["UnknownOp"]
    seen, line, start, words = Text(opened(laid)), 0, 0, list[tuple[int, int, int, str]]()
    for down, right, length, kind, _ in zip(*[iter(found["tokens"].data)] * 5, strict=True):
        line, start = line + down, right if down else start + right
        words.append((line, start, length, TOKENS[kind]))
    places = [(seen.position(span.start), seen.position(span.end), kind) for span, kind in seen.document.tokens()]
    assert words == [(a.line, a.character, b.character - a.character, kind) for a, b, kind in places] and len(words) > 40
    assert [(f.start_line, f.end_line) for f in found["folds"]] == [(1, 10), (2, 5), (7, 9)]
    assert [h.kind for h in found["highlights"]] == [3, 2]
    assert found["signature"].signatures[0].label == "ptir.neg(x)"
    assert [s.name for s in found["everywhere"]] == ["func @main"]
    assert "`%x` is another name here" in found["refused"]


async def _refusal(answer: Any) -> str:
    try:
        return f"no refusal: {await answer}"
    except Exception as error:
        return str(error)


def test_quick_changes_are_read_once_and_the_server_ends_with_status_0() -> None:
    async def question(client: Any, uri: str, types: Any) -> Any:
        for k in range(20):
            client.text_document_did_change(
                types.DidChangeTextDocumentParams(
                    types.VersionedTextDocumentIdentifier(k + 2, uri),
                    [types.TextDocumentContentChangeWholeDocument(PTIR.replace("neg(", f"neg{k}("))],
                )
            )
        await client.wait_for_notification("textDocument/publishDiagnostics")
        return client._server, client.diagnostics[uri]

    server, found = ask(PTIR, question)
    assert len(found) == 1 and "neg19" in found[0].message
    assert server.returncode == 0
