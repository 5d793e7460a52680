"""The assembler's text: buffers that ops write into become tiles that are values, with the numbers that the text means."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Options, Program
from ptir_tools.dialects.pto import generate
from ptir_tools.dialects.pto.ptoas.writer import write
from ptir_tools.dialects.pto.targets import retarget
from ptir_tools.dialects.pto.text.cpp import write as cpp_of
from ptir_tools.dialects.pto.types import EventType
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.tools.inputs import Inputs
from tests.pto.by_hand import CASES, agree, source
from tests.pto.programs import SAMPLES, good, module

N = 8  # rows and columns of the tiles here
ORDERS = {"vec": ("row_major", "none_box"), "column": ("col_major", "none_box"), "mat": ("col_major", "row_major"),
          "left": ("row_major", "row_major"), "right": ("row_major", "col_major"), "acc": ("col_major", "row_major")}  # fmt: skip


def buffer(loc: str = "vec", rows: int = N, cols: int = N, dtype: str = "f32", valid: str = "", order: str = "") -> str:
    """The type of a buffer."""
    outer, inner = ORDERS[order or loc]
    v_row, v_col = valid.split() if valid else (rows, cols)
    return (
        f"!pto.tile_buf<loc={loc}, dtype={dtype}, rows={rows}, cols={cols}, v_row={v_row}, v_col={v_col}, "
        f"blayout={outer}, slayout={inner}, fractal=512, pad=0>"
    )


B = buffer()


def shaped(memory: dict[str, tuple[int, int]], body: str, more: str = "", target: str = "a3") -> str:
    """A kernel on pointers to f32, each seen whole as `%NAME.v`; `%NAME.w` is its first tile."""
    params = ", ".join([*(f"%{name}: !pto.ptr<f32>" for name in memory), *([more] if more else [])])
    sizes = sorted({0, 1, N, *(n for shape in memory.values() for n in shape)})
    lines = [f"    %c{n} = arith.constant {n} : index" for n in sizes]
    for name, (rows, cols) in memory.items():
        lines.append(
            f"    %{name}.v = pto.make_tensor_view %{name}, shape = [%c{rows}, %c{cols}], strides = [%c{cols}, %c1]"
            " : !pto.tensor_view<?x?xf32>"
        )
        lines.append(f"    %{name}.w = {window(f'%{name}.v', '%c0', '%c0', N, N)}")
    head = f'module attributes {{pto.target_arch = "{target}"}} {{\n  func.func @kernel({params}) {{\n'
    return head + "\n".join([*lines, body.strip("\n"), "    return", "  }", "}", ""])


def window(view: str, row: str, column: str, rows: int, cols: int) -> str:
    """A part of a view."""
    part = f"!pto.partition_tensor_view<{rows}x{cols}xf32>"
    where = f"offsets = [{row}, {column}], sizes = [%c{rows}, %c{cols}]"
    return f"pto.partition_view {view}, {where} : !pto.tensor_view<?x?xf32> -> {part}"


W = f"!pto.partition_tensor_view<{N}x{N}xf32>"


def load(to: str, source: str = "%x.w", t: str = B) -> str:
    return f"pto.tload ins({source} : {W}) outs({to} : {t})"


def store(of: str, target: str = "%out.w", t: str = B) -> str:
    return f"pto.tstore ins({of} : {t}) outs({target} : {W})"


def run(text: str, **inputs: object) -> dict[str, np.ndarray]:
    """The memory after a run. What is not given is zero."""
    program = ptir.read(text)
    params = {p.name: p.type for p in program.functions[0].params}
    given = {name: np.asarray(x) for name, x in inputs.items()}
    given |= {name: np.zeros(t.shape, np.float32) for name, t in params.items() if name not in given}
    return ptir.run(program, given)


X = np.arange(N * N, dtype=np.float32).reshape(N, N) / 7 - 3


def test_a_buffer_that_is_written_in_a_loop_is_carried() -> None:
    body = f"""
    %t = pto.alloc_tile : {B}
    %sum = pto.alloc_tile : {B}
    %zero = arith.constant 0.0 : f32
    pto.texpands ins(%zero : f32) outs(%sum : {B})
    scf.for %i = %c0 to %n step %c8 {{
      %part = {window("%x.v", "%i", "%c0", N, N)}
      {load("%t", "%part")}
      pto.tmuls ins(%t, %scale : {B}, f32) outs(%t : {B})
      pto.tadd ins(%sum, %t : {B}, {B}) outs(%sum : {B})
    }}
    {store("%sum")}"""
    text = shaped({"x": (32, N), "out": (N, N)}, body, "%scale: f32, %n: index")
    x = np.random.default_rng(0).standard_normal((32, N)).astype(np.float32)
    for n in (0, 8, 32):
        made = run(text, x=x, scale=np.float32(2), n=np.asarray(n))["out"]
        assert np.allclose(made, 2 * x[:n].reshape(-1, N, N).sum(0), atol=1e-5)


def test_branches_give_the_buffers_that_they_write() -> None:
    body = f"""
    %t = pto.alloc_tile : {B}
    %one = arith.constant 1.0 : f32
    {load("%t")}
    scf.if %flag {{
      pto.tadds ins(%t, %one : {B}, f32) outs(%t : {B})
    }}
    {store("%t")}"""
    text = shaped({"x": (N, N), "out": (N, N)}, body, "%flag: i1")
    for flag in (False, True):
        assert np.array_equal(run(text, x=X, flag=np.asarray(flag))["out"], X + flag)


def test_buffers_at_one_address_are_the_same_bytes() -> None:
    body = f"""
    %at = arith.constant 256 : i64
    %a = pto.alloc_tile addr = %at : {B}
    {load("%a")}
    %b = pto.alloc_tile addr = %at : {B}
    %two = arith.constant 2.0 : f32
    pto.tmuls ins(%b, %two : {B}, f32) outs(%b : {B})
    {store("%a")}"""
    assert np.array_equal(run(shaped({"x": (N, N), "out": (N, N)}, body), x=X)["out"], 2 * X)


def test_a_column_is_read_as_a_row_of_the_same_bytes() -> None:
    column, row = buffer(cols=1, order="column"), buffer(rows=1, cols=N)
    body = f"""
    %at = arith.constant 1024 : i64
    %t = pto.alloc_tile : {B}
    %tmp = pto.alloc_tile : {B}
    {load("%t")}
    %sums = pto.alloc_tile addr = %at : {column}
    pto.trowsum ins(%t, %tmp : {B}, {B}) outs(%sums : {column})
    %flat = pto.alloc_tile addr = %at : {row}
    pto.tabs ins(%flat : {row}) outs(%flat : {row})
    pto.trowexpandsub ins(%t, %sums : {B}, {column}) outs(%t : {B})
    {store("%t")}"""
    made = run(shaped({"x": (N, N), "out": (N, N)}, body), x=X)["out"]
    assert np.allclose(made, X - np.abs(X.sum(1, keepdims=True)), atol=1e-4)


def test_a_product_accumulates_over_parts_of_k() -> None:
    mat, left, right, acc = (buffer(x, 16, 16) for x in ("mat", "left", "right", "acc"))
    whole = "!pto.partition_tensor_view<16x16xf32>"
    body = f"""
    %am = pto.alloc_tile : {mat}
    %bm = pto.alloc_tile : {mat}
    %l = pto.alloc_tile : {left}
    %r = pto.alloc_tile : {right}
    %c = pto.alloc_tile : {acc}
    scf.for %k = %c0 to %c64 step %c16 {{
      %ap = {window("%a.v", "%c0", "%k", 16, 16)}
      %bp = {window("%b.v", "%k", "%c0", 16, 16)}
      pto.tload ins(%ap : {whole}) outs(%am : {mat})
      pto.tload ins(%bp : {whole}) outs(%bm : {mat})
      pto.tmov ins(%am : {mat}) outs(%l : {left})
      pto.tmov ins(%bm : {mat}) outs(%r : {right})
      %first = arith.cmpi eq, %k, %c0 : index
      scf.if %first {{
        pto.tmatmul ins(%l, %r : {left}, {right}) outs(%c : {acc})
      }} else {{
        pto.tmatmul.acc ins(%c, %l, %r : {acc}, {left}, {right}) outs(%c : {acc})
      }}
    }}
    %o = {window("%out.v", "%c0", "%c0", 16, 16)}
    pto.tstore ins(%c : {acc}) outs(%o : {whole})"""
    text = shaped({"a": (16, 64), "b": (64, 16), "out": (16, 16)}, body)
    a, b = (np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate([(16, 64), (64, 16)]))
    assert np.allclose(run(text, a=a, b=b)["out"], a @ b, atol=1e-4)


def test_valid_extents_may_be_given_at_run_time_and_change() -> None:
    t = buffer(valid="? ?")
    body = f"""
    %rows = arith.index_cast %given : i32 to index
    %c4 = arith.constant 4 : index
    %t = pto.alloc_tile valid_row = %rows valid_col = %c4 : {t}
    %p = pto.partition_view %x.v, offsets = [%c0, %c0], sizes = [%rows, %c4]
      : !pto.tensor_view<?x?xf32> -> !pto.partition_tensor_view<?x?xf32>
    pto.tload ins(%p : !pto.partition_tensor_view<?x?xf32>) outs(%t : {t})
    pto.tneg ins(%t : {t}) outs(%t : {t})
    pto.set_validshape %t, %c1, %c4 : {t}
    %q = pto.partition_view %out.v, offsets = [%c0, %c0], sizes = [%c1, %c4]
      : !pto.tensor_view<?x?xf32> -> !pto.partition_tensor_view<1x4xf32>
    pto.tstore ins(%t : {t}) outs(%q : !pto.partition_tensor_view<1x4xf32>)"""
    made = run(shaped({"x": (N, N), "out": (N, N)}, body, "%given: i32"), x=X, given=np.int32(3))["out"]
    expected = np.zeros((N, N), np.float32)
    expected[0, :4] = -X[0, :4]
    assert np.array_equal(made, expected)


def test_a_while_loop_carries_its_buffers() -> None:
    body = f"""
    %t = pto.alloc_tile : {B}
    %one = arith.constant 1.0 : f32
    {load("%t")}
    %end:1 = scf.while (%i = %c0) : (index) -> (index) {{
      %more = arith.cmpi slt, %i, %n : index
      scf.condition(%more) %i : index
    }} do {{
    ^bb0(%j: index):
      pto.tadds ins(%t, %one : {B}, f32) outs(%t : {B})
      %next = arith.addi %j, %c1 : index
      scf.yield %next : index
    }}
    {store("%t")}"""
    text = shaped({"x": (N, N), "out": (N, N)}, body, "%n: index")
    for n in (0, 3):
        assert np.allclose(run(text, x=X, n=np.asarray(n))["out"], X + n)


def test_the_number_of_the_core_is_a_parameter() -> None:
    body = f"""
    %id = pto.get_block_idx
    %row = arith.index_cast %id : i64 to index
    %t = pto.alloc_tile : {B}
    pto.section.vector {{
      %p = {window("%x.v", "%row", "%c0", N, N)}
      {load("%t", "%p")}
      {store("%t")}
    }}"""
    x = np.random.default_rng(1).standard_normal((16, N)).astype(np.float32)
    made = run(shaped({"x": (16, N), "out": (N, N)}, body), x=x, block_idx=np.asarray(8))["out"]
    assert np.array_equal(made, x[8:16])


def test_flags_are_left_out() -> None:
    body = f"""
    %t = pto.alloc_tile : {B}
    {load("%t")}
    pto.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    pto.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]
    {store("%t")}"""
    program = ptir.read(shaped({"x": (N, N), "out": (N, N)}, body))
    assert [op.name for op in program.functions[0].ops() if op.name.startswith("pto.tile")] == ["pto.tile.load", "pto.tile.store"]


def test_what_is_read_before_it_is_written_is_undefined() -> None:
    text = shaped({"out": (N, N)}, f"\n    %t = pto.alloc_tile : {B}\n    {store('%t')}")
    with pytest.raises(Rejected, match="which is not defined"):
        run(text)


def test_bytes_of_a_tile_that_is_still_used_are_not_written() -> None:
    body = f"""
    %c0_i64 = arith.constant 0 : i64
    %c128_i64 = arith.constant 128 : i64
    %a = pto.alloc_tile addr = %c0_i64 : {B}
    %b = pto.alloc_tile addr = %c128_i64 : {B}
    {load("%a")}
    {load("%b")}
    pto.tadd ins(%a, %b : {B}, {B}) outs(%b : {B})
    {store("%b")}"""
    with pytest.raises(Rejected, match="its memory was overwritten"):
        ptir.verify(ptir.read(shaped({"x": (N, N), "out": (N, N)}, body)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"%t = pto.alloc_tile : {B}\n    pto.tpush_to_aiv(%t : {B}) {{split = 0}}", "initializes no pipe before"),
        (f"%t = pto.alloc_tile : {B}\n    pto.tscatter ins(%t, %t : {B}, {B}) outs(%t : {B})", "scatters by flat indices"),
        (f"%t = pto.alloc_tile : {B}\n    pto.tad ins(%t, %t : {B}, {B}) outs(%t : {B})", "`pto.tad` is not an op"),
        (f"%t = pto.alloc_tile : {B}\n    pto.tabs ins(%q : {B}) outs(%t : {B})", "%q is not defined"),
        ("%w = pto.make_tensor_view %x, shape = [%c1, %c8], strides = [%c8, %c1] : !pto.tensor_view<?x?xf32>", "two shapes"),
        (f"%t = pto.alloc_tile : {B.replace('vec', 'vex')}", "`vex` is no location"),
        (f"%t = pto.alloc_tile : {B.replace('f32', 'f31')}", "`f31` is no element type"),
        (f"%t = pto.alloc_tile : {buffer(valid='9 8')}", "v_row is 9 of 8"),
        (f"%t = pto.alloc_tile : {buffer('acc')}\n    %u = pto.alloc_tile : {buffer('left')}\n"
         f"    pto.tmov ins(%t : {buffer('acc')}) outs(%u : {buffer('left')})", "no move from Acc to Left"),
        (f"%t = pto.alloc_tile : {B}\n    {load('%t', '%t')}", "expected a view of memory"),
        ("pto.tadd ins(%x, ", "found"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(body: str, message: str) -> None:
    with pytest.raises(Rejected, match=re.escape(message)):
        ptir.read(shaped({"x": (N, N), "out": (N, N)}, f"    {body}"))


class Writer:
    """A random kernel on four buffers as text, and what it computes: Python on a list of arrays."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def block(self, depth: int, counters: list[str]) -> tuple[list[str], list[str]]:
        """Lines of text and of Python."""
        text, python = [], []
        for _ in range(self.random.randint(1, 4)):
            made = self.random.choice((self.op, self.op, self.op, self.loop, self.branch) if depth < 3 else (self.op,))
            lines, code = made(depth, counters)
            text += lines
            python += code
        return text, python

    def op(self, depth: int, counters: list[str]) -> tuple[list[str], list[str]]:
        a, b, c = (self.random.randrange(4) for _ in range(3))
        kind = self.random.choice(("add", "max", "muls", "load", "expands"))
        if kind == "load":
            return [load(f"%b{c}")], [f"b[{c}] = x.copy()"]
        if kind == "expands":
            return [f"pto.texpands ins(%half : f32) outs(%b{c} : {B})"], [f"b[{c}] = np.full_like(x, 0.5)"]
        if kind == "muls":
            return [f"pto.tmuls ins(%b{a}, %half : {B}, f32) outs(%b{c} : {B})"], [f"b[{c}] = b[{a}] * half"]
        python = f"b[{a}] + b[{b}]" if kind == "add" else f"np.maximum(b[{a}], b[{b}])"
        return [f"pto.t{kind} ins(%b{a}, %b{b} : {B}, {B}) outs(%b{c} : {B})"], [f"b[{c}] = {python}"]

    def loop(self, depth: int, counters: list[str]) -> tuple[list[str], list[str]]:
        self.names += 1
        name, count = f"i{self.names}", self.random.choice(("0", "1", "n", "3"))
        text, python = self.block(depth + 1, [*counters, name])
        end = "%n" if count == "n" else f"%d{count}"
        return [f"scf.for %{name} = %c0 to {end} step %c1 {{", *text, "}"], [f"for {name} in range({count}):", *_indented(python)]

    def branch(self, depth: int, counters: list[str]) -> tuple[list[str], list[str]]:
        self.names += 1
        name, of = f"f{self.names}", self.random.choice([*counters, "n"])
        then, code = self.block(depth + 1, counters)
        text = [f"%{name} = arith.cmpi slt, %{of}, %c1 : index", f"scf.if %{name} {{", *then]
        python = [f"if {of} < 1:", *_indented(code)]
        if self.random.random() < 0.5:
            other, code = self.block(depth + 1, counters)
            text += ["} else {", *other]
            python += ["else:", *_indented(code)]
        return [*text, "}"], python


