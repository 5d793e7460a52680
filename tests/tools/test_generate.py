"""The generators of `ptir gen`: what they make is valid, runs, and covers the declarations, all of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.builder import single_function
from ptir_tools.core.choices import Seeded
from ptir_tools.core.declare import OPS
from ptir_tools.core.declare import op as declare
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import ELEMENTWISE, PURE, REQUIRED, SEGMENTS, Derived, Element, Literal, Op, OpDef, Value, operand_type
from ptir_tools.core.source import Source
from ptir_tools.core.symbols import mentioned, symbolic
from ptir_tools.core.types import Sym, TensorType, TupleType, leaves, tensor
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects import DIALECTS, load_dialect, load_format
from ptir_tools.engines import RunOptions, compare, native, run
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.tools import fuzz
from tests.oracles import table

IRS = ("ptir", "mind", "tiny")
ENGINES = ("reference", "numpy", *["native"] * native.available())
SEEDS = {"ptir": 2500, "mind": 250, "tiny": 500}  # in which everything comes up


def made(ir: str, seed: int, **how: object) -> Program:
    """The program of a seed."""
    generate = load_dialect(ir).generate
    assert generate is not None
    return generate(Seeded(seed), **how)


def text(program: Program) -> str:
    return "".join(load_format(program.dialect.name).write(program, Diagnostics(), Options()))


def ops(program: Program) -> Iterator[Op]:
    return (op for block in program.blocks() for op in block.body)


def dtypes(op: Op) -> Iterable[DType]:
    """The dtypes of an op's data: of its operands, or of its result if it has none."""
    found = [leaf.dtype for x in op.operands for leaf in leaves(operand_type(x)) if isinstance(leaf, TensorType)]
    return found or [leaf.dtype for v in op.results for leaf in leaves(v.type) if isinstance(leaf, TensorType)]


def is_default(op: Op, name: str) -> bool:
    """Whether an attribute is what it would be if it were not given."""
    a = op.defn.attrs[op.defn.attr_index[name]]
    if isinstance(a.default, Derived):
        return a.default.rule(op.defn.named(op.attrs), tuple(map(operand_type, op.operands))) == op.attr(name)
    return a.default == op.attr(name) and type(a.default) is type(op.attr(name))


def of_op(op: Op) -> Iterator[str]:
    """What one op covers."""
    name = op.defn.short
    yield name
    yield from (f"{name}: {d}" for d in dtypes(op))
    for a in op.defn.attrs:
        if a.default is not REQUIRED and a.name != SEGMENTS and not is_default(op, a.name):
            yield f"{name}: {a.name} off its default"


def of_ptir(program: Program) -> Iterator[str]:
    """What a PTIR program covers beyond its ops."""
    called = [r for op in ops(program) for r in op.regions]
    regions = set(program.regions)
    entering = {d for f in program.functions for p in f.params for d in mentioned(p.type)}
    for block in program.blocks():
        used = {v for op in block.body for v in op.values()}
        used |= {x if isinstance(x, Value) else x.value for x in block.results if not isinstance(x, Literal)}
        if any(not used.intersection(op.results) for op in block.body):
            yield "a dead op"
        for op in block.body:
            name = op.defn.short
            for x in op.operands:
                if isinstance(x, Element):
                    yield "an element of a tuple as an operand"
                    if x.value.op is not None and x.value.op.regions and name in ("take", "gather", "dynamic_slice"):
                        yield "a result of a loop or branch read by an index op"
                if isinstance(x, Literal) and x.type.is_static and x.type.count > 1:
                    yield "an inline literal of several elements"
                if isinstance(operand_type(x), TupleType):
                    yield f"a tuple carried by {name}"
                if isinstance(x, Literal):
                    yield from (f"a literal with {what}" for what in special(x))
            for v in op.results:
                if isinstance(v.type, TupleType) and any(isinstance(t, TupleType) for t in v.type.elements):
                    yield "a nested tuple"
                for _ in mentioned(v.type):
                    yield f"a symbol in a result of {name}"
                for d in symbolic(v.type):
                    if d not in entering:
                        yield f"a symbol that {name} derives"
                for leaf in leaves(v.type):
                    if isinstance(leaf, TensorType):
                        yield from (f"an extent {d}" for d in leaf.shape if d in (0, 1))
            if any(r in regions and block in regions for r in op.regions):
                yield f"{name} inside a region"
    if len(called) > len(set(called)):
        yield "a shared region"
    if regions - set(called):
        yield "an orphan region"
    if len(program.functions) > 1:
        yield "several functions"
    for hint in (h for f in program.functions for h in f.annotations):
        yield f"a hint {hint.kind}"
        yield f"a hint {hint.policy}"
        if len(hint.body) > 1:
            yield "a hint of several ops"
        if hint.attrs:
            yield "a hint with attributes"
    if any(isinstance(x, (Element, Literal)) for b in program.blocks() for x in b.results):
        yield "an element or literal as a result"


