"""Kernels on several cores in C++ and in the assembler's text: what is written computes what a run computes, in every order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.text.cpp.host import host
from tests.pto.test_cpp import compiled, same
from tests.pto.test_fifos import GOOD, PRODUCT, kernel, opened, run, tile, to_cube, to_vector

BIG = "pto.memref<160x16xf32>"
VEC, NZ = tile("Vec"), tile("Vec").replace("loc=Vec", "loc=Vec, layout=Nz")


def around(target: str, slots: int = 4, stored: str = "") -> str:
    """Products go to the vector core, and come back negated for another product: ten rounds through a few slots."""
    moved = ("%z", NZ) if target == "a5" else ("%n", VEC)
    move = f"%z = pto.tile.mov.v2v %n : {VEC} -> {NZ}" if target == "a5" else ""
    loop = "%c1 = pto.constant 1 : index\n%c10 = pto.constant 10 : index\n%c16 = pto.constant 16 : index\n"
    loop += "scf.for %i = %c0 to %c10 step %c1 {\n%row = pto.muli %i, %c16 : index\n"
    pipes = f"{opened('f', 'c2v', slots)}\n{opened('g', 'v2c', slots)}\n{loop}"
    cube = f"""{pipes}{PRODUCT}pto.tile.push %acc {{fifo = f}} : {tile("Acc")}
%p = pto.tile.pop {{fifo = g}} : {tile("Mat")}
%q = pto.tile.mov.m2l %p : {tile("Mat")} -> {tile("Left")}
%s = pto.tile.matmul %q, %r : {tile("Left")}, {tile("Right")} -> {tile("Acc")}
pto.fifo.free {{fifo = g}}
pto.tile.store %s, %out[%row, %c0] : {BIG}, {tile("Acc")}
}}"""
    vector = f"""{pipes}%t = pto.tile.pop {{fifo = f}} : {VEC}
%n = pto.tile.neg %t : {VEC} -> {VEC}
{stored}{move}
pto.fifo.free {{fifo = f}}
pto.tile.push {moved[0]} {{fifo = g}} : {moved[1]}
}}"""
    text = kernel(cube, vector).replace("%a[%c0, %c0]", "%a[%row, %c0]")
    return text.replace("pto.memref<16x16xf32>", BIG)


def lowered(text: str, target: str):
    return ptir.optimize(ptir.read(text), f"pto{{target={target}}}")


@compiled
@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("target", ["a3", "a5"])
def test_every_order_of_the_pipes_computes_the_same(target: str, slots: int, tmp_path: Path) -> None:
    same(lowered(around(target, slots), target), tmp_path)


@compiled
@pytest.mark.parametrize("target", ["a3", "a5"])
def test_a_popped_tile_may_be_used_by_every_pipe(target: str, tmp_path: Path) -> None:
    """A pop of a5 makes the vector pipe wait; a store of the tile waits, too, and keeps the slot."""
    text = around(target, stored=f"pto.tile.store %t, %b[%row, %c0] : {BIG}, {VEC}\n")
    text = text.replace("%y = pto.tile.load %b[%c0, %c0]", "%y = pto.tile.load %a[%c0, %c0]")
    same(lowered(text, target), tmp_path)


@pytest.mark.parametrize("target", ["a3", "a5"])
@pytest.mark.parametrize("split", ["none", "rows", "columns"])
def test_the_assemblers_text_is_read_back(split: str, target: str) -> None:
    texts = [(to_vector(split), -1)] if target == "a5" else [(to_vector(split), -1), (to_cube(split), 1)]
    for text, sign in texts if (split, target) != ("columns", "a5") else ():
        written = ptir.write(lowered(text, target), "ptoas")
        assert "!pto.pipe" in written and "pto.kernel_kind = #pto.kernel_kind<vector>" in written
        memory = {"f_slots": np.zeros(2048, np.float32), "g_slots": np.zeros(2048, np.float32)}
        program = ptir.read(written)
        a, b = (np.random.default_rng(k).integers(-4, 5, (16, 16)).astype(np.float32) for k in range(2))
        given = {"a": a, "b": b, "out": np.zeros((16, 16), np.float32)}
        given |= {p.name: memory[p.name] for p in program.main.params if p.name in memory}
        assert np.array_equal(np.asarray(ptir.run(program, given)["out"]), sign * (a @ b))
        again = ptir.optimize(program, f"pto{{target={target}}}")
        assert "TPOP<" in ptir.write(again, "pto-cpp")
        assert ("pto.set_ffts %ffts" in written) == (target == "a3")


def test_the_host_program_compiles_the_functions_for_each_core() -> None:
    made = host(lowered(to_vector("rows"), "a3"), Options())
    for text in ("on_cube::kernel(", "on_vector::kernel(", "k < 2", "f_slots(8192)"):
        assert text in made.text, made.text


HALF = tile("Vec", 8, 16)


@pytest.mark.parametrize(
    ("target", "text", "form", "message"),
    [
        ("a3", to_vector("none").replace("fifo = f", "fifo = f_" * 1), "pto-as", "assembly shows one core"),
        ("a5", to_cube("rows"), "pto-cpp", "a tile of layout ND is pushed; on this target it is Nz"),
        ("a5", to_vector("columns"), "pto-cpp", "is split by columns; this target splits 32 bits"),
        ("a3", GOOD.replace("@vector(%a, %b, %out) : ", "@vector(%a, %b, %out) : ", 1), "pto-as", "assembly shows one core"),
        ("a3", GOOD.replace("slots = 8", "slots = 3"), "ptoas", "f has 3 slots, a pipe of the assembler 4 or 8"),
        ("a5", GOOD.replace("slots = 8", "slots = 800"), "pto-cpp", "there is no room for the slots of f"),
        (
            "a3",
            f"{GOOD[: GOOD.rindex('return')]}pto.fifo.free {{fifo = f}}\n{GOOD[GOOD.rindex('return') :]}".replace(
                "%t = pto.tile.pop {fifo = f, split = rows}", "%t = pto.tile.undef"
            ).replace("%row, %col] : ", "%row, %col] : "),
            "pto-cpp",
            "a slot of f is freed, and @vector pops no tile of it",
        ),
        (
            "a3",
            around("a3").replace("pto.tile.pop {fifo = f}", "pto.tile.pop {fifo = f, valid = [8, 16]}", 1),
            "pto-cpp",
            "a tile that is not valid in full is popped",
        ),
    ],
)
def test_what_the_librarys_pipes_cannot_do_is_refused(target: str, text: str, form: str, message: str) -> None:
    with pytest.raises(Rejected) as failed:
        ptir.write(lowered(text, target), form)
    assert any(message in d.message for d in failed.value.diagnostics), [d.message for d in failed.value.diagnostics]


def test_a_core_is_started_once() -> None:
    names = "(%a, %b, %out) : (pto.memref<16x16xf32>, pto.memref<16x16xf32>, pto.memref<16x16xf32>) -> ()"
    calls = f"func.call @cube{names}\nfunc.call @vector{names}\n"
    text = GOOD.replace(calls, calls * 2)
    assert text != GOOD and run(text)
    with pytest.raises(Rejected, match="is started more than once"):
        ptir.write(lowered(text, "a3"), "pto-cpp")
