"""Tiles at addresses: what the pass writes, and the order that shared memory asks for."""

import random
import re

import numpy as np
import pytest

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.dialects.pto.generate import any_ops
from ptir_tools.dialects.pto.order import decisions
from ptir_tools.engines.options import ORDERS
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.tools import fuzz
from tests.conftest import run_ptir
from tests.pto.programs import KERNELS, SAMPLES, check, codes, event, good, module, pattern, printed, run

M, T = "pto.memref<64x32xf32>", "tile<32x32xf32>"
LOAD, EXP, STORE = event("TLOAD"), event("TEXP"), event("TSTORE_VEC")
PIPELINE = "pto-bufferize,pto-canonicalize,pto-insert-events"


def bufferized(source, pipeline="pto-bufferize"):
    """The program after the passes, and what they say."""
    program = good(source)
    context = PassContext(diagnostics=Diagnostics(program.source))
    run_pipeline(program, pipeline, context)
    return program, context.diagnostics


def addresses(program):
    text = printed(program)
    constants = dict(re.findall(r"%(\w+) = pto\.constant (\d+) : index", text))
    return {name: int(constants[at]) for name, at in re.findall(r"pto\.tile\.assign %(\w+), %(\w+) ", text)}


def test_tiles_lie_where_the_plan_puts_them():
    program, found = bufferized((SAMPLES / "16_ub_exact_fit_a3.pto").read_text())
    assert not found.items
    assert addresses(program) == {"x": 0, "y": 65536, "z": 131072, "s": 0, "w": 0}
    assert codes(printed(program)) == []
    again, _ = bufferized(printed(program))
    assert printed(again) == printed(program)


@pytest.mark.parametrize("name", ["01_vector_add_subview", "04_matmul_bias_a3", "12_elementwise_chain", "16_ub_exact_fit_a3"])
def test_events_behind_it_keep_tiles_apart(name):
    source = (SAMPLES / f"{name}.pto").read_text()
    program, found = bufferized(source, PIPELINE)
    assert not found.items
    text = printed(program)
    assert "assign" in text and "!pto.event" in text
    assert not check(text)[1].items
    inputs = pattern(program, {"bi": 2, "bj": 3})
    want = run(good(source), inputs)
    for order in ("sequential", "adversarial", "random"):
        for key, value in run(program, inputs, order=order).items():
            np.testing.assert_array_equal(value, want[key])


TWICE = (
    f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
    f"%u, %f = pto.tile.exp %t wait(%e) : {T}, {EXP}",
    f"%g = pto.tile.store %u, %out[0, 0] wait(%f) : {M}, {T}, {STORE}",
    f"%v, %h = pto.tile.load %a[32, 0] : {M}, {T}, {LOAD}",
    f"%w = pto.tile.exp %v wait(%h) : {T}",
    f"pto.tile.store %w, %out[32, 0] wait(%g) : {M}, {T}",
)
ARGUMENTS = f"%a: {M}, %out: {M}"


def test_asynchronous_ops_do_not_meet_in_memory():
    program, found = bufferized(module(ARGUMENTS, *TWICE))
    assert not found.items and "%a[32, 0] wait(%g)" in printed(program)  # the load writes where exp did, and store reads
    assert "MemoryHazard" in codes(printed(program).replace("%a[32, 0] wait(%g)", "%a[32, 0]"))
    ordered = [line.replace("%a[32, 0]", "%a[32, 0] wait(%g)") for line in TWICE]
    program, found = bufferized(module(ARGUMENTS, *ordered))
    assert not found.errors and set(addresses(program).values()) == {0}


@pytest.mark.parametrize("second, kinds", [(0, ["WAR"]), (4092, ["WAR"]), (4096, [])])
def test_verify_knows_the_addresses_written_by_hand(second, kinds):
    lines = (
        *TWICE[:2],
        "%k = pto.constant 0 : index",
        f"pto.tile.assign %t, %k : {T}, index",
        f"%v, %h = pto.tile.load %a[32, 0] : {M}, {T}, {LOAD}",
        f"%l = pto.constant {second} : index",
        f"pto.tile.assign %v, %l : {T}, index",
        f"pto.sync wait(%f, %h) : {EXP}, {LOAD}",
    )
    _, found = check(module(ARGUMENTS, *lines))
    told = [d.message.partition(":")[0] for d in found if d.code == "MemoryHazard"]
    assert told == kinds  # the two loads are in order, in one pipe