def special(x: Literal) -> Iterator[str]:
    """What is special about the elements of a literal."""
    dtype = x.type.dtype
    with np.errstate(all="ignore"):
        if dtype.is_float:
            wide = from_literal(x).astype(np.float64)
            yield from ["NaN"] * bool(np.isnan(wide).any()) + ["inf"] * bool(np.isinf(wide).any())
            yield from ["-0.0"] * bool((np.signbit(wide) & (wide == 0)).any())
        elif dtype.is_integer and x.type.count:
            yield from ["the ends of an integer"] * (dtype.max in from_literal(x).astype(object))


PTIR = {
    "a dead op", "an element of a tuple as an operand", "a result of a loop or branch read by an index op",
    "an inline literal of several elements", "a nested tuple", "an extent 0", "an extent 1", "a shared region",
    "an orphan region", "several functions", "a hint of several ops", "a hint with attributes",
    "an element or literal as a result",
    "a tuple carried by cond", "a tuple carried by while", "a tuple carried by scan",
    "cond inside a region", "while inside a region", "scan inside a region",
    "a hint ElementwiseDag", "a hint DotEpilogue", "a hint ReductionChain", "a hint Optional", "a hint Preferred",
    "a hint Required",
    "a literal with NaN", "a literal with inf", "a literal with -0.0", "a literal with the ends of an integer",
    *(f"a symbol that {name} derives" for name in ("concat", "pad", "tile", "reshape", "reduce_window", "extract_patches")),
}  # fmt: skip


def of_tiny(program: Program) -> Iterator[str]:
    """What a Tiny graph covers beyond its ops; the program is as it was made, not yet explicit."""
    for x in program.main.params:
        yield from ("an extent that is " + ("a symbol" if s.poly is None else "an expression") for s in symbolic(x.type))
    yield "outputs " + ("named" if program.attrs["outputs"] else "found")
    for op in ops(program):
        yield from ("an immediate" for x in op.operands if isinstance(x, Literal))
        types = [operand_type(x) for x in op.operands if not isinstance(x, Literal)]
        if ELEMENTWISE in op.defn.traits and len(types) > 1 and isinstance(types[-1], TensorType):
            yield from ("an EXPAND left out" for t in types if t.shape != op.result.type.shape)  # type: ignore[union-attr]
            yield from ("a CAST left out" for t in types[1:] if t.dtype is not types[-2].dtype and types[-2].dtype.is_float)  # type: ignore[union-attr]
        if "axes" in op.defn.attr_index:
            yield from (f"axes that are {type(a).__name__}" for a in op.attr("axes"))
        if "op" in op.defn.attr_index:
            yield f"a reduction {op.attr('op')}"
        yield from (f"a symbol in a result of {op.defn.short}" for v in op.results for _ in mentioned(v.type))


TINY = {
    "an immediate", "an EXPAND left out", "a CAST left out", "an extent that is a symbol", "an extent that is an expression",
    "axes that are int", "axes that are str", "outputs named", "outputs found", "a reduction SUM",
    "a reduction MAX", "a reduction MIN",
}  # fmt: skip


def of_mind(program: Program) -> Iterator[str]:
    """What a MIND module covers beyond its ops."""
    for op in ops(program):
        if len(op.operands) == 2 and ELEMENTWISE in op.defn.traits:
            a, b = (operand_type(x) for x in op.operands)
            yield from ["operands that broadcast"] * (a is not b)
        if "padding" in op.defn.attr_index:
            padding = op.attr("padding")
            yield f"padding {padding if isinstance(padding, str) else 'Custom'}"
        if "keepdims" in op.defn.attr_index:
            yield f"keepdims {op.attr('keepdims')}"
        if any(0 in v.type.shape for v in op.results if isinstance(v.type, TensorType)):
            yield "an extent 0"


MIND = {
    "operands that broadcast",
    "padding Same",
    "padding Valid",
    "padding Custom",
    "keepdims True",
    "keepdims False",
    "an extent 0",
}
BEYOND = {"ptir": (of_ptir, PTIR), "mind": (of_mind, MIND), "tiny": (of_tiny, TINY)}