def _indented(lines: list[str]) -> list[str]:
    return [f"    {x}" for x in lines]


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels_compute_what_their_buffers_hold(seed: int) -> None:
    writer = Writer(seed)
    lines, python = writer.block(0, [])
    at = "" if seed % 2 else "addr = %a{} "
    head = ["%half = arith.constant 0.5 : f32", *(f"%d{n} = arith.constant {n} : index" for n in (0, 1, 3))]
    for k in range(4):
        head += [f"%a{k} = arith.constant {k * 256} : i64", f"%b{k} = pto.alloc_tile {at.format(k)}: {B}", load(f"%b{k}")]
    outs = [f"%o{k} = {window('%out.v', f'%r{k}', '%c0', N, N)}\n{store(f'%b{k}', f'%o{k}')}" for k in range(4)]
    rows = [f"%r{k} = arith.constant {k * N} : index" for k in range(4)]
    text = shaped({"x": (N, N), "out": (4 * N, N)}, "\n".join([*head, *lines, *rows, *outs]), "%n: index")
    for n in (0, 2):
        b = [X.copy() for _ in range(4)]
        exec("\n".join(python), {"np": np, "x": X, "half": np.float32(0.5), "n": n, "b": b})
        with np.errstate(over="ignore"):
            made = run(text, x=X, n=np.asarray(n))["out"]
        assert np.array_equal(made, np.concatenate(b), equal_nan=True), text
    ptir.verify(ptir.read(text))