LOOP = (
    "%c1 = pto.constant 1 : index",
    f"%t = pto.tile.load %a[0, 0] : {M}, {T}",
    f"%s = pto.tile.load %a[32, 0] : {M}, {T}",
)


def loop(*body, gives):
    return module(
        f"{ARGUMENTS}, %n: index",
        *LOOP,
        f"%r, %q = scf.for %i = %c0 to %n step %c1 iter_args(%x = %t, %y = %s) -> ({T}, {T}) {{",
        *body,
        f"  scf.yield {gives} : {T}, {T}",
        "}",
        f"%o = pto.tile.add %r, %q : {T}",
        f"pto.tile.store %o, %out[0, 0] : {M}, {T}",
    )


def test_what_a_loop_carries_lies_in_one_place():
    program, found = bufferized(loop(f"  %z = pto.tile.add %x, %y : {T}", gives="%z, %y"))
    assert not found.items
    at = addresses(program)
    assert at["t"] == at["x"] == at["z"] == at["r"] and at["s"] == at["y"] == at["q"] != at["t"]


def same_bits(source, inputs, *pipelines):
    """After each pipeline the program verifies, and gives the same bits in every order, without a race."""
    want = run(source, inputs)
    for pipeline in pipelines:
        program, found = bufferized(source, pipeline)
        assert not found.errors, (source, pipeline, found.items)
        text = printed(program)
        faults = [d for d in check(text)[1] if d.severity is Severity.ERROR]
        assert "assign" in text and not faults, (text, faults)
        for order in ORDERS:
            for name, value in run(text, inputs, order=order, seed=1).items():
                np.testing.assert_array_equal(value, want[name], err_msg=text)


@pytest.mark.parametrize("gives, copies", [("%z, %y", 1), ("%y, %x", 3), ("%x, %x", 1), ("%w, %w", 2), ("%z, %w", 2)])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_copies_bring_what_a_loop_carries_to_its_place(gives, copies, n):
    """Loaded ahead; crosswise; one value twice; a value that the next step still needs."""
    ahead = f"  %z = pto.tile.load %a[%k, %c0] : {M}, {T}"
    use = f"  pto.tile.store %x, %out[%k, %c0] : {M}, {T}"
    outside = ("%c1 = pto.constant 1 : index", "%k = pto.constant 32 : index", f"%w = pto.tile.load %a[%c1, %c0] : {M}, {T}")
    source = loop(ahead, use, gives=gives).replace(outside[0], "\n    ".join(outside))
    assert printed(bufferized(source)[0]).count("mov.v2v") <= copies
    same_bits(source, pattern(good(source), {"n": n}), "pto-bufferize", PIPELINE)


KERNEL_INPUTS = {"n": 16, "p": 1, "q": 0}


@pytest.mark.parametrize(
    "name", ["bufferize_nested_yield", "carried_invariant", "live_nested_yield", "crash_nested_for", "crash_nested_if"]
)
def test_what_nested_blocks_give_lives_as_long_as_they_run(name):
    source = (KERNELS / f"{name}.pto").read_text()
    same_bits(source, pattern(good(source), KERNEL_INPUTS), "pto-bufferize", PIPELINE)


@pytest.mark.parametrize("name", ["dbmm_a3", "dbmm_a5", "flash_a3"])
def test_kernels_with_events_keep_them(name):
    source = (KERNELS / f"{name}.pto").read_text()
    same_bits(source, pattern(good(source)), "pto-bufferize", "pto-canonicalize,pto-bufferize,pto-canonicalize")
    assert printed(bufferized(source)[0]).count("pto.event") >= source.count("!pto.event")


@pytest.mark.parametrize("name, target", [("dbmm_a3", "a3"), ("dbmm_a3", "a5"), ("dbmm_a5", "a5"), ("flash_a3", "a3")])
def test_one_command_is_the_whole_way(name, target, tmp_path):
    source = (KERNELS / f"{name}.pto").read_text()
    inputs = pattern(good(source))
    made = run_ptir("opt", "-p", f"pto{{target={target}}}", str(KERNELS / f"{name}.pto"))
    assert made.status == 0 and f"#pto.target<{target}>" in made.text
    assert not check(made.text)[1].errors and made.text.count("pto.tile.assign") > 8
    want = run(source, inputs)
    for order in ORDERS:
        for key, value in run(made.text, inputs, order=order).items():
            np.testing.assert_array_equal(value, want[key])


