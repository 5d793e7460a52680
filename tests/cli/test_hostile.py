"""Whatever comes in: a diagnostic and an exit code, never a traceback, a hang or a wrong answer."""

from __future__ import annotations

import random
import re
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.conftest import EVERY_FORMAT, TESTDATA, Ran, run_ptir

SECONDS = 20  # of processor time for one hostile input, on a slow machine
N18 = "1000000x1000000x1000000"
FUNC = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {{\n{}\n  return %x\n}}\n"


def calls_of_devices(count: int) -> str:
    """Devices that call a function, which calls another one twice, and so on."""
    t = "tensor<2xf32>"
    call = "func.call @f{} : ({}) -> {}".format
    functions = f"  func.func private @f0(%a: {t}) -> {t} {{ return %a : {t} }}\n"
    for k in range(1, count):
        calls = f"%0 = {call(f'{k - 1}(%a)', t, t)}\n    %1 = {call(f'{k - 1}(%0)', t, t)}"
        functions += f"  func.func private @f{k}(%a: {t}) -> {t} {{\n    {calls}\n    return %1 : {t}\n  }}\n"
    placed = 'in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"}'
    body = f"    %0 = sdy.manual_computation(%a) {placed} (%b: {t}) {{\n      %1 = {call(f'{count - 1}(%b)', t, t)}\n"
    body += f"      sdy.return %1 : {t}\n    }} : (tensor<8xf32>) -> tensor<8xf32>\n    return %0 : tensor<8xf32>\n"
    main = f"  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{\n{body}  }}\n"
    return f'module {{\n  sdy.mesh @mesh = <["x"=4]>\n{functions}{main}}}\n'


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "nul": b"\0" * 1000,
    "binary": bytes(range(256)) * 100,
    "invalid-utf8": b"func @f(%x: tensor<f32>) -> tensor<f32> {\n  return \xff%x\n}\n",
    "lone-surrogate": b'{"uops": [], "x": "\xed\xa0\x80"}',
    "bom-only": b"\xef\xbb\xbf",
    "open-parens": b"func @f(" + b"(" * 1_000_000,
    "open-braces": b"{" * 1_000_000,
    "open-brackets": b'{"uops": ' + b"[" * 1_000_000,
    "open-json": b'{"uops": ' + b'{"a":' * 100_000,
    "open-module": b"module {" + b"scf.if %c {" * 10_000,
    "nested-blocks": b"module {\nfunc.func @f(%c: index) {\n" + b"scf.if %c {\n" * 5_000 + b"}\n" * 5_000 + b"return\n}\n}\n",
    "chain": b'{"uops": [{"id": "n0", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [2]}}'
    + b"".join(b', {"id": "n%d", "uop": "NEG", "src": ["n%d"]}' % (i + 1, i) for i in range(20_000))
    + b"]}",
    "open-tuples": b"func @f(%x: " + b"(" * 100_000 + b"tensor<f32>) -> tensor<f32> { return %x }",
    "open-comment": b"/*" * 100_000,
    "open-string": b'{"uops": "' + b"a" * 1_000_000,
    "one-long-name": b"func @f(%" + b"a" * 1_000_000 + b": tensor<f32>) -> tensor<f32> { }",
    "one-long-number": FUNC.format("  %y = reshape(%x) new_shape[" + "9" * 100_000 + "] -> tensor<f32, 2>").encode(),
    "huge-extent": FUNC.format("  %y = iota() axis[0] -> tensor<f32, " + "9" * 5000 + ">").encode(),
    "many-elements": f"func @f(%x: tensor<f32, {N18}>) -> tensor<f32, {N18}> {{ return %x }}".encode(),
    "too-many-elements": f"func @f(%x: tensor<f32, {N18}x{N18}>) -> tensor<f32, {N18}x{N18}> {{ return %x }}".encode(),
    "negative-extent": b"func @f(%x: tensor<f32, -2>) -> tensor<f32, -2> { return %x }",
    "rank-1000": f"func @f(%x: tensor<f32, {'x'.join(['1'] * 1000)}>) -> tensor<f32> {{ return %x }}".encode(),
    "float-overflow": FUNC.format("  %y = constant() value[dense<1e999999999>] -> tensor<f32>").encode(),
    "duplicate-keys": b'{"uops": [], "uops": []}',
    "json-nan": b'{"uops": [NaN, Infinity, -Infinity]}',
    "json-types": b'{"uops": {"a": 1}}',
    "json-functions": b'{"spec_version": 7, "functions": "none", "entry": []}',
    "json-huge-integer": b'{"uops": [{"id": "x", "uop": "INPUT", "arg": {"shape": [' + b"9" * 6000 + b"]}}]}",
    "mind-ids": b"%99999999999999999999 = Input {name=x} : tensor<f32[2]>\noutputs: %99999999999999999999\n",
    "mind-nested": b"%0 = ConstTensor {dtype=f32, shape=(1), value=" + b"[" * 100_000,
    "pto-text": b"module { func.func @f(%a: pto.memref<" + b"1x" * 100_000 + b"f32>) { return } }",
    "rank-of-mind": b"%0 = Input {name=x} : tensor<f32[" + b"1, " * 99 + b"1]>\noutputs: %0\n",
    "rank-of-tiny": b'{"uops": [{"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": ['
    + b"1, " * 99
    + b"1]}}]}",
    "rank-of-pto": b"module { func.func @f(%a: pto.memref<" + b"1x" * 100 + b"f32>) { return } }",
    "long-type-of-stablehlo": f"func.func @f(%x: tensor<{' ' * 5000}f32) {{ stablehlo.return }}\n".encode(),
    "long-blank-of-stablehlo": f"func.func @f(%x: tensor<2xf32{' ' * 5000}?>) {{\n  stablehlo.return\n}}\n".encode(),
    "blanks-of-stablehlo": b"func.func @f(%x: tensor<2\x1cxf32>) -> tensor<2xf32> {\n  %y = stablehlo.add %x, %x\n}\n",
    "long-name-of-mlir": b"%" + b"9" * 150_000 + b" = x\n",
    "blank-lines-of-mlir": b"module" + b"\n" * 65_000 + b"x",
    "blank-lines-of-stablehlo": b"func.func @f(%x: tensor<2xf32>) {\n" + b"\n" * 100_000 + b"  stablehlo.return\n}\n",
    "long-name-in-a-call": FUNC.format("  %y = neg(1" + "a" * 100_000 + ") -> tensor<f32, 2>").encode(),
    "long-blank-of-mind": b"%0 = Input {name=x} : tensor<f32[2]>\n%1 = Neg" + b" " * 100_000 + b"%0 : tensor<f32[2]>\n",
    "long-op-of-pto": b"module {\nfunc.func @f(%a: index) {\n  scf.for"
    + b"a" * 100_000
    + b" %a = %a to %a { }\n  return\n}\n}\n",
    "digits-in-extents": b"module {\n  func.func @f(%x: pto.memref<?x2xf32>, %M: index) attributes { pto.extents = {x = ["
    + b"9" * 6000
    + b", 2]} } {\n    return\n  }\n}\n",
    "calls-of-devices": calls_of_devices(26).encode(),
    "bidi": "func @f(%x\u202e: tensor<f32>) -> tensor<f32> { return %x }".encode(),
}  # fmt: skip