# Writing: what is written is read again, and computes the same


def written(program: Program, version: str = "") -> tuple[str, list[str]]:
    """The assembler's text of a program, and why there is none."""
    found = Diagnostics(program.source)
    return "".join(write(program, found, Options(dialect_version=version))), [d.message for d in found]


def bound(program: Program, target: str, passes: str = "pto") -> Program:
    retarget(program, target)
    run_pipeline(program, passes, PassContext(diagnostics=Diagnostics()))
    return program


@pytest.mark.parametrize("target", ["a3", "a5"])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"topk"}))
def test_kernels_that_are_written_compute_what_numpy_does(name: str, target: str) -> None:
    case = CASES[name]()
    text, problems = written(bound(good(source(name)), target))
    assert not problems and f'pto.target_arch = "{target}"' in text
    program = ptir.read(text)
    names = [p.name for p in program.functions[0].params if p.name in case.inputs]
    given = {name: np.array(case.inputs[name]) for name in names}
    if name == "while_ring":  # the extents that its memory does not state
        given |= {f"{x}_0": np.int64(case.inputs[x].shape[0]) for x in "xy"}
    agree(case, ptir.run(program, given))
    assert fixed(program)


def fixed(program: Program) -> bool:
    """Whether what is written is read and written as the same text, without the names of its values."""
    run_pipeline(program, "pto-canonicalize", PassContext(diagnostics=Diagnostics()))
    again, _ = written(program)
    last = ptir.read(again)
    run_pipeline(last, "pto-canonicalize", PassContext(diagnostics=Diagnostics()))
    nameless = [re.sub(r"%[\w$.-]+", "%", x) for x in (written(last)[0], again)]
    return bool(again) and nameless[0] == nameless[1]