def test_a_named_pipeline_checks_its_options():
    path = str(KERNELS / "dbmm_a3.pto")
    assert "is not a target" in run_ptir("opt", "-p", "pto{target=a9}", path).err
    assert "has no option `tarjet`" in run_ptir("opt", "-p", "pto{tarjet=a3}", path).err
    assert "#pto.target<a3>" in run_ptir("opt", "-p", "pto", path).text


class Generated:
    """A random program of loads, arithmetic, stores, loops and branches within each other; `draw` is a random.Random."""

    def __init__(self, draw, calls=False):
        self.draw = draw
        self.calls = calls
        self.lines = []
        self.count = 0

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def make(self, indent, seen):
        """One tile, of those that are in sight."""
        v, kind = self.name(), self.draw.choice(["load", "neg", "add", "trans", "rowmax", "reshape"])
        x, y = self.draw.choice(seen), self.draw.choice(seen)
        text = {
            "load": f"pto.tile.load %a[%r{self.draw.choice(ROWS)}, %c0] : {A}, {S}",
            "neg": f"pto.tile.neg %{x} : {S}",
            "add": f"pto.tile.add %{x}, %{y} : {S}",
            "trans": f"pto.tile.trans %{x} : {S} -> {S}",
            "reshape": f"pto.tile.reshape %{x} : {S} -> {S}",
            "rowmax": f"pto.tile.rowexpandmax %{x}, %{v}m : {S}, tile<8x1xf32> -> {S}",
        }[kind]
        if kind == "rowmax":
            self.lines.append(f"{indent}%{v}m = pto.tile.rowmax %{y} : {S} -> tile<8x1xf32>")
        self.lines.append(f"{indent}%{v} = {text}")
        seen.append(v)

    def block(self, indent, seen, depth):
        for _ in range(self.draw.randint(1, 4)):
            kind = self.draw.choice(["make"] * 4 + ["store"] + ["loop", "branch"] * (depth > 0) + ["call"] * 3 * self.calls)
            if kind == "make":
                self.make(indent, seen)
            elif kind == "call":
                self.call(indent, seen)
            elif kind == "store":
                row = self.draw.choice(ROWS)
                self.lines.append(f"{indent}pto.tile.store %{self.draw.choice(seen)}, %out[%r{row}, %c0] : {A}, {S}")
            else:
                self.nested(kind, indent, seen, depth)

    def call(self, indent, seen):
        """A call that passes tiles and gives one, or one that only works on memory."""
        if self.draw.random() < 0.5:
            row = self.draw.choice(ROWS)
            self.lines.append(f"{indent}func.call @memory(%a, %out, %r{row}) : ({A}, {A}, index) -> ()")
            return
        v, x, y = self.name(), self.draw.choice(seen), self.draw.choice(seen)
        self.lines.append(f"{indent}%{v} = func.call @tiles(%{x}, %{y}, %a, %out) : ({S}, {S}, {A}, {A}) -> ({S})")
        seen.append(v)

    def nested(self, kind, indent, seen, depth):
        carried = [self.draw.choice(seen) for _ in range(self.draw.randint(1, 3))]
        names = [self.name() for _ in carried]
        results = ", ".join(f"%{n}" for n in names)
        types = ", ".join([S] * len(carried))
        if kind == "loop":
            params = [self.name() for _ in carried]
            pairs = ", ".join(f"%{p} = %{x}" for p, x in zip(params, carried, strict=True))
            i = self.name()
            self.lines.append(f"{indent}{results} = scf.for %{i} = %c0 to %n step %c1 iter_args({pairs}) -> ({types}) {{")
            self.inside(indent, [*seen, *params], depth, types, len(carried))
        else:
            self.lines.append(f"{indent}{results} = scf.if %{self.draw.choice('pq')} -> ({types}) {{")
            self.inside(indent, list(seen), depth, types, len(carried))
            self.lines.append(f"{indent}}} else {{")
            self.inside(indent, list(seen), depth, types, len(carried))
        self.lines.append(f"{indent}}}")
        seen += names

    def inside(self, indent, seen, depth, types, given):
        self.block(indent + "  ", seen, depth - 1)
        chosen = ", ".join(f"%{self.draw.choice(seen)}" for _ in range(given))
        self.lines.append(f"{indent}  scf.yield {chosen} : {types}")

    def program(self):
        seen = ["first"]
        self.lines += ["%c1 = pto.constant 1 : index", *(f"%r{r} = pto.constant {r} : index" for r in ROWS)]
        self.lines.append(f"%first = pto.tile.load %a[%c0, %c0] : {A}, {S}")
        self.block("", seen, 2)
        self.block("", seen, 2)
        for x in seen[-3:]:
            self.lines.append(f"pto.tile.store %{x}, %out[%r{self.draw.choice(ROWS)}, %c0] : {A}, {S}")
        target = self.draw.choice(["a3", "a5"])
        whole = module(f"%a: {A}, %out: {A}, %n: index, %p: i1, %q: i1", *self.lines, target=target)
        return whole.removesuffix("}\n") + HELPERS + "\n}\n" if self.calls else whole


