"""Models of ONNX and messages of the Language Server Protocol that no one should send, drawn by a seed."""

from __future__ import annotations

import io
import json
import random
from typing import Any

from ptir_tools.bridges.onnx import importer
from ptir_tools.bridges.onnx.table import HANDLERS
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.verify import verify
from ptir_tools.dialects import reading
from ptir_tools.tools.server import Messages, serve

from .mutations import mutated

LIMITS = Limits(memory=64 << 20, literal_bytes=4 << 20, expanded=500, iterations=1000)
_READY = importer  # which imports the handlers
_SIZES = (0, 1, 2, 3, 4, -1, -2, 7, 64, 4096, 1 << 20, 1 << 31, (1 << 63) - 1, -(1 << 63))


def _tensor(draw: random.Random, name: str) -> Any:
    from onnx import TensorProto, helper

    t = TensorProto()
    t.name = name
    t.data_type = draw.choice((1, 6, 7, 7, 7, 9, 11, 10, 8, 16, 0, 99))
    if draw.random() < 0.8:
        t.data_type = draw.choice((1, 7))
        dims = [draw.choice((0, 1, 2, 3)) for _ in range(draw.choice((0, 1, 1, 1, 2)))]
        count = 1
        for d in dims:
            count *= d
        values = [draw.choice(_SIZES) if draw.random() < 0.3 else draw.choice((0, 1, 2, 3)) for _ in range(count)]
        kind = {1: float, 7: int}[t.data_type]
        return helper.make_tensor(name, t.data_type, dims, [kind(v) for v in values])
    t.dims.extend(draw.choice(_SIZES) for _ in range(draw.randint(0, 3)))
    t.raw_data = draw.randbytes(draw.choice((0, 3, 8, 16)))
    if draw.random() < 0.2:
        t.data_location = 1
        for key in ("location", "offset", "length"):
            entry = t.external_data.add()
            entry.key, entry.value = key, draw.choice(("../x", "", "/dev/zero", "-1", "9" * 30, "0", "x"))
    return t


def _attributes(draw: random.Random, op: str, graph: Any) -> dict[str, Any]:
    from onnx import defs

    try:
        known = dict(defs.get_schema(op).attributes)
    except defs.SchemaError:
        known = {}
    values: dict[str, Any] = {}
    for name, a in known.items():
        if draw.random() < 0.6:
            integers = [draw.choice(_SIZES) for _ in range(draw.randint(0, 3))]
            kinds = [integers[0] if integers else 1, 1.5, "x", graph() if a.type == defs.OpSchema.AttrType.GRAPH else "y"]
            kinds += [integers or [1], [0.5, float("nan")], ["a", "b"], _tensor(draw, "t")]
            at = {1: 1, 2: 0, 3: 2, 4: 7, 5: 3, 6: 5, 7: 4, 8: 6}.get(int(a.type.value), 0)
            values[name] = kinds[at] if draw.random() < 0.9 else draw.choice(kinds)
    return values