def test_flags_are_those_of_the_events() -> None:
    program = bound(good((SAMPLES / "12_elementwise_chain.pto").read_text()), "a3")
    flags = re.findall(r"pto\.(set_flag|wait_flag)\[<(\w+)>, <(\w+)>, <EVENT_ID(\d)>\]", written(program)[0])
    cpp = re.findall(r"(set_flag|wait_flag)\((\w+), (\w+), EVENT_ID(\d)\)", "".join(cpp_of(program, Diagnostics(), Options())))
    assert flags == cpp and len(flags) >= 4
    plain = bound(good((SAMPLES / "12_elementwise_chain.pto").read_text()), "a3", "pto-bufferize")
    for op in plain.main.ops():
        assert not any(isinstance(v.type, EventType) for v in op.results)
    assert "flag" not in written(plain)[0] and "barrier" not in written(plain)[0]


@pytest.mark.parametrize("seed", range(12))
def test_random_kernels_are_written(seed: int) -> None:
    """Random loops and branches, at addresses: the text computes what the program does."""
    program = bound(generate.loops(Seeded(seed)), "a3", "pto-bufferize")
    text, problems = written(program)
    if problems:
        assert all("valid region" in why or "no address" in why or "two addresses" in why for why in problems), problems
        return
    arrays = {k: np.asarray(v) for k, v in Inputs((), (), seed).arrays(program).items()}
    read = ptir.read(text, "ptoas")
    given = dict(zip([p.name for p in read.functions[0].params], [x.copy() for x in arrays.values()], strict=True))
    expected, made = ptir.run(program, {k: v.copy() for k, v in arrays.items()}), ptir.run(read, given)
    for name in expected:
        np.testing.assert_array_equal(made[name], expected[name])