ROWS = (3, 8, 24, 30, 56)
A, S = "pto.memref<64x8xf32>", "tile<8x8xf32>"
HELPERS = f"""func.func @memory(%a: {A}, %out: {A}, %r: index) {{
    %c0 = pto.constant 0 : index
    %x = pto.tile.load %a[%r, %c0] : {A}, {S}
    %y = pto.tile.load %a[%c0, %c0] : {A}, {S}
    %m = pto.tile.rowmax %y : {S} -> tile<8x1xf32>
    %z = pto.tile.rowexpandmul %x, %m : {S}, tile<8x1xf32> -> {S}
    %u = pto.tile.add %z, %y : {S}
    pto.tile.store %u, %out[%r, %c0] : {A}, {S}
    return
  }}
  func.func @tiles(%x: {S}, %y: {S}, %a: {A}, %out: {A}) -> {S} {{
    %c0 = pto.constant 0 : index
    %c8 = pto.constant 8 : index
    %s = pto.tile.load %a[%c8, %c0] : {A}, {S}
    func.call @memory(%a, %out, %c8) : ({A}, {A}, index) -> ()
    %z = pto.tile.sub %x, %s : {S}
    %u = pto.tile.max %z, %y : {S}
    return %u : {S}
  }}"""


PLAIN = ("pto-bufferize", "pto-bufferize,pto-insert-events")


def generated(seed, *pipelines, calls=False):
    draw = random.Random(seed)
    source = Generated(draw, calls).program()
    a = np.random.default_rng(seed).integers(-99, 99, (64, 8)).astype(np.float32)
    inputs = {"a": a, "out": np.zeros((64, 8), np.float32)}
    inputs |= {"n": np.int64(draw.randrange(4)), "p": np.bool_(draw.random() < 0.5), "q": np.bool_(draw.random() < 0.5)}
    same_bits(source, inputs, *pipelines)


@pytest.mark.parametrize("part", range(4))
def test_random_programs_give_the_same_bits(part):
    for seed in range(15 * part, 15 * part + 15):
        generated(seed, *PLAIN)


def test_random_programs_with_events_give_the_same_bits():
    for seed in range(130, 145):
        generated(seed, "pto-insert-events,pto-bufferize")


def test_random_programs_with_calls_give_the_same_bits():
    for seed in range(16):
        generated(seed, *PLAIN, "pto", calls=True)
    for seed in range(40, 48):
        generated(seed, "pto-insert-events,pto-bufferize", calls=True)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("share", range(44))
def test_random_programs_give_the_same_bits_at_length(share):
    for seed in range(50 * share, 50 * share + 50):
        generated(seed, *PLAIN)


def test_tiles_that_do_not_fit_are_told():
    source = (SAMPLES / "25_bad_ub_overflow_a3.pto").read_text()
    program, _ = check(source)
    context = PassContext(diagnostics=Diagnostics(program.source), verify_each=False)
    run_pipeline(program, "pto-bufferize", context)
    assert [d.code for d in context.diagnostics] == ["CapacityExceeded"] and not addresses(program)


@pytest.mark.parametrize("seed", [31018, 31000, 31001])
def test_waits_for_memory_that_is_shared_reuse_no_id(seed):
    text = printed(any_ops(Seeded(seed), size=random.Random(f"size {seed}").randint(2, 12), faults=seed % 4 == 0))
    assert fuzz.tried_on(text, "pto", "opt pto-insert-events,pto-allocate-event-ids,pto-bufferize") is None