def usual(ir: str) -> list[OpDef]:
    """The ops that programs have without a profile."""
    return [d for d in load_dialect(ir).ops.values() if d.own is None or ir != "mind"]  # `own` of MIND: the profile


def takes(ir: str) -> Iterator[str]:
    """The pairs of op and dtype: those of the oracle's table for PTIR, else those that the rule takes of one type."""
    if ir == "ptir":
        yield from (f"{row.op}: {d}" for row in table.ROWS for d in map(str, row.dtypes))
        return
    generated = importlib.import_module(f"ptir_tools.dialects.{ir}.generate").DTYPES
    for d in usual(ir):
        if ELEMENTWISE in d.traits and all(a.default is not REQUIRED for a in d.attrs):
            for dtype in generated:
                try:
                    d.result_types((tensor(dtype, (2,)),) * len(d.groups), d.fill({}))
                except Violation:
                    continue
                yield f"{d.short}: {dtype}"


@pytest.mark.parametrize("ir", IRS)
def test_everything_comes_up(ir: str) -> None:
    """Every op, every attribute off its default, every dtype that an op takes, and what makes programs of this IR hard."""
    beyond, wanted = BEYOND[ir]
    missing = set(wanted) | set(takes(ir))
    for d in usual(ir):
        missing.add(d.short)
        missing.update(
            f"{d.short}: {a.name} off its default" for a in d.attrs if a.default is not REQUIRED and a.name != SEGMENTS
        )
    for seed in range(SEEDS[ir]):
        program = made(ir, seed)
        missing.difference_update(beyond(program))
        for op in ops(program):
            missing.difference_update(of_op(op))
        if not missing:
            return
    assert not missing, sorted(missing)


@pytest.mark.parametrize("ir", IRS)
def test_every_program_is_valid_and_runs(ir: str) -> None:
    """What is made verifies, prints, reads back to the same text, and gives the same numbers on every engine."""
    agreed(ir, range(60))