M = "pto.memref<64x32xf32>"
VEC = "tile<32x32xf32, #pto.tile_info<loc=Vec>>"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([f"%u = pto.tile.pow %t, %t : {VEC}", f"pto.tile.assign %u, %b : {VEC}, index"], "tile.pow has no form"),
        ([f"%u = pto.tile.exp %t : {VEC}"], "%u has no address"),
        ([f"%u = pto.tile.reshape %t : {VEC} -> tile<64x16xf32>", "pto.tile.assign %u, %b : tile<64x16xf32>, index"],
         "reshape moves nothing"),
        ([f"%r = scf.for %i = %a to %n step %n iter_args(%q = %t) -> ({VEC}) {{",
          f"  %v = pto.tile.exp %q {{valid = [%n, 32]}} : {VEC}", f"  pto.tile.assign %v, %a : {VEC}, index",
          f"  scf.yield %v : {VEC}", "}"], "its valid region is not always the same"),
        ([f"%s = pto.memref.subview %x [0, 0] [16, 16] [2, 2] : {M} to pto.memref<16x16xf32, strided<[64, 2]>>",
          "%u = pto.tile.load %s[%a, %a] : pto.memref<16x16xf32, strided<[64, 2]>>, tile<16x16xf32>",
          "pto.tile.assign %u, %b : tile<16x16xf32>, index"], "a view with steps"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_says_why(lines: list[str], message: str) -> None:
    head = [
        "%a = pto.constant 0 : index",
        "%b = pto.constant 8192 : index",
        f"%t = pto.tile.load %x[%a, %a] : {M}, {VEC}",
        f"pto.tile.assign %t, %a : {VEC}, index",
    ]
    program = good(module(f"%x: {M}, %n: index", *head, *lines, target="a3"), Options(hazards=False))
    text, problems = written(program)
    assert not text and any(message in why for why in problems), problems


OLD_FORMS = {
    "pto.tmul ins(%t : T, %t : T)": f"%u = pto.tile.mul %t, %t : {VEC}",
    "pto.tcmp ins(%t, %t {cmpMode = #pto<cmp less_than>} : T, T)": "%u = pto.tile.cmp %t, %t {cmpMode = #pto.cmp<LT>} : "
    f"{VEC} -> tile<32x32xi8>",
    "pto.trowmax ins(%t : T)": f"%u = pto.tile.rowmax %t : {VEC} -> tile<32x1xf32>",
    "pto.texp ins(%t : T)": f"%u = pto.tile.exp %t : {VEC}",
}


@pytest.mark.parametrize("wanted", OLD_FORMS)
def test_the_dialect_of_the_first_wheels(wanted: str) -> None:
    """Its memory, buffers and operands as the sources of January 2026 spell them."""
    head = [f"%t = pto.tile.load %x[0, 0] : {M}, {VEC}", OLD_FORMS[wanted]]
    program = bound(good(module(f"%x: {M}", *head, target="a3")), "a3", "pto-infer-tile-info,pto-bufferize")
    text, problems = written(program, "0.1")
    assert not problems and wanted in re.sub(r"!pto\.tile_buf<[^>]*>", "T", text)
    assert "shape = [%c64, %c32] strides = [%c32, %c1] : !pto.tensor_view<2xf32>" in text
    assert "pto.subview %x_view" in text and "!pto.tile_view<32x32xf32>" in text and "alloc_tile : <loc=ub" in text


def test_a_window_of_several_matrices_fills_the_rows_of_a_tile() -> None:
    part = "!pto.partition_tensor_view<2x4x8xf32>"
    views = [
        f"%{x}.b = pto.make_tensor_view %{x}, shape = [%c3, %c4, %c8], strides = [%c64, %c8, %c1] : !pto.tensor_view<?x?x?xf32>\n"
        f"%{x}.p = pto.partition_view %{x}.b, offsets = [%c1, %c0, %c0], sizes = [%c2, %c4, %c8]"
        f" : !pto.tensor_view<?x?x?xf32> -> {part}"
        for x in ("x", "out")
    ]
    body = "\n".join([
        *(f"%c{n} = arith.constant {n} : index" for n in (0, 1, 2, 3, 4, 8, 64)), *views, f"%t = pto.alloc_tile : {B}",
        f"pto.tload ins(%x.p : {part}) outs(%t : {B})", f"pto.tabs ins(%t : {B}) outs(%t : {B})",
        f"pto.tstore ins(%t : {B}) outs(%out.p : {part})",
    ])  # fmt: skip
    text = f"module {{\n func.func @k(%x: !pto.ptr<f32>, %out: !pto.ptr<f32>) {{\n{body}\nreturn\n }}\n}}"
    program = ptir.read(text)
    x = np.random.default_rng(3).standard_normal((3, 4, 8)).astype(np.float32)
    made = ptir.run(program, {"x": x, "out": np.zeros_like(x)})["out"]
    assert np.array_equal(made[1:], np.abs(x[1:])) and not made[0].any()


def test_a_selection_by_a_mask_from_a_scalar() -> None:
    mask, wide = buffer(cols=32, dtype="i8"), buffer(cols=32)
    part = "!pto.partition_tensor_view<8x32xf32>"
    body = f"""
    %c32 = arith.constant 32 : index
    %two = arith.constant 2.0 : f32
    %m = pto.alloc_tile : {mask}
    %t = pto.alloc_tile : {wide}
    %p = {window("%x.v", "%c0", "%c0", N, 32)}
    %o = {window("%out.v", "%c0", "%c0", N, 32)}
    pto.tload ins(%p : {part}) outs(%t : {wide})
    pto.tcmps ins(%t, %two {{cmpMode = #pto<cmp lt>}} : {wide}, f32) outs(%m : {mask})
    pto.tsels ins(%m, %t, %t, %two : {mask}, {wide}, {wide}, f32) outs(%t : {wide})
    pto.tstore ins(%t : {wide}) outs(%o : {part})"""
    x = np.arange(N * 32, dtype=np.float32).reshape(N, 32) / 9
    text = shaped({"x": (N, 32), "out": (N, 32)}, body.replace("    %c32 = arith.constant 32 : index\n", ""))
    assert np.array_equal(run(text, x=x)["out"], np.where(x < 2, x, 2))


def kernel_of_views(views: dict[str, tuple[str, int, int]], body: str) -> str:
    """A kernel on pointers to elements of several types, each loaded whole into `%NAME.t`; the last one is stored."""
    lines = list[str]()
    *_, last = views
    for name, (dtype, rows, cols) in views.items():
        part, kind = f"!pto.partition_tensor_view<{rows}x{cols}x{dtype}>", buffer("vec", rows, cols, dtype)
        lines += [
            f"%{name}.v = pto.make_tensor_view %{name}, shape = [%c{rows}, %c{cols}], strides = [%c{cols}, %c1]"
            f" : !pto.tensor_view<?x?x{dtype}>",
            f"%{name}.p = pto.partition_view %{name}.v, offsets = [%c0, %c0], sizes = [%c{rows}, %c{cols}]"
            f" : !pto.tensor_view<?x?x{dtype}> -> {part}",
            f"%{name}.t = pto.alloc_tile : {kind}",
        ]
        if name != last:
            lines.append(f"pto.tload ins(%{name}.p : {part}) outs(%{name}.t : {kind})")
    dtype, rows, cols = views[last]
    part, kind = f"!pto.partition_tensor_view<{rows}x{cols}x{dtype}>", buffer("vec", rows, cols, dtype)
    lines += [body, f"pto.tstore ins(%{last}.t : {kind}) outs(%{last}.p : {part})", "return"]
    sizes = sorted({0, 1, *(n for _, *shape in views.values() for n in shape)})
    lines = [f"%c{n} = arith.constant {n} : index" for n in sizes] + lines
    params = ", ".join(f"%{name}: !pto.ptr<{dtype}>" for name, (dtype, *_) in views.items())
    return f"module {{\n  func.func @kernel({params}) {{\n" + "\n".join(lines) + "\n  }\n}\n"


def test_integers_are_dequantized_by_the_first_columns() -> None:
    views = {"x": ("i8", 4, 32), "s": ("f32", 4, 8), "z": ("f32", 4, 8), "out": ("f32", 4, 32)}
    x8, f8, f32 = buffer("vec", 4, 32, "i8"), buffer("vec", 4, 8), buffer("vec", 4, 32)
    body = f"pto.tdequant ins(%x.t, %s.t, %z.t : {x8}, {f8}, {f8}) outs(%out.t : {f32})"
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (4, 32)).astype(np.int8)
    s, z = rng.random((2, 4, 8), np.float32)
    program = ptir.read(kernel_of_views(views, body))
    made = ptir.run(program, {"x": x, "s": s, "z": z, "out": np.zeros((4, 32), np.float32)})["out"]
    assert np.array_equal(made, (x.astype(np.float32) - z[:, :1]) * s[:, :1])
    with pytest.raises(Rejected, match="takes 3 operands, got 2"):
        ptir.read(kernel_of_views(views, body.replace(", %z.t", "", 1)))


