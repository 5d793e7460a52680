"""Files from elsewhere do no harm: they run nothing, write nothing, and only regular files are read as data."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT, run_ptir

PROGRAM = """func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {
  %y = exp(%x) -> tensor<f32, 3>
  %z = add(%y, dense<0.0> : tensor<f32, 3>) -> tensor<f32, 3>
  return %z
}
"""
MODULES = (
    *("numpy", "json", "onnx", "jax", "jaxlib", "lark", "ml_dtypes", "re", "tempfile", "subprocess", "zipfile", "click"),
    *("rich", "pygls", "lsprotocol", "attrs", "asyncio", "multiprocessing", "concurrent", "inspect", "random", "sitecustomize"),
)
# Commands in a folder with such modules. Bytecode of StableHLO is read by a process of its own.
COMMANDS = (
    "info m.mlirbc",
    "verify --from stablehlo vhlo.mlir",
    "info m.onnx",
    "translate a.ptir --to onnx -o out.onnx",
    "translate a.ptir --to stablehlo --bytecode",
    "verify -j 2 a.ptir b.ptir",
    "verify .",
    "opt --load rule.py --check a.ptir",
    "opt -j 2 a.ptir b.ptir",
    "canonicalize a.ptir",
    "run a.ptir --random 0 --compare numpy",
    "run a.ptir --random 0 --engine xla",
    "plan a.ptir --to svg",
    "bench a.ptir --seconds 0.01",
    "fuzz --count 2 --no-write",
    "gen --seed 1",
    "reduce a.ptir --check true",
    "bisect a.ptir",
    "lit a.lit",
    "diff --run a.ptir b.ptir",
    "fmt a.ptir",
    "fix a.ptir",
    "hash a.ptir",
    "stats a.ptir",
    "graph a.ptir --to html",
    "explain MissingWait",
    "ops transpose",
    "man opt",
    "conform mind .",
    "lsp",
)
PLANTED = """import os
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "RAN-" + __name__), "w").close()
raise SystemExit(99)
"""


def plant(folder: Path) -> None:
    """Put programs and modules that say so when they run into `folder`."""
    for name in MODULES:
        (folder / f"{name}.py").write_text(PLANTED)
    for name in ("a.ptir", "b.ptir"):
        (folder / name).write_text(PROGRAM)
    (folder / "m.mlirbc").write_bytes(b"ML\xefR\1\1\1\1\1\1")
    (folder / "vhlo.mlir").write_text('"builtin.module"() ({\n  "vhlo.func_v1"() ({}) : () -> ()\n}) : () -> ()\n')
    (folder / "rule.py").write_text("from ptir_tools import plugins\n")
    (folder / "a.lit").write_text(f"EXPECTED:\n{PROGRAM}INPUT:\n{PROGRAM}run_test\n")
    (folder / "m.onnx").write_bytes(b"\x08\x0a\x3a\x00\x42\x04\x0a\x00\x10\x11")


def started(folder: Path, *start: str, line: str, stdin: bytes = b"") -> str:
    """Run a command line in `folder`; the planted modules that ran."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *start, *line.split()]
    ran = subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, timeout=120, check=False)
    assert ran.returncode not in (70, 99) and b"Traceback" not in ran.stderr, ran.stderr.decode()
    return " ".join(path.name for path in folder.glob("RAN-*"))


@pytest.mark.parametrize("line", COMMANDS)
def test_no_command_imports_from_the_current_folder(line: str, tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / "ptir_tools").mkdir()
    (tmp_path / "ptir_tools" / "__init__.py").write_text(PLANTED)
    assert started(tmp_path, "-P", "-m", "ptir_tools", line=line) == ""  # as the console script starts


@pytest.mark.parametrize("line", ["run a.ptir --random 0", "info m.mlirbc", "info m.onnx", "verify -j 2 a.ptir b.ptir", "lsp"])
def test_neither_does_the_module(line: str, tmp_path: Path) -> None:
    plant(tmp_path)
    assert started(tmp_path, "-m", "ptir_tools", line=line) == ""


FOLDS = """func @f(%q: tensor<f32, 3>, %x: tensor<f32, 3>) -> tensor<f32, 3> {
  %a = exp(%q) -> tensor<f32, 3>
  %y = add(%x, %a) -> tensor<f32, 3>
  return %y
}
"""


