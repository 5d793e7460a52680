"""A translation proven by running: both sides on the same inputs, there and back."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

import numpy as np

from ptir_tools.convert import translate
from ptir_tools.core.arrays import from_literal, to_literal
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import BF16, F16, F32, F64, SI32, SI64
from ptir_tools.core.ir import ELEMENTWISE, Literal, Value, create, operand_type
from ptir_tools.core.source import Source
from ptir_tools.core.types import TensorType
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect, load_format
from ptir_tools.dialects.mind import generate as mind
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.engines import compare
from ptir_tools.engines.inputs import random_array, random_inputs
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.context import Floats

IRS = ("ptir", "mind", "tiny")
REFUSALS = {"NotTranslatable", "E6001", "E6006", "UnboundSymbol"}


@dataclass(slots=True)
class Translated:
    """What became of a program: None and the errors when it was refused; the values of constants that Tiny keeps outside."""

    program: Program | None
    diagnostics: Diagnostics
    constants: dict[str, Literal] = field(default_factory=dict)

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(d.code, d.message) for d in self.diagnostics if d.severity is Severity.ERROR]

    @property
    def notes(self) -> list[str]:
        return [d.code for d in self.diagnostics if d.severity is Severity.NOTE]


def translated(
    before: Program, target: str, *, lossy: bool = False, constants: dict[str, Literal] | None = None, pool: bool = True
) -> Translated:
    """The translation, verified, and read again from its text."""
    diagnostics = Diagnostics(before.source)
    kept = dict(constants or {})
    made = translate(before, target, diagnostics, Options(lossy=lossy, constants=kept if pool else None))
    if made is None:
        return Translated(None, diagnostics, kept)
    found = Diagnostics()
    assert verify(made, found), [(d.code, d.message) for d in found]
    return Translated(reread(made), diagnostics, kept)


def text(program: Program, form: str | None = None) -> str:
    """The text of a program."""
    return "".join(load_format(form or program.dialect.name).write(program, Diagnostics(), Options()))


def parse(source: str, form: str) -> Program:
    """The verified program of a text."""
    diagnostics = Diagnostics(Source("t", source))
    program = load_format(form).read(diagnostics.source, diagnostics, Options())
    assert program is not None, [(d.code, d.message) for d in diagnostics]
    assert verify(program, diagnostics) and not diagnostics.errors, [(d.code, d.message) for d in diagnostics]
    return program


def reread(program: Program) -> Program:
    """A program from its own text."""
    return parse(text(program), program.dialect.name)


def agree(
    before: Program, after: Program, constants: dict[str, Literal], runs: int = 1, seed: int = 0, finite: bool = False
) -> None:
    """Both sides give the same: integers bit for bit, floats within the computed bound; with `finite` those that are finite."""
    arrays = {name: from_literal(x) for name, x in constants.items()}
    with np.errstate(all="ignore"):
        found = compare.check(before, after, runs, seed, RunOptions(), arrays, finite=finite, carried=True)
    assert not found.diverged, (str(found.diverged[0]), text(before), text(after))


def optimized(program: Program) -> Program:
    """A program after the default pipeline of its IR, read again from its text. No rule may change the sign of a zero: a quotient
    may tell, and numbers would differ by right."""
    made, context = clone(program), PassContext(Diagnostics(program.source), floats=Floats.STRICT)
    run_pipeline(made, program.dialect.pipeline, context)
    assert not context.diagnostics.errors, [d.message for d in context.diagnostics]
    return reread(made)


def prove(before: Program, target: str, seed: int = 0, opt: bool = False) -> str:
    """Translate, run both; translate back, run again. What came of it: refused, there, or there and back. With `opt` the programs
    of each step after their default pipelines, too."""
    there = translated(before, target)
    if there.program is None:
        assert {code for code, _ in there.errors} <= REFUSALS, there.errors
        return "refused"
    agree(before, there.program, there.constants, runs=2, seed=seed)
    if opt:
        agree(before, optimized(there.program), there.constants, seed=seed)
        better = optimized(before)
        again = translated(better, target)
        assert again.program is not None, ("an optimized program is refused", again.errors)
        agree(before, again.program, again.constants, seed=seed)
    back = translated(there.program, before.dialect.name, constants=there.constants)
    if back.program is None:
        assert {code for code, _ in back.errors} <= REFUSALS, back.errors
        return "there"
    agree(before, back.program, back.constants, seed=seed)
    if opt:
        agree(before, optimized(back.program), back.constants, seed=seed)
    return "there and back"


# Per IR and target: what a generator keeps to so that the target accepts a good share.
IN_TINY = ("Add", "Sub", "Mul", "Neg", "Relu", "Exp", "Sum", "Mean", "Transpose", "Reshape", "ExpandDims", "Squeeze", "MatMul",
           "Dot", "Index", "Slice", "Conv2d", "ConstTensor", "ConstF32")  # fmt: skip
DTYPES = {"mind": (F32, F32, F64, SI32, SI64), "tiny": (F32, F32, F16, BF16, SI32)}


def seasoned(program: Program, seed: int) -> Program:
    """The program with constants, some of them special, in place of some inputs; of Tiny, immediates in place of some operands.
    Where that is no valid program, or where extents are symbols, `program` itself."""
    made, choices = clone(program), Seeded(seed)
    main = made.main
    if not all(isinstance(p.type, TensorType) and p.type.is_static for p in main.params):
        return program
    if program.dialect.name == "tiny":
        for op in (op for op in main.body if ELEMENTWISE in op.defn.traits and len(op.operands) > 1):
            v = op.operands[choices.number(0, len(op.operands) - 1)]
            if v in main.params and choices.flag():
                dtype = operand_type(v).dtype  # type: ignore[attr-defined]
                number = random_array(dtype, (), seed, len(op.operands), special=True).item()
                op.operands = tuple(immediate(number, dtype) if x is v else x for x in op.operands)
        return made if verify(made, Diagnostics()) else program
    arrays = dict(zip(main.params, random_inputs(program, seed, special=True).values(), strict=True))
    replaced: dict[object, Value] = {}
    for p in [p for p in main.params if not choices.number(0, 2)]:
        x = np.full_like(arrays[p], arrays[p].reshape(-1)[0]) if arrays[p].size and choices.flag() else arrays[p]
        opcode = "constant" if program.dialect.name == "ptir" else "ConstTensor"
        op = create(program.dialect.ops[opcode], (), {"value": to_literal(x, p.type)}, names=[p.name])  # type: ignore[arg-type]
        replaced[p] = op.result
        main.body.insert(0, op)
    for op in main.body:
        op.operands = tuple(replaced.get(x, x) for x in op.operands)
    main.results = [replaced.get(x, x) for x in main.results]
    if "input_names" in main.attrs:
        named = zip(main.params, main.attrs["input_names"], strict=True)
        main.attrs["input_names"] = [name for p, name in named if p not in replaced]
    main.params = [p for p in main.params if p not in replaced]
    return made if verify(made, Diagnostics()) else program


def generated(ir: str, target: str, seed: int) -> Program:
    """A random program; every other one keeps to what `target` can mostly say. A third, and all of MIND, are of `ptir gen`. Every
    other one has special constants."""
    found = _generated(ir, target, seed)
    return seasoned(found, seed) if seed // 6 % 2 else found


def _generated(ir: str, target: str, seed: int) -> Program:
    choices = Seeded(seed)
    both = (F32, F32, SI32) if "mind" in (ir, target) and "tiny" in (ir, target) else None
    dtypes = both or DTYPES.get(ir if target == "ptir" else target)
    if seed % 3 == 0:
        generate = load_dialect(ir).generate
        assert generate is not None
        return generate(choices, size=8, **({} if seed % 2 or dtypes is None else {"dtypes": dtypes}))
    if ir == "mind":
        return mind.generate(choices, size=8, dtypes=dtypes or mind.DTYPES, only=IN_TINY if target == "tiny" else ())
    module = importlib.import_module(f"tests.{ir}.grown")
    if seed % 2:
        return module.generate(choices, size=8)
    common = getattr(module, "COMMON", None) if ir != "ptir" else getattr(module, target.upper(), None)
    return module.generate(choices, dtypes=dtypes, size=8, growers=common)
