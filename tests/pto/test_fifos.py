"""Kernels on several cores, which pass tiles through FIFOs: what a run gives, when the cores block, and what verify says."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.dialects.pto import DIALECT
from tests.pto.test_ptoas import buffer

M = "pto.memref<16x16xf32>"
HALVES = {"none": (16, 16), "rows": (8, 16), "columns": (16, 8)}  # of a tile of 16 x 16, in one vector core


def tile(loc: str, rows: int = 16, cols: int = 16) -> str:
    return f"tile<{rows}x{cols}xf32, #pto.tile_info<loc={loc}>>"


def opened(name: str, direction: str, slots: int = 8, size: int = 1024) -> str:
    return f"pto.fifo.open {{fifo = {name}, direction = {direction}, slots = {slots}, slotSize = {size}}}"


def kernel(cube: str, vector: str, *, more: str = "") -> str:
    """A kernel whose cores both take %a, %b and %out."""
    params, types, names = f"%a: {M}, %b: {M}, %out: {M}", f"({M}, {M}, {M}) -> ()", "(%a, %b, %out)"
    zero = "%c0 = pto.constant 0 : index"
    return (
        f"module {{\nfunc.func @kernel({params}) attributes {{pto.entry}} {{\n"
        f"func.call @cube{names} : {types}\nfunc.call @vector{names} : {types}\n{more}return\n}}\n"
        f"func.func @cube({params}) {{\n{zero}\n{cube}\nreturn\n}}\n"
        f"func.func @vector({params}) {{\n{zero}\n{vector}\nreturn\n}}\n}}\n"
    )


def part(split: str) -> str:
    """Where the part of a vector core begins, as %row and %col."""
    row, col = ("pto.muli %core, %c8 : index" if split == s else "pto.addi %c0, %c0 : index" for s in ("rows", "columns"))
    return (
        "%i = pto.subblock : i64\n%core = pto.index_cast %i : i64 to index\n%c8 = pto.constant 8 : index\n"
        f"%row = {row}\n%col = {col}\n"
    )


PRODUCT = f"""
%x = pto.tile.load %a[%c0, %c0] : {M}, {tile("Mat")}
%y = pto.tile.load %b[%c0, %c0] : {M}, {tile("Mat")}
%l = pto.tile.mov.m2l %x : {tile("Mat")} -> {tile("Left")}
%r = pto.tile.mov.m2r %y : {tile("Mat")} -> {tile("Right")}
%acc = pto.tile.matmul %l, %r : {tile("Left")}, {tile("Right")} -> {tile("Acc")}
"""


def to_vector(split: str) -> str:
    """The product of the cube core, negated by the vector cores."""
    t = tile("Vec", *HALVES[split])
    take = f"""
{part(split)}{opened("f", "c2v")}
%t = pto.tile.pop {{fifo = f, split = {split}}} : {t}
%n = pto.tile.neg %t : {t} -> {t}
pto.fifo.free {{fifo = f}}
pto.tile.store %n, %out[%row, %col] : {M}, {t}"""
    return kernel(f"{opened('f', 'c2v')}{PRODUCT}pto.tile.push %acc {{fifo = f, split = {split}}} : {tile('Acc')}", take)


def to_cube(split: str) -> str:
    """`a` by way of the vector cores to the cube core, which stores its product with `b`."""
    t = tile("Vec", *HALVES[split])
    give = f"""
{part(split)}{opened("g", "v2c")}
%t = pto.tile.load %a[%row, %col] : {M}, {t}
pto.tile.push %t {{fifo = g, split = {split}}} : {t}"""
    take = f"""
{opened("g", "v2c")}
%x = pto.tile.pop {{fifo = g, split = {split}}} : {tile("Mat")}
{PRODUCT.split(chr(10), 2)[2]}pto.fifo.free {{fifo = g}}
pto.tile.store %acc, %out[%c0, %c0] : {M}, {tile("Acc")}"""
    return kernel(take, give)


def run(text: str, **options: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`a`, `b` and what is in `out` after a run."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (16, 16)).astype(np.float32) for _ in range(2))
    made = ptir.run(ptir.read(text), {"a": a, "b": b, "out": np.zeros((16, 16), np.float32)}, **options)
    return a, b, np.asarray(made["out"])


PIPELINES = ("", "pto-insert-events", "pto{target=a3}", "pto{target=a5}")


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("split", HALVES)
def test_a_product_goes_to_the_vector_cores_and_a_tile_to_the_cube_core(split: str, pipeline: str) -> None:
    for text, sign in ((to_vector(split), -1), (to_cube(split), 1)):
        if pipeline:
            text = ptir.write(ptir.optimize(ptir.read(text), pipeline), "pto")
        a, b, out = run(text)
        assert np.array_equal(out, sign * (a @ b)), text
        again = ptir.write(ptir.read(text), "pto")
        assert ptir.write(ptir.read(again), "pto") == again and "split = " * (split != "none") in again


def test_an_event_of_a_push_says_nothing_about_the_place_of_its_tile() -> None:
    for text, sign in ((to_vector("none"), -1), (to_cube("none"), 1)):
        t = tile("Acc" if sign < 0 else "Vec")
        push = next(line for line in text.splitlines() if "tile.push" in line)
        event = f"%e = {push}, !pto.event<producer = #pto.op<TPUSH>>\npto.sync wait(%e)"
        assert push.endswith(t)
        a, b, out = run(text.replace(push, event))
        assert np.array_equal(out, sign * (a @ b))


def test_a_tile_goes_there_and_back_in_a_loop() -> None:
    """With one slot each way, and eight rounds: nothing is lost, doubled or out of order."""
    loop = "%n = pto.constant {0} : index\n%s = pto.constant 1 : index\nscf.for %k = %c0 to %n step %s {{\n{1}\n}}"
    both = f"{opened('f', 'c2v', 1)}\n{opened('g', 'v2c', 1)}\n"
    row, mat = "tile<1x16xf32, #pto.tile_info<loc=Vec>>", "tile<1x16xf32, #pto.tile_info<loc=Mat>>"
    vector = f"""%t = pto.tile.load %a[%k, %c0] : {M}, {row}
