"""The language server: the services of `language` in the Language Server Protocol. Needs pygls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable

from ptir_tools import __version__
from ptir_tools.core.diagnostics import Diagnostic, Fix
from ptir_tools.core.dialect import Options
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Span
from ptir_tools.core.typed import IO, TYPE_CHECKING, Protocol
from ptir_tools.tools import manuals
from ptir_tools.tools.fix import separate
from ptir_tools.tools.language import TOKENS, Document

if TYPE_CHECKING:
    from lsprotocol import types
    from pygls import exceptions
    from pygls.lsp import server
else:
    types = lazy("lsprotocol.types")
    exceptions = lazy("pygls.exceptions")
    server = lazy("pygls.lsp.server")

_SOURCE = "ptir"
_PAUSE = 0.1  # seconds after a change before the text is read: more may follow
_LONGEST = 1 << 16  # bytes of a line of a header
_LENGTH = re.compile(rb"Content-Length:[ \t]*([0-9]{1,18})[ \t]*\r?\n", re.IGNORECASE)


class Text:
    """A document with positions as editors count them: from 0, in UTF-16 code units."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.lines = document.text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def offset(self, at: types.Position) -> int:
        """The code point at a position; a position behind the end of a line is its end."""
        number: int = at.line
        if number >= len(self.lines):
            return len(self.document.text)
        units, line = 0, self.lines[number]
        for i, char in enumerate(line):
            if units >= at.character:
                return self.starts[number] + i
            units += 1 + (ord(char) > 0xFFFF)
        return self.starts[number] + len(line)

    def position(self, offset: int) -> types.Position:
        """The position of a code point."""
        line = self.document.text.count("\n", 0, offset)
        before = self.document.text[self.starts[line] : offset]
        return types.Position(line, len(before) + sum(ord(c) > 0xFFFF for c in before))

    def range(self, span: Span) -> types.Range:
        """The range of a span."""
        return types.Range(self.position(span.start), self.position(span.end))

    def edits(self, fixes: Iterable[Fix]) -> list[types.TextEdit]:
        """The edits of fixes, with further edits that belong to them."""
        return [types.TextEdit(self.range(f.span), f.text) for fix in fixes for f in (fix, *fix.also)]

    def diagnostic(self, d: Diagnostic, uri: str) -> types.Diagnostic:
        """A diagnostic in the protocol's form."""
        severities = types.DiagnosticSeverity
        severity = {"error": severities.Error, "warning": severities.Warning}.get(d.severity, severities.Information)
        message = "\n".join([d.message, *d.notes, *([f"help: {d.help}"] if d.help else [])])
        related = [
            types.DiagnosticRelatedInformation(types.Location(uri, self.range(label.span)), label.text) for label in d.labels
        ]
        span = d.span or Span(0, 0)
        end = min(max(span.end, span.start + 1), len(self.document.text))
        shown = self.range(Span(span.start, max(end, span.start)))
        return types.Diagnostic(shown, message, severity, d.code, source=_SOURCE, related_information=related)


class Asked(Protocol):
    """The parameters of a question about a text."""

    @property
    def text_document(self) -> types.TextDocumentIdentifier: ...