def test_what_a_loop_takes_over_is_not_written_over_before():
    lines = [
        "%c1 = pto.constant 1 : index",
        f"%x = pto.tile.load %a[0, 0] : {A}, {S}",
        f"%dead = pto.tile.neg %x : {S}",
        f"%y = scf.for %i = %c0 to %n step %c1 iter_args(%v = %x) -> ({S}) {{",
        f"  scf.yield %v : {S}",
        "}",
        f"pto.tile.store %y, %out[0, 0] : {A}, {S}",
    ]
    inputs = {"a": np.ones((64, 8), np.float32), "out": np.zeros((64, 8), np.float32), "n": np.int64(2)}
    same_bits(module(f"%a: {A}, %out: {A}, %n: index", *lines, target="a3"), inputs, "pto-bufferize")


def calls(function, *lines, held=1):
    """`held` tiles of 64 KiB live across a call of `function`, which has the body `lines`."""
    big, memory = "tile<128x128xf32>", "pto.memref<512x128xf32>"
    loads = [f"%t{k} = pto.tile.load %a[0, 0] : {memory}, {big}" for k in range(held)]
    stores = [f"pto.tile.store %t{k}, %out[0, 0] : {memory}, {big}" for k in range(held)]
    call = f"func.call @{function}(%a, %out) : ({memory}, {memory}) -> ()"
    body = "\n".join(lines).replace("BIG", f"{memory}, {big}")
    callee = f"  func.func @{function}(%a: {memory}, %out: {memory}) {{\n{body}\n    return\n  }}\n"
    whole = module(f"%a: {memory}, %out: {memory}", *loads, call, *stores, target="a3")
    return whole.removesuffix("}\n") + callee + "}\n"


BIG = ("%x = pto.tile.load %a[0, 0] : BIG", "pto.tile.store %x, %out[128, 0] : BIG")


@pytest.mark.parametrize("held, code", [(1, None), (2, None), (3, "CapacityExceeded")])
def test_what_is_called_lies_above_what_is_live(held, code):
    source = calls("k", *BIG, held=held)
    program = good(source)
    context = PassContext(diagnostics=Diagnostics(program.source))
    run_pipeline(program, "pto-bufferize", context)
    assert [d.code for d in context.diagnostics] == ([code] if code else [])
    if code is None:
        assert addresses(program)["x"] == held << 16
        same_bits(source, pattern(good(source)), "pto-bufferize", "pto")


def test_a_call_that_passes_events_is_put_in_line():
    lines = [
        f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
        f"%u = func.call @k(%t, %e, %out) : ({T}, {LOAD}, {M}) -> ({T})",
        f"pto.tile.store %u, %out[32, 0] : {M}, {T}",
    ]
    callee = f"""  func.func @k(%t: {T}, %e: {LOAD}, %out: {M}) -> {T} {{
    %u = pto.tile.exp %t wait(%e) : {T}
    pto.tile.store %u, %out[0, 0] : {M}, {T}
    return %u : {T}
  }}
"""
    source = module(ARGUMENTS, *lines).removesuffix("}\n") + callee + "}\n"
    same_bits(source, pattern(good(source)), "pto-bufferize")
    program, found = bufferized(source)
    assert not found.items and "func.call" not in printed(program) and len(program.functions) == 1


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_while_that_carries_tiles_and_events_needs_no_copy(n):
    source = (KERNELS / "while_events.pto").read_text()
    inputs = {"a": ROWS_OF_64, "o": np.zeros((64, 32), np.float32), "n": np.int64(n)}
    same_bits(source, inputs, "pto-bufferize", "pto")
    assert "mov.v2v" not in printed(bufferized(source)[0])
    np.testing.assert_array_equal(run(source, inputs)["o"][:32], ROWS_OF_64[:32] / 2**n)


ROWS_OF_64 = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


def test_a_function_that_has_addresses_keeps_them():
    whole, of = "pto.memref<8x8xf32>", "tile<8x8xf32>"
    load, exp = f"%t = pto.tile.load %a[0, 0] : {whole}, {of}", f"%u = pto.tile.exp %t : {of}"
    store = f"pto.tile.store %u, %b[0, 0] : {whole}, {of}"
    placed = f"pto.tile.assign %t, %at : {of}, index", f"pto.tile.assign %u, %at : {of}, index"
    head = f"(%a: {whole}, %b: {whole}) {{\n  %at = pto.constant 4096 : index\n"
    first = f"func.func @placed{head}{load}\n{placed[0]}\n{exp}\n{placed[1]}\n{store}\nreturn\n}}\n"
    second = f"func.func @free{head}{load}\n{exp}\n{store}\nreturn\n}}\n"
    program, found = bufferized(f"module {{\n{first}{second}}}\n")
    assert not found.items
    one, other = (printed(program).split("func.func ")[k] for k in (1, 2))
    assert [t.count("pto.tile.assign") for t in (one, other)] == [2, 2]
    assert one.count("%at : tile") == 2 and "%at : tile" not in other