def model(seed: int) -> bytes:
    """A model of a few nodes: operators with wrong operands, attributes, constants and graphs inside."""
    from onnx import helper

    draw = random.Random(f"onnx {seed}")
    ops = sorted({op for domain, op in HANDLERS if not domain})

    def graph(depth: int = 0) -> Any:
        names = [f"i{depth}", f"j{depth}"]
        constants = [_tensor(draw, f"c{depth}_{k}") for k in range(draw.randint(0, 4))]
        names += [t.name for t in constants]
        nodes = []
        for k in range(draw.randint(1, 4)):
            op = draw.choice(ops) if draw.random() < 0.95 else draw.choice(("F0", "F1", "Nothing"))
            taken = [draw.choice([*names, *names, ""]) for _ in range(draw.randint(0, 5))]
            made = [f"v{depth}_{k}_{n}" for n in range(draw.choice((1, 1, 1, 2, 3)))]
            inner = (lambda: graph(depth + 1)) if depth < 2 else (lambda: "z")
            node = helper.make_node(op, taken, made, domain="f" if op in ("F0", "F1") else "")
            for name, value in _attributes(draw, op, inner).items():
                try:
                    node.attribute.append(helper.make_attribute(name, value))
                except (TypeError, ValueError, OverflowError):
                    continue
            nodes.append(node)
            names += made
        shapes = [[draw.choice((1, 2, 3, "N", "M", None, *_SIZES)) if draw.random() < 0.3 else 2 for _ in range(2)] for _ in "ij"]
        infos = []
        for name, dims in zip((f"i{depth}", f"j{depth}"), shapes, strict=True):
            kept = [d if not isinstance(d, int) or abs(d) < 1 << 62 else 5 for d in dims]
            infos.append(helper.make_tensor_value_info(name, draw.choice((1, 1, 7, 9)), kept))
        results = [helper.make_tensor_value_info(names[-1], 1, None)]
        return helper.make_graph(nodes, "g", infos, results, constants)

    functions = []
    for k in range(2):
        call = [helper.make_node("F1", ["x"], ["t"], domain="f"), helper.make_node("F1", ["t"], ["y"], domain="f")]
        body = call if k == 0 or draw.random() < 0.1 else [helper.make_node("Add", ["x", "x"], ["y"])]
        functions.append(helper.make_function("f", f"F{k}", ["x"], ["y"], body, [helper.make_opsetid("f", 1)]))
    opset = draw.choice((1, 6, 7, 9, 11, 13, 17, 18, 21, 0, 99))
    made = helper.make_model(graph(), opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("f", 1)])
    made.functions.extend(functions)
    data = bytearray(made.SerializeToString())
    for _ in range(draw.choice((0, 0, 0, 1, 3))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def one_model(seed: int) -> str | None:
    """Model number `seed` through the importer."""
    found, options = Diagnostics(), Options(limits=LIMITS)
    try:
        source = reading.decode(model(seed), "<fuzz>", found, LIMITS, "onnx")
        program = source and reading.read(source, found, options, "onnx")
        if program is None:
            assert found.errors, "no program and no diagnostics"
            return None
        verify(program, found, options)
    except (LimitExceeded, UsageError):
        pass
    return None


_METHODS = ("hover", "definition", "references", "rename", "prepareRename", "completion", "formatting", "codeAction")
_METHODS += ("inlayHint", "documentSymbol", "didOpen", "didChange", "didClose", "nothing")
_URIS = ("file:///a.ptir", "file:///b.pto", "untitled:1", "", "file:///dev/zero", "x y", 3, None)


def _value(draw: random.Random, depth: int = 0) -> Any:
    if depth > 2 or draw.random() < 0.5:
        return draw.choice((None, True, -1, 0, 10**20, 1.5, "", "x", "\ud800", [], {}))
    if draw.random() < 0.5:
        return [_value(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    keys = ("line", "character", "uri", "textDocument", "position", "range", "start", "end", "text", "version")
    return {key: _value(draw, depth + 1) for key in draw.sample(keys, draw.randint(0, 4))}


def messages(seed: int) -> bytes:
    """What a client sends: a document, changes and questions, some of them broken."""
    draw = random.Random(f"lsp {seed}")
    form, text = mutated(seed)
    uri = draw.choice(_URIS[:3])
    texts = text.decode("utf-8", "replace")[:20_000]
    begin = {"id": 0, "method": "initialize", "params": {"capabilities": {}, "rootUri": None, "processId": None}}
    opened = {"uri": uri, "languageId": form, "version": 1, "text": texts}
    said: list[dict[str, Any]] = [begin, {"method": "textDocument/didOpen", "params": {"textDocument": opened}}]
    for k in range(draw.randint(1, 5)):
        at = {"line": draw.choice((0, 1, 2, -1, 10**6)), "character": draw.choice((0, 1, 5, -3, 10**9))}
        span = {"start": at, "end": {"line": draw.randint(0, 5), "character": draw.randint(0, 9)}}
        params: Any = {"textDocument": {"uri": uri, "version": k}, "position": at, "range": span, "newName": "y"}
        params |= {"context": {"includeDeclaration": True, "diagnostics": []}, "options": {"tabSize": 1, "insertSpaces": True}}
        params |= {"contentChanges": [{"range": span, "text": draw.choice(("", "%", "}\n", texts[:99]))}]}
        if draw.random() < 0.3:
            params[draw.choice(list(params))] = _value(draw)
        params = params if draw.random() < 0.9 else _value(draw)
        said.append({"id": k, "method": f"textDocument/{draw.choice(_METHODS)}", "params": params})
    frames = []
    for members in said:
        content = json.dumps({"jsonrpc": "2.0", **members}).encode("utf-8", "surrogatepass")
        content = content if draw.random() < 0.95 else content[: draw.randrange(len(content))]
        length = len(content) if draw.random() < 0.95 else draw.choice((0, 5, 10**12, 10**30))
        frames.append(b"Content-Length: %d\r\n\r\n" % length + content)
    return b"".join(frames)


def one_client(seed: int) -> str | None:
    """The messages of client number `seed` through the language server."""
    serve(Options(limits=LIMITS)).start_io(Messages(io.BytesIO(messages(seed)), 1 << 20), io.BytesIO())  # type: ignore[arg-type]
    return None