def test_packed_integers_keep_their_low_bits() -> None:
    views = {"x": ("i32", 4, 16), "out": ("i16", 4, 16)}
    body = f"pto.tpack ins(%x.t : {buffer('vec', 4, 16, 'i32')}) outs(%out.t : {buffer('vec', 4, 16, 'i16')})"
    x = np.random.default_rng(4).integers(-(2**31), 2**31, (4, 16)).astype(np.int32)
    made = ptir.run(ptir.read(kernel_of_views(views, body)), {"x": x, "out": np.zeros((4, 16), np.int16)})["out"]
    assert np.array_equal(made, x.astype(np.int16))
    with pytest.raises(Rejected, match="of floats cannot be read"):
        floats = {"x": ("f32", 4, 16), "out": ("f16", 4, 16)}
        ptir.read(kernel_of_views(floats, body.replace("i32", "f32").replace("i16", "f16")))


def test_a_buffer_that_nothing_was_written_into_is_written_as_one() -> None:
    body = f"""
    %t = pto.alloc_tile addr = %c0_i64 : {B}
    %u = pto.alloc_tile addr = %c256_i64 : {B}
    pto.tabs ins(%t : {B}) outs(%u : {B})
    pto.tstore ins(%u : {B}) outs(%out.w : !pto.partition_tensor_view<8x8xf32>)"""
    lines = "    %c0_i64 = arith.constant 0 : i64\n    %c256_i64 = arith.constant 256 : i64\n"
    program = ptir.read(shaped({"out": (N, N)}, lines + body))
    assert "tile.undef" in ptir.write(program, "pto")
    text = "".join(write(program, Diagnostics(program.source), Options()))
    assert text.count("alloc_tile") == 2
    assert "TABS(u, t);" in "".join(cpp_of(program, Diagnostics(program.source), Options()))
    assert ptir.write(ptir.read(text), "pto").count("tile.undef") == 1


def test_an_entry_returns_nothing() -> None:
    with pytest.raises(Rejected, match="is an entry, which returns nothing"):
        ptir.read("module {\n func.func @k(%n: i32) -> i32 {\n  %t = pto.get_block_idx\n  return %n : i32\n }\n}")


def test_a_buffer_that_gets_another_address_has_one() -> None:
    body = f"%a = arith.constant 0 : i64\n%t = pto.alloc_tile : {B}\n%u = pto.tassign %t, %a : {B} -> {B}"
    with pytest.raises(Rejected, match="`%t` has no address"):
        ptir.read(shaped({"x": (N, N)}, body))


def test_pointers_that_a_call_passes_on() -> None:
    """The caller does not see the memory; its shape is that of the called function."""
    text = shaped({"x": (N, N), "out": (N, N)}, f"%t = pto.alloc_tile : {B}\n{load('%t')}\n{store('%t')}")
    outer = " func.func @outer(%p: !pto.ptr<f32>, %q: !pto.ptr<f32>) attributes {pto.entry} {\n"
    outer += "  func.call @kernel(%p, %q) : (!pto.ptr<f32>, !pto.ptr<f32>) -> ()\n  return\n }\n"
    program = ptir.read(text.replace("{\n  func.func", "{\n" + outer + "  func.func", 1))
    assert np.array_equal(ptir.run(program, {"p": X, "q": np.zeros_like(X)})["q"], X)


def verified(text: str) -> set[str]:
    """The codes of the errors of a text."""
    try:
        ptir.verify(ptir.read(text, "ptoas"))
    except Rejected as found:
        return {d.code for d in found.diagnostics if d.severity.value == "error"}
    return set()


LAST = f"""
    %n = arith.constant {{end}} : index
    scf.for %i = %c0 to %n step %c8 {{{{
      %left = arith.subi %all, %i : index
      %rows = arith.minsi %left, %c8 : index
      %t = pto.alloc_tile valid_row = %rows : {buffer(valid="? 8")}
      %p = pto.partition_view %x.v, offsets = [%i, %c0], sizes = [%rows, %c8]
        : !pto.tensor_view<?x?xf32> -> !pto.partition_tensor_view<?x8xf32>
      pto.tload ins(%p : !pto.partition_tensor_view<?x8xf32>) outs(%t : {buffer(valid="? 8")})
      pto.tstore ins(%t : {buffer(valid="? 8")}) outs(%p : !pto.partition_tensor_view<?x8xf32>)
    }}}}"""