def test_where_too_many_conditions_meet_bytes_are_used_again_when_all_is_complete(monkeypatch):
    """What is behind the place up to which the check comes has waits, too."""
    monkeypatch.setattr(decisions, "MAX_NODES", 0)
    m, t = "pto.memref<8x64xf32>", "tile<8x64xf32>"
    load, store = event("TLOAD"), event("TSTORE_VEC")
    source = module(
        f"%a: {m}, %out: {m}, %n: index",
        "%c1 = pto.constant 1 : index",
        f"%x, %e = pto.tile.load %a[0, 0] : {m}, {t}, {load}",
        f"%r, %s = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x, %f = %e) -> ({t}, {load}) {{",
        f"  %z = pto.tile.add %x, %y wait(%e, %f) : {t}",
        f"  %g = pto.tile.store %z, %out[0, 0] : {m}, {t}, {store}",
        f"  %u, %h = pto.tile.load %a[0, 0] : {m}, {t}, {load}",
        f"  scf.yield %u, %h : {t}, {load}",
        "}",
        f"%v = pto.tile.exp %r wait(%s) : {t}",
        f"pto.tile.store %v, %out[0, 0] : {m}, {t}",
    )
    program = good(source)
    run_pipeline(program, "pto-bufferize", PassContext(diagnostics=Diagnostics(program.source)))
    a = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)
    for n in (0, 1, 4):
        given = {"a": a, "out": np.zeros_like(a), "n": np.int64(n)}
        want = run(source, given, order="adversarial")["out"]
        for order in ORDERS:
            assert run(program, given, order=order)["out"].tobytes() == want.tobytes()


def test_a_copy_in_a_branch_leaves_what_the_branch_declares():
    """The event that a branch gives is of any producer: a tile that is copied for it does not make it that of one block."""
    tile, memref, given = "tile<8x8xf32>", "pto.memref<64x32xf32>", "(tile<8x8xf32>, !pto.event)"
    source = module(
        f"%a: {memref}, %o: {memref}, %p: i1",
        f"%y, %ey = pto.tile.load %o[%c0, %c0] : {memref}, {tile}, {event('TLOAD')}",
        f"%t, %e = scf.if %p -> {given} {{",
        f"  %z, %ez = pto.tile.neg %y wait(%ey) : {tile}, {event('TNEG')}",
        f"  scf.yield %y, %ez : {tile}, !pto.event",
        "} else {",
        f"  %x, %ex = pto.tile.load %a[%c0, %c0] : {memref}, {tile}, {event('TLOAD')}",
        f"  scf.yield %x, %ex : {tile}, !pto.event",
        "}",
        f"%s = pto.tile.add %t, %y wait(%e) : {tile}",
        f"pto.tile.store %s, %o[%c0, %c0] : {memref}, {tile}",
    )
    program = good(source)
    run_pipeline(program, "pto-bufferize", PassContext(diagnostics=Diagnostics()))
    text = printed(program)
    assert "mov.v2v" in text
    good(text)


def test_the_result_of_a_branch_is_computed_where_it_is_needed():
    """`%u` may be written over `%s`, which is elsewhere, since `%t` is still used. Then `%v` is not written over `%u`."""
    source = module(
        f"%a: {M}, %b: {M}, %flag: i1",
        f"%t = pto.tile.load %a[%c0, %c0] : {M}, {T}",
        f"%y = scf.if %flag -> ({T}) {{",
        f"  %e = pto.tile.exp %t : {T}",
        f"  scf.yield %e : {T}",
        "} else {",
        f"  %s = pto.tile.mul %t, %t : {T}",
        f"  %n = pto.tile.neg %t : {T}",
        f"  %u = pto.tile.add %s, %n : {T}",
        f"  %v = pto.tile.exp %u : {T}",
        f"  scf.yield %v : {T}",
        "}",
        f"pto.tile.store %y, %b[%c0, %c0] : {M}, {T}",
    )
    program, _ = bufferized(source)
    assert "mov.v2v" not in printed(program)
    assert len(set(addresses(program).values())) == 2