@pytest.mark.parametrize(
    "line",
    [
        "opt --run-reproducer {0}/reproducer.txt",
        "opt -p @{0}/pipeline.txt {0}/f.ptir",
        "graph --to html -p @{0}/pipeline.txt {0}/f.ptir",
        "bisect -p @{0}/pipeline.txt {0}/f.ptir",
        "lit --gptrs {0}/f.lit",
    ],
)
def test_a_pipeline_from_a_file_writes_only_if_that_is_allowed(line: str, tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "p.npz", q=np.zeros(3, "f4"))
    victim, part = tmp_path / "victim.npz", tmp_path / "victim.npz.part"
    victim.write_text("precious")
    part.write_text("mine")
    pipeline = f"fixpoint{{n=1}}(cse,param-fold{{params={tmp_path}/p.npz,output={victim}}})"
    (tmp_path / "reproducer.txt").write_text(f"// version: 0.1.0\n// pipeline: {pipeline}\n// flags:\n{FOLDS}")
    (tmp_path / "pipeline.txt").write_text(f"# fold\n{pipeline}\n")
    (tmp_path / "f.ptir").write_text(FOLDS)
    (tmp_path / "f.lit").write_text(f"META:\npipeline: {pipeline}\nEXPECTED:\n{FOLDS}INPUT:\n{FOLDS}run_test\n")
    before = sorted(tmp_path.iterdir())
    ran = run_ptir(*line.format(tmp_path).split())
    assert ran.status == 2 and "--allow-writes" in ran.err and "output=" in ran.err
    assert victim.read_text() == "precious" and sorted(tmp_path.iterdir()) == before
    ran = run_ptir(*line.format(tmp_path).split(), "--allow-writes")
    assert ran.status in (0, 1) and "--allow-writes" not in ran.err
    assert list(np.load(victim)) == ["a"] or line.startswith("lit")
    assert part.read_text() == "mine" and sorted(tmp_path.iterdir()) == before


def test_a_folder_that_links_to_itself_is_visited_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / name).symlink_to(".")
        (tmp_path / "in" / name).symlink_to("..")
    (tmp_path / "in" / "p.ptir").write_text(PROGRAM)
    assert run_ptir("fmt", "--check", tmp_path).text == ""
    assert run_ptir("verify", tmp_path).status == 0
    (tmp_path / "in" / "p.ptir").write_text(PROGRAM.replace("  ", " "))
    assert run_ptir("fmt", "--check", tmp_path).text == f"{tmp_path}/a/in/p.ptir\n".replace("/a", "")


def test_a_link_out_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "p.ptir").write_text(text := PROGRAM.replace("  ", " "))
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "q.ptir").write_text(PROGRAM)
    (tmp_path / "given" / "l.ptir").symlink_to("../out/p.ptir")
    (tmp_path / "given" / "m").symlink_to("../out")
    ran = run_ptir("fmt", "--in-place", tmp_path / "given", "--diagnostics", "short")
    assert ran.status == 4 and ran.err.count("a link out of the folder") == 2
    assert (tmp_path / "out" / "p.ptir").read_text() == text
    assert run_ptir("verify", tmp_path / "given" / "l.ptir").status == 0  # named by the user


WEIGHTED = PROGRAM.replace("0.0>", "@FILE:k>")
ARGUMENTS = ["--input x=@{}", "--input x=@{}:k", "--inputs {}", "--expect {}"]


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "npy", "safetensors.index.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_regular_files_are_data(kind: str, suffix: str, tmp_path: Path) -> None:
    data, program = tmp_path / f"w.{suffix}", tmp_path / "p.ptir"
    if kind == "pipe":
        os.mkfifo(data)
    elif kind == "folder":
        data.mkdir()
    else:
        data.symlink_to("/dev/zero")
    program.write_text(PROGRAM)
    for given in ARGUMENTS:
        ran = run_ptir("run", program, *given.format(data).split(), *(["--random", "0"] if "expect" in given else []))
        assert ran.status in (2, 4) and "internal" not in ran.err, (given, ran.err)
        assert ran.status == 4 or "are read from" in ran.err or "takes a" in ran.err or "name one" in ran.err, ran.err
    if suffix != "npy":
        program.write_text(WEIGHTED.replace("FILE", data.name))
        ran = run_ptir("run", program, "--random", "0")
        assert ran.status == 1 and "error[InvalidLiteral]" in ran.err


def test_a_pipe_in_a_folder_of_programs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.ptir")
    (tmp_path / "b.ptir").write_text(PROGRAM)
    ran = run_ptir("verify", tmp_path)
    assert ran.status == 4 and "no regular file" in ran.err


def test_the_payloads_of_a_trace_are_a_regular_file(tmp_path: Path) -> None:
    dump = ROOT / "testdata/ptir/dump/d04_gpt2_block_prefill.dump.ptir"
    (tmp_path / "program.ptir").write_bytes(dump.read_bytes())
    os.mkfifo(tmp_path / "program.json")
    assert run_ptir("verify", tmp_path).status == 4