@pytest.mark.parametrize("ir", (*IRS, "pto"))
def test_a_program_that_was_never_verified_means_what_its_text_means(ir: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Straight from the generator, and written and read: the same on every engine, optimized, and translated."""
    for seed in range(25):
        read = ptir.read(ptir.write(made(ir, seed)), ir)
        sizes = compare.small_sizes(read, {})
        inputs = list(random_inputs(read, seed, bindings=sizes).values())
        for engine in ENGINES if ir != "pto" else ("auto",):
            want = outcome(partial(ptir.run, read, inputs, bind=sizes, engine=engine))
            assert outcome(partial(ptir.run, made(ir, seed), inputs, bind=sizes, engine=engine)) == want, (seed, engine)
            assert outcome(partial(ptir.compile(made(ir, seed), bind=sizes, engine=engine), inputs)) == want, (seed, engine)
        assert ptir.write(ptir.optimize(made(ir, seed))) == ptir.write(ptir.optimize(read)), seed
        if ir != "pto":
            straight, back = (outcome(partial(ptir.translate, p, "ptir")) for p in (made(ir, seed), read))
            assert straight == back, seed


def outcome(what: Callable[[], Any]) -> object:
    """What comes out, to the bit, or the first thing that is wrong."""
    try:
        found = what()
    except ptir.Rejected as rejected:
        return rejected.diagnostics[0].code, rejected.diagnostics[0].message
    return text(found) if isinstance(found, Program) else [(a.dtype, a.shape, a.tobytes()) for a in found.values()]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_graph_leaves_implicit_is_no_wrong_number(engine: str) -> None:
    """Axes counted from the end and by name, and an EXPAND left out, in a graph made by hand; the program stays as it is."""
    program, b = single_function(load_dialect("tiny"))
    x = b.param(tensor(F32, (2, Sym("N"))), "x")
    low = b.op("REDUCE", x, op="MAX", axes=(-2,), dtype=F32)
    summed = b.op("REDUCE", x, op="SUM", axes=("N",), dtype=F32)
    scaled = b.op("MUL", x, x)
    scaled.op.operands = (x, low)
    b.results(low, summed, scaled)
    before, given = text(program), np.array([[1, 2, 3], [4, 0, -8]], np.float32)
    found = list(ptir.run(program, [given], engine=engine).values())
    for got, want in zip(found, (given.max(0), given.sum(1), given * given.max(0)), strict=True):
        np.testing.assert_array_equal(got, want)
    assert text(program) == before


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("ir", IRS)
def test_many_programs_are_valid_and_run(ir: str) -> None:
    agreed(ir, range(1000, 2500))


def agreed(ir: str, seeds: Iterable[int]) -> None:
    for seed in seeds:
        program = made(ir, seed)
        shown, diagnostics = text(program), Diagnostics()
        assert shown == text(made(ir, seed))
        assert verify(program, diagnostics), (seed, [d.message for d in diagnostics])
        explicit = text(program)
        source = Source("t", explicit)
        again = load_format(ir).read(source, Diagnostics(source), Options())
        assert again is not None and verify(again, Diagnostics(source)) and text(again) == explicit, (seed, explicit)
        sizes = compare.small_sizes(program, {})
        with np.errstate(all="ignore"):
            inputs = random_inputs(program, seed, bindings=sizes)
            expected, tolerances = compare.reference_outputs(program, inputs, RunOptions(bindings=sizes))
            for engine in ENGINES:
                got = run(program, inputs, RunOptions(bindings=sizes, engine=engine))
                assert compare.compare(expected, got, tolerances) == [], (seed, engine)


@pytest.mark.parametrize("ir", IRS)
def test_time_grows_with_the_size_alone(ir: str) -> None:
    """Ten times the ops take about ten times the work: counted in calls, which no other process slows."""

    def calls(size: int) -> int:
        count = 0

        def tally(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(tally)
        try:
            made(ir, 3, size=size)
        finally:
            sys.setprofile(None)
        return count

    made(ir, 3, size=300)
    assert calls(3000) < 25 * calls(300)


def test_a_new_op_is_generated_from_its_declaration() -> None:
    """An elementwise op, one that reduces and one with simple attributes, declared here and nowhere else mentioned."""

    def pairs(x: TensorType, y: TensorType) -> TensorType:
        require(x is y and x.dtype in (F32, SI32), "DTypeNotSupported", "two alike")
        return x

    def reduced(x: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
        require(all(-x.rank <= a < x.rank for a in axes), "InvalidAttributeValue", "axes")
        return x.with_shape(d for i, d in enumerate(x.shape) if i not in {a % x.rank for a in axes})

    def simple(x: TensorType, *, slope: float, times: int, dtype: DType | None) -> TensorType:
        require(times >= 0, "InvalidAttributeValue", "times")
        return x if dtype is None else x.with_dtype(dtype)

    try:

        @declare("ptir.new_pair", infer=pairs, traits=PURE | ELEMENTWISE)
        def new_pair(x: Any, y: Any) -> Any:
            """Two alike."""

        @declare("ptir.new_reduction", infer=reduced, traits=PURE)
        def new_reduction(x: Any, *, axes: tuple[int, ...], keepdims: bool = False) -> Any:
            """Axes gone."""

        @declare("ptir.new_simple", infer=simple, traits=PURE)
        def new_simple(x: Any, *, slope: float = 0.25, times: int, dtype: DType | None = None) -> Any:
            """A slope."""

        seen: set[str] = set()
        for seed in range(60):
            for each in ops(made("ptir", seed, only=("new_pair", "new_reduction", "new_simple"))):
                seen.update(of_op(each))
        assert seen >= {
            "new_pair: f32", "new_pair: si32", "new_reduction: keepdims off its default", "new_simple: slope off its default",
            "new_simple: dtype off its default",
        }  # fmt: skip
        assert "new_pair: f64" not in seen
    finally:
        for name in ("new_pair", "new_reduction", "new_simple"):
            OPS.pop(f"ptir.{name}", None)


@pytest.mark.parametrize("ir", fuzz.generators())
def test_names_are_easily_taken_for_something_else(ir: str) -> None:
    """Numbers, words of the text, parts of each other: each comes up, and the text of such a program is read as it was."""
    left, dialect = set(DIALECTS[ir].odd_names), load_dialect(ir)
    assert len(left) > 15
    for seed in range(400):
        if not left:
            break
        program = dialect.random(Seeded(seed), size=6)
        if left & (found := names(program)):
            left -= found
            text = "".join(fuzz._texts(program, ir))
            again = fuzz._read(text, ir)
            assert again is not None, (seed, fuzz._first_error(text, ir))
            assert names(again) >= found
    assert not left


def names(program: Program) -> set[str]:
    """Those of all values."""
    return {v.name for b in program.blocks() for v in (*b.params, *(v for op in b.body for v in op.results)) if v.name}