pto.tile.push %t {{fifo = g}} : {row}
%u = pto.tile.pop {{fifo = f}} : {row}
%v = pto.tile.adds %u, %one : {row}, f32
pto.fifo.free {{fifo = f}}
pto.tile.store %v, %out[%k, %c0] : {M}, {row}"""
    left, acc = "tile<1x16xf32, #pto.tile_info<loc=Left>>", "tile<1x16xf32, #pto.tile_info<loc=Acc>>"
    cube = f"""%x = pto.tile.pop {{fifo = g}} : {mat}
%l = pto.tile.mov.m2l %x : {mat} -> {left}
pto.fifo.free {{fifo = g}}
%z = pto.tile.matmul %l, %r : {left}, {tile("Right")} -> {acc}
pto.tile.push %z {{fifo = f}} : {acc}"""
    right = f"%y = pto.tile.load %b[%c0, %c0] : {M}, {tile('Mat')}\n%r = pto.tile.mov.m2r %y : {tile('Mat')} -> {tile('Right')}\n"
    one = "%one = pto.constant 1.0 : f32\n"
    a, b, out = run(kernel(both + right + loop.format(16, cube), both + one + loop.format(16, vector)))
    assert np.array_equal(out, a @ b + 1)
    with pytest.raises(Rejected, match="the cores wait for each other: @vector for a tile in f"):
        run(kernel(both + right + loop.format(15, cube), both + one + loop.format(16, vector)))


def pushes(count: int, *, slots: int, pops: int, frees: int) -> str:
    push, pop, free = (
        "pto.tile.push %acc {fifo = f} : " + tile("Acc"),
        "pto.tile.pop {fifo = f} : " + tile("Vec"),
        "pto.fifo.free {fifo = f}",
    )
    cube = "\n".join([opened("f", "c2v", slots), PRODUCT, *[push] * count])
    return kernel(
        cube, "\n".join([opened("f", "c2v", slots), *(f"%t{i} = {pop}\n{free if i < frees else ''}" for i in range(pops))])
    )


@pytest.mark.parametrize(
    ("count", "slots", "pops", "frees", "blocked"),
    [
        (3, 3, 0, 0, ""),
        (4, 3, 0, 0, "@cube for a free slot of f"),
        (5, 2, 5, 5, ""),
        (5, 2, 5, 3, ""),
        (5, 2, 5, 2, "@cube for a free slot of f, @vector for a tile in f"),
        (1, 2, 2, 2, "@vector for a tile in f"),
    ],
)
def test_cores_block_as_the_slots_say(count: int, slots: int, pops: int, frees: int, blocked: str) -> None:
    text = pushes(count, slots=slots, pops=pops, frees=frees)
    if not blocked:
        run(text)
        return
    with pytest.raises(Rejected, match=blocked) as failed:
        run(text)
    assert failed.value.diagnostics[0].code == "Deadlock"


def test_a_core_that_fails_ends_the_run() -> None:
    """The others end, too, and the run reports its error."""
    stops = f"{opened('f', 'c2v')}\n%t = pto.tile.undef : {tile('Vec')}\npto.tile.store %t, %out[%c0, %c0] : {M}, {tile('Vec')}"
    with pytest.raises(Rejected, match="not defined"):
        run(
            kernel(
                f"{opened('f', 'c2v')}{PRODUCT}pto.tile.push %acc {{fifo = f}} : {tile('Acc')}",
                stops + f"\n%x = pto.tile.pop {{fifo = f}} : {tile('Vec')}",
            )
        )


def test_what_does_not_fit_at_run_time_is_an_error() -> None:
    for text, message in (
        (to_vector("rows").replace("8x16", "4x16"), "a tile of \\[8, 16\\] is popped"),
        (
            to_vector("none").replace("pto.fifo.free {fifo = f}", "pto.fifo.free {fifo = f}\npto.fifo.free {fifo = f}"),
            "not freed",
        ),
        (
            to_cube("rows").replace("%t = pto.tile.load %a[%row, %col]", "%t = pto.tile.load %a[%row, %col] {valid = [4, 16]}"),
            "valid in full",
        ),
    ):
        with pytest.raises(Rejected, match=message):
            run(text)


def test_undefined_elements_stay_undefined() -> None:
    text = to_cube("none").replace("%t = pto.tile.load %a[%row, %col]", "%t = pto.tile.load %a[%row, %col] {valid = [4, 16]}")
    with pytest.raises(Rejected, match="not defined"):
        run(text)
    a, b, out = run(text, undef="zero")
    assert np.array_equal(out[:4], (a @ b)[:4])


def errors(text: str) -> list[str]:
    """What reading and verifying says, as `code: message`."""
    try:
        found = ptir.verify(ptir.read(text))
    except Rejected as rejected:
        found = rejected.diagnostics
    return [f"{d.code}: {d.message}" for d in found]


GOOD = to_vector("rows")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (opened("f", "c2v"), opened("g", "c2v"), "UndefinedValue: @cube opens no FIFO f"),
        (opened("f", "c2v"), opened("f", "v2c"), "TypeMismatch: direction of f is"),
        (opened("f", "c2v"), opened("f", "c2v", 4), "TypeMismatch: slots of f is 8, and 4 where it is opened first"),
        (opened("f", "c2v"), opened("f", "c2x"), "TypeMismatch: direction is c2x, expected one of c2v, v2c"),
        (opened("f", "c2v"), opened("f", "c2v", 0), "TypeMismatch: slots is 0, must be positive"),
        (", split = rows} : tile<16x16", "} : tile<16x16", "the tiles of f are split by rows here, and by none where"),
        ("{fifo = f, split = rows} : tile<16x16", "{fifo = f, split = row} : tile<16x16", "split is row, expected one of none"),
        (
            "%n = pto.tile.neg", f"pto.tile.push %t {{fifo = f}} : {tile('Vec', 8, 16)}\n%n = pto.tile.neg",
            "InvalidLocation: @vector does what the cube core does, and what a vector core does",
        ),
    ],
)  # fmt: skip
def test_verify_says_what_is_wrong(old: str, new: str, message: str) -> None:
    assert errors(GOOD) == [] and old in GOOD
    found = errors(GOOD.replace(old, new, 1))
    assert any(message in x for x in found), found


def test_only_the_entry_starts_cores() -> None:
    inner = GOOD.replace("func.func @kernel(", "func.func @helper(").replace(" attributes {pto.entry}", "")
    call = f"func.call @helper(%a, %b, %out) : ({M}, {M}, {M}) -> ()"
    outer = f"func.func @kernel(%a: {M}, %b: {M}, %out: {M}) attributes {{pto.entry}} {{\n{call}\nreturn\n}}\n"
    found = errors(inner.replace("module {\n", "module {\n" + outer))
    assert "IllegalOnTarget: @cube runs on a core of its own; only the entry starts cores" in found


def test_a_core_runs_its_functions_one_after_the_other() -> None:
    """The entry calls both functions twice: the second round begins where the first has ended."""
    names = f"(%a, %b, %out) : ({M}, {M}, {M}) -> ()"
    calls = f"func.call @cube{names}\nfunc.call @vector{names}\n"
    assert calls in GOOD
    for text in (
        GOOD.replace(calls, calls * 2),
        GOOD.replace(calls, calls + calls.replace("cube", "vector", 1).replace("vector", "cube", 1)),
    ):
        assert errors(text) == []
        a, b, out = run(text)
        assert np.array_equal(out, -(a @ b))


def test_the_entry_does_nothing_next_to_its_cores() -> None:
    """It would be done before the cores have ended."""
    t = tile("Vec")
    more = f"%z = pto.constant 0 : index\n%t = pto.tile.load %out[%z, %z] : {M}, {t}\npto.tile.store %t, %a[%z, %z] : {M}, {t}\n"
    names = f"(%a, %b, %out) : ({M}, {M}, {M}) -> ()"
    plain = f"func.func @plain(%a: {M}) {{\nreturn\n}}\n"
    late = [
        GOOD.replace("return\n", more + "return\n", 1),
        GOOD.replace("module {\n", "module {\n" + plain).replace(
            f"@vector{names}\n", f"@vector{names}\nfunc.call @plain(%a) : ({M}) -> ()\n"
        ),
    ]
    for text in late:
        assert any("next to cores, which run when it has ended" in x for x in errors(text)), text
    before = GOOD.replace(f"func.call @cube{names}", more.replace("%a[", "%b[") + f"func.call @cube{names}")
    assert errors(before) == []


def test_a_tile_that_is_larger_than_its_slot_is_a_warning() -> None:
    small = GOOD.replace("slotSize = 1024", "slotSize = 1023")
    assert errors(small) == ["CapacityExceeded: the tile has 1024 bytes, a slot of f has 1023"] * 2


def test_a_run_is_the_same_in_every_order() -> None:
    text = ptir.write(ptir.optimize(ptir.read(to_vector("columns")), "pto-insert-events"), "pto")
    assert "wait(" in text
    found = {run(text, order=order, seed=1)[2].tobytes() for order in ("sequential", "adversarial", "random")}
    assert len(found) == 1


# The assembler's text

ACC, VEC, HALF = buffer("acc", 16, 16), buffer("vec", 16, 16), buffer("vec", 8, 16)
MAT, LEFT, RIGHT = (buffer(loc, 16, 16) for loc in ("mat", "left", "right"))
PTR = "!pto.ptr<f32>"


def assembler(*, split: int = 1, cube: str = "", vector: str = "", size: int = 8192, name: str = "fifo") -> str:
    """A product in the cube core, which the vector cores store: as `ptoas` spells it."""
    half = HALF if split == 1 else VEC if split == 0 else buffer("vec", 16, 8)
    rows, cols = HALVES[("none", "rows", "columns")[split]]
    view = "pto.make_tensor_view {0}, shape = [%c16, %c16], strides = [%c16, %c1] : !pto.tensor_view<?x?xf32>"
    window = "!pto.partition_tensor_view<{3}xf32>"
    part = f"pto.partition_view {{0}}, offsets = [{{1}}], sizes = [{{2}}] : !pto.tensor_view<?x?xf32> -> {window}"
    loads = "".join(
        f"%{x}v = {view.format(f'%{x}')}\n%{x}w = {part.format(f'%{x}v', '%c0, %c0', '%c16, %c16', '16x16')}\n"
        f"%{x}m = pto.alloc_tile : {MAT}\npto.tload ins(%{x}w : !pto.partition_tensor_view<16x16xf32>) outs(%{x}m : {MAT})\n"
        f"%{x}t = pto.alloc_tile : {t}\npto.tmov ins(%{x}m : {MAT}) outs(%{x}t : {t})\n"
        for x, t in (("a", LEFT), ("b", RIGHT))
    )
    numbers = "".join(f"%c{n} = arith.constant {n} : index\n" for n in (0, 1, 8, 16)) + "%z = arith.constant 0 : i32\n"
    where = {0: "%c0, %c0", 1: "%at, %c0", 2: "%c0, %at"}[split]
    return f"""module {{
func.func @kernel(%a: {PTR}, %b: {PTR}, %out: {PTR}) attributes {{pto.entry}} {{
call @cube(%a, %b) : ({PTR}, {PTR}) -> ()
call @vector(%out) : ({PTR}) -> ()
return
}}
func.func @cube(%a: {PTR}, %b: {PTR}) attributes {{pto.kernel_kind = #pto.kernel_kind<cube>}} {{
{numbers}%buf = pto.import_reserved_buffer {{name = "{name}", peer_func = @vector}} -> i32
pto.aic_initialize_pipe {{dir_mask = 1, slot_size = 1024}} (c2v_consumer_buf = %buf : i32, v2c_consumer_buf = %z : i32)
{loads}%acc = pto.alloc_tile : {ACC}
pto.tmatmul ins(%at, %bt : {LEFT}, {RIGHT}) outs(%acc : {ACC})
pto.tpush_to_aiv(%acc : {ACC}) {{split = {split}}}
{cube}return
}}
func.func @vector(%out: {PTR}) attributes {{pto.kernel_kind = #pto.kernel_kind<vector>}} {{
{numbers}%buf = pto.reserve_buffer {{name = "fifo", size = {size}, location = #pto.address_space<vec>, auto = true}} -> i32
pto.aiv_initialize_pipe {{dir_mask = 1, slot_size = 1024}} (c2v_consumer_buf = %buf : i32, v2c_consumer_buf = %z : i32)
%core = pto.get_subblock_idx
%core.i = arith.index_cast %core : i64 to index
%at = arith.muli %core.i, %c8 : index
%t = pto.tpop_from_aic {{split = {split}}} -> {half}
%v = {view.format("%out")}
%w = {part.format("%v", where, f"%c{rows}, %c{cols}", f"{rows}x{cols}")}
pto.tstore ins(%t : {half}) outs(%w : !pto.partition_tensor_view<{rows}x{cols}xf32>)
{vector}pto.tfree_from_aic {{split = {split}}}
return
}}
}}
"""


@pytest.mark.parametrize("split", [0, 1, 2])
def test_the_assemblers_pipes_are_fifos(split: int) -> None:
    program = ptir.read(assembler(split=split))
    a, b, out = run(ptir.write(program, "pto"))
    assert np.array_equal(out, a @ b)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "fifo", peer', 'name = "other", peer', "@vector reserves no buffer `other`"),
        ("pto.aiv_initialize_pipe {dir_mask = 1", "pto.aiv_initialize_pipe {dir_mask = 4", "dir_mask is 4, must be 1, 2 or 3"),
        ("slot_size = 1024}", "slot_size = 1024, nosplit = true}", "the pipe splits tiles by none, not rows"),
        ("tpush_to_aiv(%acc : ", "tpush_to_aiv(%at : ", "operand 0 must be loc=Acc or Vec, is Left"),
        ("{split = 1}", "{split = 3}", "split is 3, must be 0, 1 or 2"),
        ("pto.tpop_from_aic {", "pto.tpop_from_aiv {", "the pipe of @vector has no direction v2c"),
        (
            "pto.tpop_from_aic {",
            "pto.tpop_from_aic(%c8, %c16) {",
            "a pop with valid extents makes a tile with `v_row=?, v_col=?`",
        ),
        ("auto = true", "auto = true, base = 0", "a buffer has either `auto = true` or a `base`"),
        ("auto = true", "auto = false, base = 0", ""),
    ],
)
def test_what_is_wrong_with_the_assemblers_pipes(old: str, new: str, message: str) -> None:
    text = assembler()
    assert old in text and errors(text) == []
    found = errors(text.replace(old, new, 1))
    assert any(message in x for x in found) if message else not found, found


def test_a_pipe_with_a_name_and_a_declared_tile() -> None:
    """The form that the assembler's own passes write."""
    pipe = "{dir_mask = 1, slot_size = 1024, slot_num = 8, flag_base = 0}(%buf : i32) -> !pto.pipe"
    text = assembler()
    for core in ("aic", "aiv"):
        start = text.index(f"pto.{core}_initialize_pipe")
        end = text.index("\n", start)
        text = f"{text[:start]}%pipe = pto.initialize_l2l_pipe {pipe}{text[end:]}"
    text = text.replace(f"pto.tpush_to_aiv(%acc : {ACC})", f"pto.tpush(%acc, %pipe : {ACC}, !pto.pipe)")
    text = text.replace(
        f"%t = pto.tpop_from_aic {{split = 1}} -> {HALF}",
        f"%t = pto.declare_tile -> {HALF}\npto.tpop(%t, %pipe : {HALF}, !pto.pipe) {{split = 1}}",
    ).replace("pto.tfree_from_aic {", "pto.tfree(%pipe : !pto.pipe) {")
    a, b, out = run(ptir.write(ptir.read(text), "pto"))
    assert np.array_equal(out, a @ b)


def test_the_number_of_the_block_is_passed_to_the_cores() -> None:
    text = assembler().replace("%core = ", "%block = pto.get_block_idx\n%core = ")
    program = ptir.read(text)
    assert [p.name for p in program.main.params] == ["a", "b", "out", "block_idx"] and errors(text) == []


def test_a_shifted_pointer_is_for_pipes_alone() -> None:
    text = assembler().replace("%buf = pto.import", "%far = pto.addptr %a, %c16 : <f32> -> <f32>\n%buf = pto.import")
    assert errors(text.replace("(c2v_consumer_buf", f"(gm_slot_buffer = %far : {PTR}, c2v_consumer_buf", 1)) == []
    assert any(
        "a pointer, expected a scalar" in x for x in errors(text.replace("make_tensor_view %a,", "make_tensor_view %far,"))
    )


def test_the_examples_of_the_code_are_one_that_blocks_and_one_that_does_not() -> None:
    code = next(c for c in DIALECT.explain() if c.code == "Deadlock")
    with pytest.raises(Rejected, match="the cores wait for each other: @cube for a tile in f"):
        ptir.run(ptir.read(code.wrong), {})
    ptir.run(ptir.read(code.right), {})


LOADED = f"%x = pto.tile.load %out[%c0, %c0] : {M}, {tile('Mat')}"
STORED = f"pto.tile.store %t, %out[%c0, %c0] : {M}, {tile('Vec')}"
PUSHED = f"pto.tile.push %t {{fifo = h, split = none}} : {tile('Vec')}"
POPPED = f"%p = pto.tile.pop {{fifo = h, split = none}} : {tile('Mat')}"
FREED = "pto.fifo.free {fifo = h}"


@pytest.mark.parametrize(
    ("cube", "vector", "kind"),
    [
        ([POPPED, LOADED, FREED], [STORED, PUSHED], ""),
        ([LOADED, POPPED, FREED], [STORED, PUSHED], "store writes .*, which load reads"),
        ([POPPED, LOADED, FREED], [PUSHED, STORED], "which (store writes|load reads)"),
        ([POPPED, LOADED, FREED], [PUSHED, PUSHED, STORED], ""),  # the second push waits for the slot
        ([POPPED, FREED, LOADED], [PUSHED, PUSHED, STORED], "which (store writes|load reads)"),
    ],
)
def test_memory_that_cores_share_is_ordered_by_their_fifos(cube: list[str], vector: list[str], kind: str) -> None:
    load = f"%t = pto.tile.load %a[%c0, %c0] : {M}, {tile('Vec')}"
    text = kernel(*("\n".join([opened("h", "v2c", slots=1), *lines]) for lines in (cube, [load, *vector])))
    if not kind:
        a, _, out = run(text)
        assert np.array_equal(out, a)
        return
    with pytest.raises(Rejected, match=f"{kind}.*: they are on different cores"):
        run(text)


@pytest.mark.parametrize("how", ["", "{atomic = #pto.atomic<AtomicAdd>} "])
def test_vector_cores_may_add_to_the_same_memory(how: str) -> None:
    t = tile("Vec", 8, 16)
    take = f"{opened('f', 'c2v')}\n%t = pto.tile.pop {{fifo = f, split = rows}} : {t}\n"
    take += f"pto.tile.store %t, %out[%c0, %c0] {how}: {M}, {t}\npto.fifo.free {{fifo = f}}"
    text = kernel(f"{opened('f', 'c2v')}{PRODUCT}pto.tile.push %acc {{fifo = f, split = rows}} : {tile('Acc')}", take)
    if how:
        a, b, out = run(text)
        assert np.array_equal(out[:8], (a @ b)[:8] + (a @ b)[8:])
        return
    with pytest.raises(Rejected, match=r"WAW: store writes .*, which store writes"):
        run(text)


def test_a_popped_tile_is_not_used_after_its_slot_was_freed() -> None:
    text = to_vector("none")
    free, negate = "pto.fifo.free {fifo = f}\n", text[text.index("%n = pto.tile.neg") :].partition("\n")[0] + "\n"
    ptir.verify(ptir.read(text))
    with pytest.raises(Rejected, match="%t is used after its slot was freed"):
        ptir.verify(ptir.read(text.replace(free, "").replace(negate, free + negate)))