def test_a_file_of_an_index_is_below_the_programs_folder(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    header = b'{"k":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'
    (tmp_path / "secret.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))
    (tmp_path / "p" / "one.safetensors").symlink_to("../secret.safetensors")
    (tmp_path / "p" / "w.safetensors.index.json").write_text('{"weight_map": {"k": "one.safetensors"}}')
    (tmp_path / "p" / "a.ptir").write_text(WEIGHTED.replace("FILE", "w.safetensors.index.json"))
    ran = run_ptir("verify", tmp_path / "p" / "a.ptir")
    assert ran.status == 1 and "a link out of the program's folder" in ran.err


LEVELS = 24  # of regions and functions, each of which runs the one below twice


def doubling_regions(levels: int = LEVELS) -> str:
    t = "tensor<f32, 2>"
    call = "{} = cond(%p, %p, {}) true_region[^r{}] false_region[^r{}] -> " + t
    lines = [f"program @main (spec_version = ptir.v0.4) {{\n  func @main(%a: {t}, %p: tensor<i1>) -> {t} {{"]
    lines += ["    " + call.format("%z", "%a", levels, levels), "    return %z\n  }"]
    for i in range(levels, -1, -1):
        twice = [call.format("%y", "%a", i - 1, i - 1), call.format("%z", "%y", i - 1, i - 1)]
        body = "\n    ".join(twice if i else [f"%z = exp(%a) -> {t}"])
        lines.append(f"  region ^r{i}(%p: tensor<i1>, %a: {t}) -> {t} {{\n    {body}\n    return %z\n  }}")
    return "\n".join([*lines, "}\n"])


def doubling_calls() -> str:
    t = "tensor<2xf32>"
    call = "  {} = func.call @f{}({}) : (" + t + ") -> " + t
    lines = [f"func.func public @main(%a: {t}) -> {t} {{", call.format("%0", LEVELS, "%a"), f"  return %0 : {t}\n}}"]
    for i in range(LEVELS, -1, -1):
        twice = [call.format("%0", i - 1, "%a"), call.format("%1", i - 1, "%0"), f"  return %1 : {t}"]
        once = [f"  %0 = stablehlo.exponential %a : {t}", f"  return %0 : {t}"]
        lines += [f"func.func private @f{i}(%a: {t}) -> {t} {{", *(twice if i else once), "}"]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("text", [doubling_regions(), doubling_calls()], ids=["regions", "calls"])
def test_what_doubles_with_every_level_hits_a_limit(text: str) -> None:
    ran = run_ptir("opt", "--max-expanded", "5000", stdin=text.encode())
    assert ran.status == 3 and "--max-expanded" in ran.err and ran.text == ""


def test_a_region_that_is_run_often_is_copied_where_it_is_small() -> None:
    ran = run_ptir("opt", stdin=doubling_regions(5).encode())
    assert ran.status == 0 and "cond" not in ran.text and ran.text.count("exp(") == 2**5


def test_an_archive_says_how_large_its_arrays_are_before_memory_is_taken(tmp_path: Path) -> None:
    import numpy as np

    np.savez_compressed(tmp_path / "w.npz", z=np.zeros(1 << 22, "u1"))
    (tmp_path / "p.ptir").write_text(PROGRAM)
    ran = run_ptir("run", tmp_path / "p.ptir", "--random", "0", "--expect", tmp_path / "w.npz", "--max-memory", "1M")
    assert ran.status == 3 and "--max-memory" in ran.err


NAME = "]]>\x1b[31m\x07\u202e\x9b</script><b>\"&'\ufffe"
TINY = {
    "uops": [
        {"id": "a", "uop": "INPUT", "arg": {"tensor_id": NAME, "dtype": "fp32", "shape": [2]}},
        {"id": NAME, "uop": "NEG", "src": ["a"]},
    ],
    "outputs": [NAME],
}


@pytest.mark.parametrize("line", ["info", "run --random 0", "plan", "stats", "plan --to svg", "graph --to svg", "graph --to dot"])
def test_names_from_files_are_escaped_where_they_are_shown(line: str) -> None:
    ran = run_ptir(*line.split(), stdin=json.dumps(TINY).encode())
    shown = ran.text + ran.err
    assert ran.status in (0, 1) and (ran.status or ran.text)
    assert not set("\x1b\x07\u202e\x9b\ufffe") & {*shown}, shown
    if line.endswith("svg"):
        ElementTree.fromstring(ran.text)


def test_the_page_of_a_graph_does_not_end_its_data_early() -> None:
    ran = run_ptir("graph", "--to", "html", stdin=json.dumps(TINY).encode())
    plain = run_ptir("graph", "--to", "html", stdin=PROGRAM.encode())
    assert ran.status == 0 and ran.text.count("</script>") == plain.text.count("</script>")


@pytest.mark.parametrize("name", ["../../x", "/../x", "a/../../x", "..\\x", "a\nb"])
def test_members_of_an_archive_stay_in_their_folder(name: str, tmp_path: Path) -> None:
    text = json.dumps(TINY).replace(json.dumps(NAME), json.dumps(name))
    assert run_ptir("run", "--random", "0", "-o", tmp_path / "o.npz", stdin=text.encode()).status == 0
    (member,) = zipfile.ZipFile(tmp_path / "o.npz").namelist()
    assert member.isprintable() and "/" not in member and "\\" not in member


def test_plain_members_keep_their_names(tmp_path: Path) -> None:
    text = json.dumps(TINY).replace(json.dumps(NAME), json.dumps("/layer/out..1:0"))
    assert run_ptir("run", "--random", "0", "-o", tmp_path / "o.npz", stdin=text.encode()).status == 0
    assert zipfile.ZipFile(tmp_path / "o.npz").namelist() == ["/layer/out..1:0.npy"]


URI = "file:///nowhere/a.ptir"
METHODS = ["hover", "definition", "references", "rename", "completion", "formatting", "codeAction", "inlayHint", "documentSymbol"]


def frame(content: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(content) + content


def message(**members: object) -> bytes:
    return frame(json.dumps({"jsonrpc": "2.0", **members}).encode())


def hostile_messages() -> bytes:
    """What a client must not send."""
    place = {"textDocument": {"uri": URI}, "position": {"line": -5, "character": 10**12}, "newName": "x"}
    ends = {"start": {"line": 9, "character": -1}, "end": {"line": 1, "character": 0}}
    options = {"tabSize": 1, "insertSpaces": True}
    wide = place | {"context": {"includeDeclaration": True, "diagnostics": []}, "range": ends, "options": options}
    device = {"textDocument": {"uri": "file:///dev/zero"}, "position": {"line": 0, "character": 0}}
    text = b"".join(map(frame, [b"{", b"[]", b"null", b"3", b'"x"', b'{"jsonrpc":"2.0"}', b"\xff\xfe", b"[" * 100_000]))
    text += b"Content-Length: 99999999999999999999999999\r\n\r\n" + b"Content-Length: x\r\n" + b"nothing\r\n" * 3
    for method in METHODS:
        wrong: list[object] = [{}, None, [], 3, wide, device, {"textDocument": {"uri": URI}, "position": {"line": "a"}}]
        text += b"".join(message(id=5, method=f"textDocument/{method}", params=params) for params in wrong)
    text += message(id={"a": 1}, method="none", params={}) + message(id=9, result=3) + message(id=10, error={"code": 1})
    change = {"range": {"start": {"line": 99, "character": 0}, "end": {"line": 1, "character": 5}}, "text": "zz"}
    return text + message(
        method="textDocument/didChange", params={"textDocument": {"uri": URI, "version": 2}, "contentChanges": [change]}
    )


def served(content: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    start = [sys.executable, "-P", "-m", "ptir_tools", "lsp", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(start, input=content, capture_output=True, timeout=300, check=False, env=environment)


@pytest.mark.skipif(importlib.util.find_spec("pygls") is None, reason="pygls is not installed (extra `lsp`)")
def test_the_language_server_survives_what_it_is_sent_and_ends_with_0() -> None:
    given = {"uri": URI, "languageId": "ptir", "version": 1, "text": PROGRAM}
    before = message(id=1, method="initialize", params={"capabilities": {}, "rootUri": None, "processId": None})
    opened = message(method="initialized", params={}) + message(method="textDocument/didOpen", params={"textDocument": given})
    end = message(id=2, method="shutdown") + message(method="exit")
    large = b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000
    ran = served(before + opened + hostile_messages() + large + end, "--max-file-bytes", "150000")
    assert ran.returncode == 0 and b"Traceback" not in ran.stderr, ran.stderr.decode()
    assert b'"id": 2' in ran.stdout and b'"result": null' in ran.stdout
    for cut in (b"Content-Length: 1000000000000\r\n\r\n{", before[:-20], b""):
        ran = served(cut)
        assert ran.returncode == 0 and b"Traceback" not in ran.stderr, ran.stderr.decode()