class Messages:
    """The messages of a client, read from `stream`, as well-formed frames. One that is longer than `most` bytes is skipped, and
    nothing is read without an announced length."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self.stream, self.most = stream, most
        self.lines: list[bytes] = []
        self.body = b""

    def readline(self, _: int = -1) -> bytes:
        """The next line of a header; empty at the end."""
        if not self.lines:
            self._next()
        return self.lines.pop(0) if self.lines else b""

    def read(self, _: int) -> bytes:
        """The content of the message whose header was read."""
        return self.body

    def _next(self) -> None:
        length: int | None = None
        while line := self.stream.readline(_LONGEST):
            if (match := _LENGTH.match(line)) is not None:
                length = int(match[1])
            elif not line.strip() and length is not None:
                skipped = length > self.most
                self.body = b"" if skipped else self.stream.read(length)
                if skipped:
                    self._skip(length)
                elif len(self.body) == length and length:
                    self.lines = [b"Content-Length: %d\r\n" % length, b"\r\n"]
                    return
                length = None

    def _skip(self, length: int) -> None:
        while length > 0 and (piece := self.stream.read(min(length, _LONGEST))):
            length -= len(piece)


# Answers to questions about a text


def _hover(text: Text, params: types.HoverParams) -> types.Hover | None:
    under = text.document.hover(text.offset(params.position))
    if under is None:
        return None
    if under.value is not None:
        shown = f"```\n%{under.value.name} : {under.type}\n```"
    else:
        assert under.op is not None
        shown = f"```\n{manuals.signature(under.op)}\n```\n\n{manuals.markdown(under.op)}"
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, shown), text.range(under.span))


def _definition(text: Text, params: types.DefinitionParams) -> types.Location | None:
    span = text.document.definition(text.offset(params.position))
    return None if span is None else types.Location(params.text_document.uri, text.range(span))


def _references(text: Text, params: types.ReferenceParams) -> list[types.Location]:
    offset = text.offset(params.position)
    defined = None if params.context.include_declaration else text.document.definition(offset)
    return [types.Location(params.text_document.uri, text.range(span)) for span in text.document.uses(offset) if span != defined]


def _prepare(text: Text, params: types.PrepareRenameParams) -> types.Range | None:
    offset = text.offset(params.position)
    at = text.document.word(offset)
    return text.range(at) if at is not None and text.document.uses(offset) else None


def _rename(text: Text, params: types.RenameParams) -> types.WorkspaceEdit | None:
    try:
        fixes = text.document.rename(text.offset(params.position), params.new_name)
    except ValueError as error:
        raise exceptions.JsonRpcInvalidParams(str(error)) from error
    return types.WorkspaceEdit({params.text_document.uri: text.edits(fixes)}) if fixes else None


def _completion(text: Text, params: types.CompletionParams) -> types.CompletionList:
    kinds = {
        "value": types.CompletionItemKind.Variable,
        "op": types.CompletionItemKind.Function,
        "attribute": types.CompletionItemKind.Property,
        "type": types.CompletionItemKind.TypeParameter,
        "snippet": types.CompletionItemKind.Snippet,
    }
    items = []
    for t, k, about in text.document.completions(text.offset(params.position)):
        item = types.CompletionItem(t, kind=kinds[k], detail=about)
        if k == "snippet":
            item.label, item.insert_text = t.partition(" ")[0], t
            item.insert_text_format = types.InsertTextFormat.Snippet
        items.append(item)
    return types.CompletionList(False, items)


def _tokens(text: Text, params: types.SemanticTokensParams) -> types.SemanticTokens:
    data: list[int] = []
    line = start = 0
    for span, kind in text.document.tokens():
        at = text.position(span.start)
        length = text.position(span.end).character - at.character
        data += [at.line - line, at.character - (start if at.line == line else 0), length, TOKENS.index(kind), 0]
        line, start = at.line, at.character
    return types.SemanticTokens(data)


def _folds(text: Text, params: types.FoldingRangeParams) -> list[types.FoldingRange]:
    return [types.FoldingRange(a, b) for a, b in text.document.folds()]


def _highlights(text: Text, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
    kinds = types.DocumentHighlightKind
    found = text.document.highlights(text.offset(params.position))
    return [types.DocumentHighlight(text.range(span), kinds.Write if defined else kinds.Read) for span, defined in found]


def _signature(text: Text, params: types.SignatureHelpParams) -> types.SignatureHelp | None:
    if (found := text.document.signature(text.offset(params.position))) is None:
        return None
    op, number = found
    groups = [types.ParameterInformation(g.name) for g in op.groups]
    last = max(len(groups) - 1, 0)
    shown = types.SignatureInformation(manuals.signature(op), manuals.first_line(op), groups, min(number, last))
    return types.SignatureHelp([shown], 0, min(number, last))


def _formatting(text: Text, params: types.DocumentFormattingParams) -> list[types.TextEdit]:
    after, before = text.document.layout(), text.document.text
    return [] if after is None or after == before else [types.TextEdit(text.range(Span(0, len(before))), after)]


def _actions(text: Text, params: types.CodeActionParams) -> list[types.CodeAction]:
    uri = params.text_document.uri
    start, end = text.offset(params.range.start), text.offset(params.range.end)
    made_of: list[types.CodeAction] = []
    for d in text.document.diagnostics:
        if d.fix is None or d.span is None or d.span.end < start or end < d.span.start:
            continue
        title = (d.help or d.message).split("\n")[0]
        edit = types.WorkspaceEdit({uri: text.edits([d.fix])})
        kind, about = types.CodeActionKind.QuickFix, [text.diagnostic(d, uri)]
        made_of.append(types.CodeAction(title, kind, about, is_preferred=d.fix.safe, edit=edit))
    if safe := separate([d.fix for d in text.document.diagnostics if d.fix is not None and d.fix.safe]):
        edit = types.WorkspaceEdit({uri: text.edits(safe)})
        made_of.append(types.CodeAction("Apply all safe edits", types.CodeActionKind.SourceFixAll, edit=edit))
    return made_of


def _hints(text: Text, params: types.InlayHintParams) -> list[types.InlayHint]:
    kind = types.InlayHintKind.Type
    return [types.InlayHint(text.position(at), f": {t}", kind, padding_left=True) for at, t in text.document.hints()]


def _symbols(text: Text, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    kind = types.SymbolKind.Function
    return [
        types.DocumentSymbol(name, kind, text.range(span), text.range(Span(span.start, span.start)))
        for name, span in text.document.symbols()
    ]


def _answers() -> list[tuple[Callable[[Text, Asked], object], str, object]]:
    """Each answer with its method and what it says of itself to clients."""
    return [
        (_hover, types.TEXT_DOCUMENT_HOVER, None),
        (_definition, types.TEXT_DOCUMENT_DEFINITION, None),
        (_references, types.TEXT_DOCUMENT_REFERENCES, None),
        (_prepare, types.TEXT_DOCUMENT_PREPARE_RENAME, None),
        (_rename, types.TEXT_DOCUMENT_RENAME, None),
        (_completion, types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["%", ".", '"'])),
        (_formatting, types.TEXT_DOCUMENT_FORMATTING, None),
        (_actions, types.TEXT_DOCUMENT_CODE_ACTION, None),
        (_hints, types.TEXT_DOCUMENT_INLAY_HINT, None),
        (_symbols, types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, None),
        (_tokens, types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, types.SemanticTokensLegend([*TOKENS], [])),
        (_folds, types.TEXT_DOCUMENT_FOLDING_RANGE, None),
        (_highlights, types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, None),
        (_signature, types.TEXT_DOCUMENT_SIGNATURE_HELP, types.SignatureHelpOptions(trigger_characters=["(", ","])),
    ]


def serve(options: Options) -> server.LanguageServer:
    """The server, not yet started. Raises ModuleNotFoundError if pygls is not installed."""
    result = server.LanguageServer("ptir", __version__)
    documents: dict[str, Document] = {}

    def text_of(uri: str) -> Text:
        opened = result.workspace.text_documents.get(uri)
        if opened is not None and (uri not in documents or documents[uri].text != opened.source.replace("\r\n", "\n")):
            changed(uri)
        return Text(documents.get(uri) or Document(uri, options))  # a document that is not open is empty: no file is read

    def changed(uri: str) -> None:
        opened = result.workspace.get_text_document(uri)
        document = documents.setdefault(uri, Document(opened.path or uri, options))
        document.change(opened.source.replace("\r\n", "\n"))
        text = Text(document)
        shown = [text.diagnostic(d, uri) for d in document.diagnostics]
        result.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown, opened.version))

    def _opened(params: types.DidOpenTextDocumentParams) -> None:
        changed(params.text_document.uri)

    async def _changed(params: types.DidChangeTextDocumentParams) -> None:
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(_PAUSE)
        opened = result.workspace.text_documents.get(uri)
        if opened is not None and opened.version == version:  # no newer text has come
            changed(uri)

    def _closed(params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        documents.pop(uri, None)
        result.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _everywhere(params: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol]:
        return [
            types.WorkspaceSymbol(types.Location(uri, Text(document).range(span)), name, types.SymbolKind.Function)
            for uri, document in documents.items()
            for name, span in document.symbols()
            if params.query.lower() in name.lower()
        ]

    def answering(answer: Callable[[Text, Asked], object]) -> Callable[[Asked], object]:
        return lambda params: answer(text_of(params.text_document.uri), params)

    events: list[tuple[Callable[..., object], str]] = [
        (_opened, types.TEXT_DOCUMENT_DID_OPEN),
        (_changed, types.TEXT_DOCUMENT_DID_CHANGE),
        (_closed, types.TEXT_DOCUMENT_DID_CLOSE),
        (_everywhere, types.WORKSPACE_SYMBOL),
    ]
    for event, method in events:
        result.feature(method)(event)
    for answer, method, about in _answers():
        result.feature(method, about)(answering(answer))
    return result