AT = f"%a = arith.constant {{at}} : i64\n    %t = pto.alloc_tile addr = %a : {B}\n    {load('%t')}\n    {store('%t')}"
WRONG = {  # what users reported that the assembler accepts, and what is near it; the second text is right
    "rows below 1 in the last iteration": ("InvalidValid", LAST.format(end=32), LAST.format(end=24)),
    "no rows": (
        "InvalidValid",
        f"%z = arith.subi %c8, %c8 : index\n    %t = pto.alloc_tile valid_row = %z : {buffer(valid='? 8')}\n    "
        + load("%t", t=buffer(valid="? 8")),
        f"%z = arith.addi %c0, %c8 : index\n    %t = pto.alloc_tile valid_row = %z : {buffer(valid='? 8')}\n    "
        + load("%t", t=buffer(valid="? 8")),
    ),
    "a window that leaves the memory": (
        "OutOfBounds",
        f"%t = pto.alloc_tile : {B}\n    %r = arith.constant 17 : index\n    %p = {window('%x.v', '%r', '%c0', N, N)}\n    "
        + load("%t", "%p"),
        f"%t = pto.alloc_tile : {B}\n    %r = arith.constant 16 : index\n    %p = {window('%x.v', '%r', '%c0', N, N)}\n    "
        + load("%t", "%p"),
    ),
    "a window that leaves it in the last iteration": (
        "OutOfBounds",
        f"%t = pto.alloc_tile : {B}\n    %n = arith.constant 25 : index\n    scf.for %i = %c0 to %n step %c8 {{\n"
        f"      %p = {window('%x.v', '%i', '%c0', N, N)}\n      {load('%t', '%p')}\n    }}",
        f"%t = pto.alloc_tile : {B}\n    %n = arith.constant 24 : index\n    scf.for %i = %c0 to %n step %c8 {{\n"
        f"      %p = {window('%x.v', '%i', '%c0', N, N)}\n      {load('%t', '%p')}\n    }}",
    ),
    "an address between two blocks": ("Misaligned", AT.format(at=48), AT.format(at=64)),
    "an address behind the end of Vec": ("CapacityExceeded", AT.format(at=196608), AT.format(at=196352)),
    "a store of another shape": (
        "ShapeMismatch",
        f"%t = pto.alloc_tile : {buffer(valid='4 8')}\n    {store('%t', t=buffer(valid='4 8'))}",
        f"%t = pto.alloc_tile : {B}\n    {load('%t')}\n    {store('%t')}",
    ),
    "elements that the target does not select": (
        "IllegalOnTarget",
        *(
            "\n    ".join(
                [
                    *(f"%{x} = pto.alloc_tile : {buffer(cols=32, dtype=d)}" for x, d in (("m", "i8"), ("a", of), ("b", of))),
                    f"pto.tsel ins(%m, %a, %b, %b : {buffer(cols=32, dtype='i8')}, {buffer(cols=32, dtype=of)}, "
                    f"{buffer(cols=32, dtype=of)}, {buffer(cols=32, dtype=of)}) outs(%a : {buffer(cols=32, dtype=of)})",
                ]
            )
            for of in ("i8", "i16")
        ),
    ),
    "more than there is room for": (
        "CapacityExceeded",
        AT.replace(B, buffer(rows=64, cols=1024)).partition("\n    pto.tload")[0].format(at=0)
        + f"\n    pto.texpands ins(%half : f32) outs(%t : {buffer(rows=64, cols=1024)})",
        AT.replace(B, buffer(rows=32, cols=1024)).partition("\n    pto.tload")[0].format(at=0)
        + f"\n    pto.texpands ins(%half : f32) outs(%t : {buffer(rows=32, cols=1024)})",
    ),
    "a move that no target has": (
        "InvalidLocation",
        f"%t = pto.alloc_tile : {buffer('left', 16, 16)}\n    %u = pto.alloc_tile : {buffer('acc', 16, 16)}\n    "
        f"pto.tmov ins(%t : {buffer('left', 16, 16)}) outs(%u : {buffer('acc', 16, 16)})",
        f"%t = pto.alloc_tile : {buffer('mat', 16, 16)}\n    %u = pto.alloc_tile : {buffer('left', 16, 16)}\n    "
        f"pto.tmov ins(%t : {buffer('mat', 16, 16)}) outs(%u : {buffer('left', 16, 16)})",
    ),
}


def tiles_of(*types: str) -> str:
    """Buffers %t0, %t1, … of these types."""
    return "".join(f"%t{k} = pto.alloc_tile : {t}\n    " for k, t in enumerate(types))


def product(left: str, right: str, acc: str) -> str:
    return tiles_of(left, right, acc) + f"pto.tmatmul ins(%t0, %t1 : {left}, {right}) outs(%t2 : {acc})"


def extracted(rows: int) -> str:
    mat, left = buffer("mat", 16, 16, "f16"), buffer("left", rows, rows, "f16")
    return tiles_of(mat, left) + f"pto.textract ins(%t0, %c0, %c0 : {mat}, index, index) outs(%t1 : {left})"


def absolute(cols: int) -> str:
    t = buffer("vec", 8, cols, "f16")
    return tiles_of(t, t) + f"pto.tabs ins(%t0 : {t}) outs(%t1 : {t})"


def spread(rows: int) -> str:
    wide, column = buffer(cols=32), buffer("vec", rows, 1, order="column")
    return tiles_of(wide, column) + f"pto.trowexpandmul ins(%t0, %t1 : {wide}, {column}) outs(%t0 : {wide})"


def reshaped(cols: int) -> str:
    given, made = buffer(cols=32), buffer(cols=cols)
    made_of = tiles_of(given) + f"%r = pto.treshape %t0 : {given} -> {made}\n    "
    return made_of + f"pto.tabs ins(%r : {made}) outs(%r : {made})"