def ends_well(ran: Ran, name: str) -> None:
    """An exit code of the contract other than 70, and something said when it is not 0."""
    assert ran.status in (0, 1, 2, 3), f"{name}: exit status {ran.status}\n{ran.err[-2000:]}"
    assert "Traceback" not in ran.err
    assert ran.status == 0 or ran.err, f"{name}: nothing was said"


ACCEPTED = ("many-elements", "mind-ids", "chain", "blank-lines-of-stablehlo")


@pytest.mark.parametrize("command", ["verify", "fmt", "info"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text(name: str, command: str) -> None:
    start = time.process_time()
    ran = run_ptir(command, "-", stdin=HOSTILE[name])
    ends_well(ran, name)
    assert command != "verify" or (ran.status == 0) == (name in ACCEPTED)
    assert len(ran.err) < 100_000, "the program is not dumped into the diagnostic"
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("form", ["ptir", "ptir-dump", "ptir-json", "pto", "mind", "tiny"])
@pytest.mark.parametrize(
    "name", ["empty", "nul", "binary", "open-parens", "open-braces", "json-types", "mind-nested", "pto-text"]
)
def test_every_reader_survives_the_wrong_text(form: str, name: str) -> None:
    ends_well(run_ptir("verify", "--from", form, "-", stdin=HOSTILE[name]), f"{name} as {form}")


def test_huge_programs_cost_nothing_until_they_run() -> None:
    t = f"tensor<f32, {N18}>"
    text = f"func @f(%x: {t}) -> {t} {{\n  %y = neg(%x) -> {t}\n  return %y\n}}\n"
    for command in (["verify"], ["opt"], ["translate", "--to", "ptir-json"], ["plan"], ["info"]):
        start = time.process_time()
        assert run_ptir(*command, "-", stdin=text.encode()).status == 0, command
        assert time.process_time() - start < 5
    ran = run_ptir("run", "-", "--random", "0", stdin=text.encode())
    assert ran.status == 3 and "--max-memory" in ran.err


def test_a_doubling_chain_is_linear() -> None:
    lines = [f"  %v{i + 1} = add(%v{i}, %v{i}) -> tensor<f32, 2>" for i in range(64)]
    text = "func @f(%v0: tensor<f32, 2>) -> tensor<f32, 2> {\n" + "\n".join(lines) + "\n  return %v64\n}\n"
    for command in (["verify"], ["opt"], ["plan"], ["run", "--input", "v0=1"]):
        start = time.process_time()
        assert run_ptir(*command, "-", stdin=text.encode()).status == 0
        assert time.process_time() - start < 5


CORPUS = sorted(f for f in TESTDATA.rglob("*") if f.suffix in (".ptir", ".ir", ".json", ".pto") and f.stat().st_size < 20_000)
TOKENS = [*b'( ) [ { } % -> -1 0 f32 ?N \0 " , : nan [] inf // 1e999'.split(), b"", b"9" * 30, b"\xff"]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """`data` with a few bytes dropped, doubled or replaced by a token."""
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice([0, 1, 1, 2, 5, 20]))
        data = data[:at] + draw.choice([*TOKENS, data[at:end] * 2]) + data[end:]
    return data


@pytest.mark.parametrize("path", CORPUS, ids=[str(f.relative_to(TESTDATA)) for f in CORPUS])
def test_mutations(path: Path) -> None:
    draw = random.Random(str(path.relative_to(TESTDATA)))
    for i in range(5):
        text = mutated(path.read_bytes(), draw)
        command = draw.choice([["verify"], ["verify"], ["opt"], ["fmt"], ["translate", "--to", "ptir"], ["plan"], ["info"]])
        ends_well(run_ptir(*command, "-", stdin=text), f"{path.name}, mutation {i} ({command[0]}): {text!r}")


@pytest.mark.parametrize("name", [n for n in HOSTILE if n.startswith("rank-") or n == "pto-text"])
def test_a_rank_above_the_limit(name: str) -> None:
    ran = run_ptir("verify", "-", stdin=HOSTILE[name])
    assert ran.status == 3 and "--max-rank" in ran.err, ran.err


@pytest.mark.parametrize("form", ["ptir", "ptir-json", "ptir-dump"])
def test_the_limit_of_ranks_moves(form: str) -> None:
    t = f"tensor<f32, {'x'.join(['1'] * 100)}>"
    text = f"func @f(%x: {t}) -> {t} {{\n  %y = neg(%x) -> {t}\n  return %y\n}}\n"
    made = run_ptir("translate", "--to", form, "--max-rank", "100", "-", stdin=text.encode())
    assert made.status == 0, made.err
    assert run_ptir("verify", "-", "--max-rank", "100", stdin=made.out).status == 0
    assert run_ptir("verify", "-", stdin=made.out).status == 3


@pytest.mark.parametrize("place", ["operand", "result", "attribute"])
def test_a_literal_has_no_more_extents_than_arrays_can(place: str) -> None:
    """Wherever it is: it would become an array."""
    t = f"tensor<f32, {'x'.join(['1'] * 65)}>"
    many = f"dense<2.0> : {t}"
    text = {
        "operand": f"func @f() -> tensor<f32> {{\n  %y = reduce_sum({many}) axes[{', '.join(map(str, range(65)))}]"
        " -> tensor<f32>\n  return %y\n}\n",
        "result": f"func @f() -> {t} {{\n  return {many}\n}}\n",
        "attribute": f"func @f() -> {t} {{\n  %y = constant() value[dense<2.0>] -> {t}\n  return %y\n}}\n",
    }[place]
    for command in (["verify"], ["run", "--random", "0"], ["opt", "--check"], ["translate", "--to", "mind"]):
        ran = run_ptir(*command, "-", stdin=text.encode())
        assert ran.status == 3 and "--max-rank" in ran.err, ran.err


FULL = [
    "hash",
    "translate --to ptir-json",
    "translate --to mind",
    "translate --to tiny",
    "opt",
    "verify",
    "plan",
    "run --random 0",
]


def run_in_little_memory(command: str, text: str) -> Ran:
    """Run a command on a text, in no more than 64 MiB."""
    tracemalloc.start()
    try:
        ran = run_ptir(*command.split(), "-", stdin=text.encode())
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    return ran


@pytest.mark.parametrize("command", FULL)
def test_one_number_for_a_million_millions_of_elements_costs_nothing(command: str) -> None:
    """Where all of them would have to be written or computed with, that is refused before there is memory for them."""
    text = (
        "func @f() -> tensor<f32> {\n"
        "  %y = reduce_sum(dense<1.0> : tensor<f32, 1000000000000>) axes[0] -> tensor<f32>\n  return %y\n}\n"
    )
    ran = run_in_little_memory(command, text)
    refused = {"hash": 3, "translate --to ptir-json": 3, "run --random 0": 3, "translate --to mind": 1, "translate --to tiny": 1}
    assert ran.status == refused.get(command, 0), ran.err
    if command.startswith(("hash", "translate --to ptir-json")):
        assert "a constant of 4000000000000 bytes" in ran.err


@pytest.mark.parametrize("to", ["ptir-json", "ptir-dump"])
def test_what_a_constant_takes_as_text_is_bounded_before_it_is_written(to: str) -> None:
    """Below the limit in bytes, and far above it with a number for each of them."""
    t = "tensor<f32, 268435455>"
    text = f"func @f(%x: {t}) -> {t} {{\n  %y = add(%x, dense<1.0> : {t}) -> {t}\n  return %y\n}}\n"
    ran = run_in_little_memory(f"translate --to {to}", text)
    assert ran.status == {"ptir-json": 3}.get(to, 0), ran.err
    if ran.status:
        assert "a constant of 1073741820 bytes takes " in ran.err


RUN = "run --input x=[1.0,2.0,3.0,4.0]"


@pytest.mark.parametrize(("command", "status"), [
    (f"{RUN} --engine reference", 0), (f"{RUN} --engine numpy", 0), (RUN, 0), ("opt", 0),
    ("translate --to tiny", 0), ("translate --to mind", 1), ("translate --to pto", 1),
])  # fmt: skip
def test_a_window_of_a_thousand_millions_costs_what_it_sees(command: str, status: int) -> None:
    """Three windows that see all four elements, among padding."""
    text = (
        "func @f(%x: tensor<f32, 4>) -> tensor<f32, 3> {\n"
        "  %y = reduce_window(%x) window_dims[1000000000] strides[1] padding[[500000000, 499999998]] base_dilation[1] "
        "window_dilation[1] -> tensor<f32, 3>\n  return %y\n}\n"
    )
    ran = run_in_little_memory(command, text)
    assert ran.status == status, ran.err
    if "run" in command:
        assert b"[10. 10. 10.]" in ran.out


@pytest.mark.parametrize("shape", ["9223372036854775807x2", "4611686018427387904x2", "9223372036854775807x0"])
def test_extents_that_no_memory_holds(shape: str) -> None:
    t = f"tensor<f32, {shape}>"
    text = f"func @f(%x: {t}) -> {t} {{\n  %y = neg(%x) -> {t}\n  %z = neg(%y) -> {t}\n  return %z\n}}\n"
    ways = ("opt --check", "translate --to tiny --check", "run --random 0", "run --input x=1")
    for command in map(str.split, ways):
        ran = run_ptir(*command, "-", stdin=text.encode())
        assert ran.status == 3, ran.err


def test_an_empty_intermediate_that_no_array_can_have() -> None:
    wide = "tensor<f32, 0x9223372036854775807>"
    op = f"reshape(%x) new_shape[0, 9223372036854775807] -> {wide}"
    text = f"func @f(%x: tensor<f32, 0>) -> {wide} {{\n  %y = {op}\n  return %y\n}}\n"
    ran = run_ptir("run", "-", "--random", "0", stdin=text.encode())
    assert ran.status == 3, ran.err


NO_PROGRAMS = {
    "testdata/plan/data/intervals.csv": ("plan", "--from", "csv", "-"),
    "testdata/plan/data/overlap.json": ("plan", "testdata/plan/softmax.ptir", "--check-plan", "-"),
    "testdata/lit/cse.lit": ("lit", "-"),
}


@pytest.mark.parametrize("path", NO_PROGRAMS)
def test_mutations_of_what_is_no_program(path: str) -> None:
    draw = random.Random(path)
    for i in range(40):
        text = mutated(Path(path).read_bytes(), draw)
        ends_well(run_ptir(*NO_PROGRAMS[path], stdin=text), f"{path}, mutation {i}: {text!r}")


@pytest.mark.parametrize("path", [f for f in CORPUS if "ptir/dump" in str(f)], ids=lambda f: f.name)
def test_mutations_are_hashed_or_refused(path: Path) -> None:
    draw = random.Random(path.name)
    for i in range(5):
        text = mutated(path.read_bytes(), draw)
        ends_well(run_ptir("hash", "-", stdin=text), f"{path.name}, mutation {i}: {text!r}")


def test_a_decimal_beyond_float64_in_a_dump() -> None:
    text = (TESTDATA / "ptir" / "dump" / "d01_softmax_last_dim.dump.ptir").read_text("utf-8")
    op = 'CustomCall(CustomCallSpec { target: "a.b.v1", attrs: {"e": F64(1e999)} })'
    ran = run_ptir("verify", "-", stdin=re.sub(r"ElementwiseUnary\(\w+\)", op, text, count=1).encode())
    assert ran.status == 1 and "beyond f64" in ran.err, ran.err


@pytest.mark.parametrize("form", ["mlir", "mind-json"])
def test_what_is_only_written_is_verified_first(form: str) -> None:
    text = b"%0 = Input {name=x} : tensor<f32[2]>\n%1 = Sum (%0) {axes=[7], keepdims=false}\noutputs: %1\n"
    ran = run_ptir("translate", "--to", form, "-", stdin=text)
    assert ran.status == 1 and "E3004" in ran.err, ran.err


@pytest.mark.parametrize("path", EVERY_FORMAT)
@pytest.mark.parametrize("limit", ["ops", "operands", "name-length", "elements", "rank", "file-bytes"])
def test_limits_hold_in_every_format(path: str, limit: str) -> None:
    ran = run_ptir("verify", path, f"--max-{limit}", "0")
    assert ran.status == 3 and f"--max-{limit}" in ran.err, ran.err


def test_more_elements_than_can_be_counted() -> None:
    t = f"tensor<f32, {2**31}x{2**31}x2>"
    text = f"func @f(%x: {t}) -> {t} {{\n  return %x\n}}\n".encode()
    assert run_ptir("verify", stdin=text).status == 3
    assert run_ptir("verify", stdin=text.replace(b"x2>", b"x1>")).status == 0
    assert run_ptir("verify", stdin=text.replace(b"x2>", b"x0>")).status == 0
    assert run_ptir("verify", "--max-elements", str(2**63), stdin=text).status == 2  # no option allows more


@pytest.mark.parametrize("depth", [200, 300, 3000])
@pytest.mark.parametrize("limit", [(), ("--max-nesting", "100000")])
def test_types_nested_deeply(depth: int, limit: tuple[str, ...]) -> None:
    t = "(" * depth + "tensor<f32>" + ")" * depth
    text = f"func @f(%x: {t}, %y: tensor<f32>) -> tensor<f32> {{\n  return %y\n}}\n"
    ran = run_ptir("verify", "--from", "ptir", *limit, "-", stdin=text.encode())
    assert ran.status in ((0, 3) if limit else (0,) if depth == 200 else (3,)), ran.err
    assert ran.status == 0 or "nest" in ran.err


DIGITS = b"9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        b"module {\n  func.func @f(%a: pto.memref<" + DIGITS + b"xf32>) {\n    return\n  }\n}\n",
        b"module {\n  func.func @f(%a: tile<" + DIGITS + b"x2xf32>) {\n    return\n  }\n}\n",
        b"module {\n  func.func @f() {\n    %c = pto.constant " + DIGITS + b" : index\n    return\n  }\n}\n",
        (TESTDATA / "ptir/dump/d01_softmax_last_dim.dump.ptir").read_bytes().replace(b"[-1]", b"[" + DIGITS + b"]", 1)
        .replace(b"axes: [1]", b"axes: [" + DIGITS + b"]", 1).replace(b"Static(64)", b"Static(" + DIGITS + b")", 1),
    ],
    ids=["memref", "tile", "constant", "dump"],
)  # fmt: skip
def test_numbers_that_are_too_long(text: bytes) -> None:
    assert DIGITS in text
    ran = run_ptir("verify", "-", stdin=text)
    assert ran.status == 3 and "error[LimitExceeded]: an integer of 5000 digits" in ran.err, ran.err