def stepped(step: str) -> str:
    return f"%t = pto.alloc_tile : {B}\n    scf.for %i = %c0 to %c8 step {step} {{\n      {load('%t')}\n    }}"


def chosen(mask: str) -> str:
    t, m = buffer(cols=32), buffer(cols=32, dtype=mask)
    return tiles_of(m, t) + f"pto.tsel ins(%t0, %t1, %t1, %t1 : {m}, {t}, {t}, {t}) outs(%t1 : {t})"


def revalued(rows: str) -> str:
    t = buffer(valid="? ?")
    lines = f"%t = pto.alloc_tile valid_row = %c8 valid_col = %c8 : {t}\n    pto.set_validshape %t, {rows}, %c8 : {t}\n    "
    return lines + load("%t", t=t)


def taken(rows: int) -> str:
    part = f"!pto.partition_tensor_view<{rows}x8xf32>"
    lines = f"%t = pto.alloc_tile : {B}\n    %n = arith.constant {rows} : index\n    "
    lines += f"%p = pto.partition_view %x.v, offsets = [%c0, %c0], sizes = [%n, %c8] : !pto.tensor_view<?x?xf32> -> {part}\n"
    return f"{lines}    pto.tload ins(%p : {part}) outs(%t : {B})"


def at_addresses(second: int) -> str:
    lines = [f"%a{k} = arith.constant {n} : i64\n    %t{k} = pto.alloc_tile addr = %a{k} : {B}" for k, n in ((0, 0), (1, second))]
    lines += [load("%t0"), load("%t1"), f"pto.tadd ins(%t0, %t1 : {B}, {B}) outs(%t0 : {B})", store("%t0")]
    return "\n    ".join(lines)


HALF, WIDE = buffer("left", 16, 32, "f16"), buffer("right", 32, 32, "f16")
WRONG |= {
    "a window that is larger than its tile": ("OutOfBounds", extracted(32), extracted(16)),
    "a row that fills no block": ("Misaligned", absolute(163), absolute(176)),
    "a product of different K": (
        "ShapeMismatch",
        product(HALF, buffer("right", 16, 32, "f16"), buffer("acc", 16, 32)),
        product(HALF, WIDE, buffer("acc", 16, 32)),
    ),
    "a product in halves": (
        "TypeMismatch",
        product(HALF, WIDE, buffer("acc", 16, 32, "f16")),
        product(HALF, WIDE, buffer("acc", 16, 32)),
    ),
    "a column of another height": ("ShapeMismatch", spread(16), spread(8)),
    "a view of other bytes": ("ShapeMismatch", reshaped(16), reshaped(32)),
    "a loop that does not advance": ("InvalidStep", stepped("%c0"), stepped("%c1")),
    "a selection by numbers": ("TypeMismatch", chosen("f32"), chosen("i8")),
    "more valid rows than rows": ("InvalidValid", revalued("%all"), revalued("%c8")),
    "a load of more rows than the tile has": ("ShapeMismatch", taken(16), taken(8)),
    "two live buffers that share bytes": ("TileOverwritten", at_addresses(128), at_addresses(256)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_verify_says_of_wrong_kernels(name: str) -> None:
    code, wrong, right = WRONG[name]
    head = "%all = arith.constant 24 : index\n    %half = arith.constant 0.5 : f32\n    "
    texts = [shaped({"x": (24, N), "out": (N, N)}, head + body) for body in (wrong, right)]
    assert [verified(x) for x in texts] == [{code}, set()]


def test_a_store_of_a_tile_of_three_dimensions_moves_all_rows() -> None:
    memref, t = "pto.memref<4x8x16xf32>", "tile<4x8x16xf32>"
    text = f"""func.func @f(%x: {memref}, %out: {memref}) {{
  %c0 = pto.constant 0 : index
  %t = pto.tile.load %x[%c0, %c0, %c0] : {memref}, {t}
  pto.tile.store %t, %out[%c0, %c0, %c0] : {memref}, {t}
  return
}}
"""
    written = ptir.write(ptir.optimize(ptir.read(text), "pto{target=a3}"), "ptoas")
    assert "v_row=32, v_col=16" in written and "v_row=8" not in written
    x = np.arange(512, dtype=np.float32).reshape(4, 8, 16)
    program = ptir.read(written)
    shape = program.main.params[0].type.shape
    made = ptir.run(program, {"x": x.reshape(shape), "out": np.zeros(shape, np.float32)})["out"]
    assert np.array_equal(made.reshape(x.shape), x)


def test_ops_that_use_the_same_scratch_have_a_barrier_between_them() -> None:
    """One op reads what it wrote there, and the next writes over it."""
    memref, t, r = "pto.memref<16x64xf32>", "tile<16x64xf32>", "tile<16x1xf32>"
    loads = "".join(f"  %t{k} = pto.tile.load %x{k}[%c0, %c0] : {memref}, {t}\n" for k in range(2))
    sums = "".join(f"  %r{k} = pto.tile.rowmax %t{k} : {t} -> {r}\n" for k in range(2))
    stores = "".join(f"  pto.tile.store %r{k}, %y{k}[%c0, %c0] : pto.memref<16x1xf32>, {r}\n" for k in range(2))
    params = ", ".join([*(f"%x{k}: {memref}" for k in range(2)), *(f"%y{k}: pto.memref<16x1xf32>" for k in range(2))])
    text = f"func.func @f({params}) {{\n  %c0 = pto.constant 0 : index\n{loads}{sums}{stores}  return\n}}\n"
    program = ptir.optimize(ptir.read(text), "pto{target=a3}")
    for form, barrier in (("pto-cpp", "pipe_barrier(PIPE_V)"), ("ptoas", "pto.barrier <PIPE_V>")):
        assert ptir.write(program, form).count(barrier) == 1, form
