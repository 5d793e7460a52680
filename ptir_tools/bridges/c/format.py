"""`c`: a PTIR program as one C99 file without dependencies. Output only.

    int NAME(void *arena, int64_t N, const float *x, float *y);

It gets memory for all intermediate values, then the symbols, the inputs and the results. It returns 0, 1 for an integer
division by zero, 2 for an index out of range, or 3 for extents that do not fit.

Elementwise ops and moves are computed where they are read (`fusion`), so each loop computes one value in memory (`steps`). The
arena is planned by `ptir_tools.plan`; with symbols, each buffer has its own place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from ptir_tools.bridges.c.fusion import LOOKUPS, MAPS, MOVES, count, static, stored
from ptir_tools.bridges.c.nest import Nest
from ptir_tools.bridges.c.scalars import Helpers, memory, number
from ptir_tools.bridges.c.steps import STEPS, contraction, fill
from ptir_tools.core import symbols
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program, clone
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal, Op, Operand, Value, operand_type, result_names
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Shape, TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DATA
from ptir_tools.dialects.ptir.composites.decompose import decompose
from ptir_tools.dialects.ptir.composites.express import EXACT, PAIRS, express
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.plan.placement import Interval, peak, place, timeline
from ptir_tools.plan.record import ALIGN
from ptir_tools.rewrite.vocabulary import tensor_type

if TYPE_CHECKING:
    from typing import IO

KNOWN = MAPS | MOVES | LOOKUPS | {*STEPS, "dot_general"}
_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return
short signed sizeof static struct switch typedef union unsigned void volatile while bad arena main bool true false memcpy size_t
NULL NAN INFINITY weights"""
_MATH = """
exp log tanh erf sqrt fabs floor ceil rint round fmod copysign sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh log1p
expm1 cbrt pow gamma lgamma j0 j1 jn y0 y1 yn abs index"""
RESERVED = frozenset((*_WORDS.split(), *_MATH.split(), *(f"{name}f" for name in _MATH.split())))
_OWN = regex(r"[itl]\d+|lanes\d+|table\d+|l|ptir_(?!main$).*")  # the names that this package makes


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The file of the entry function of a verified program; nothing after reporting what C cannot express."""
    ready = clone(program)
    run_pipeline(ready, "decompose{calls-only=true},canonicalize,cse,dce", PassContext(verify_each=False))
    decompose(ready)
    try:
        express(ready, {k: v for k, v in (*EXACT.items(), *PAIRS.items()) if k not in KNOWN})
    except Violation as violation:  # a composite does not take the dtype
        diagnostics.error("NotTranslatable", f"C: {violation.message}", program.main.loc)
        return
    run_pipeline(ready, "canonicalize,cse,dce", PassContext(verify_each=False))
    before = diagnostics.errors
    made = Writer(ready, diagnostics, options[DATA])
    text = made.text()
    if diagnostics.errors == before:
        yield text


class Writer:
    """Writes one function."""

    def __init__(self, program: Program, diagnostics: Diagnostics, data: tuple[str, IO[bytes]] | None) -> None:
        self.data = data  # the file for constants
        self.program, self.main, self.diagnostics = program, program.main, diagnostics
        self.helpers = Helpers()
        self.nest = Nest(self.helpers)
        self.taken = set(RESERVED)
        self.step = 0
        self.arena: dict[str, tuple[DType, Shape, int, int]] = {}  # by buffer: the steps of its first write and last read

    def c_name(self, text: str) -> str:
        """A new C name like `text`."""
        name = re.sub(r"\W", "_", text, flags=re.ASCII)
        if not name[:1].isalpha() or _OWN.fullmatch(name):
            name = f"v{name}"
        base, k = name, 0
        while name in self.taken:
            k += 1
            name = f"{base}_{k}"
        self.taken.add(name)
        return name

    def text(self) -> str:
        """The file."""
        main = self.main
        entry = self.c_name("ptir_main" if main.name == "main" else main.name)
        names = sorted(symbols.symbols(self.program))
        self.nest.symbols = {s: self.c_name(s) for s in names}
        signature = [f"int64_t {self.nest.symbols[s]}" for s in names]
        for p, label in zip(main.params, main.attrs.get("input_names") or [p.name for p in main.params], strict=True):
            if not isinstance(p.type, TensorType):
                self.refuse(Violation("NotTranslatable", f"%{p.name} is a tuple, and C has none"), main.loc)
                return ""
            self.nest.buffers[p] = name = self.c_name(label)
            signature.append(f"const {self.typed(p.type.dtype)} *restrict {name}")
        kept = stored(main) if self.allowed() else set()
        outputs: dict[Value, str] = {}
        copies: list[tuple[Operand, str]] = []
        for x, label in zip(main.results, result_names(main), strict=True):
            if not isinstance(t := operand_type(x), TensorType):
                self.refuse(Violation("NotTranslatable", f"the result {label} is a tuple, and C has none"), main.loc)
                return ""
            name = self.c_name(label)
            signature.append(f"{self.typed(t.dtype)} *restrict {name}")
            if isinstance(x, Value) and x.op is not None and x not in outputs:
                outputs[x] = name
            else:
                copies.append((x, name))
        if self.diagnostics.errors:
            return ""
        self.checks()
        for op in main.body:
            if op.result in kept:
                self.guarded(op, outputs.get(op.result))
        for x, name in copies:
            self.guarded(x, name)
        return self.file(entry, names, signature)

    def typed(self, dtype: DType) -> str:
        """The C type of an element in memory; "void" after a report."""
        try:
            return memory(dtype)
        except Violation as violation:
            self.refuse(violation, self.main.loc)
            return "void"

    def refuse(self, violation: Violation, loc: Loc) -> None:
        """Report what C cannot express."""
        self.diagnostics.violation(violation, loc)

    def allowed(self) -> bool:
        """Whether C has every op; others are reported."""
        good = True
        for op in self.main.body:
            if op.defn.short not in KNOWN:
                self.refuse(Violation("NotTranslatable", f"`{op.defn.short}`: C has no such op yet"), op.loc)
                good = False
        return good

    def checks(self) -> None:
        """What the verifier left to the run: extents that fit."""
        n = self.nest
        for op in self.main.body:
            if op.defn.short in ("reshape", "slice", "dynamic_slice", "dynamic_update_slice") and isinstance(op.result, Value):
                x, out = tensor_type(op.operands[0]), tensor_type(op.result)
                if static(x.shape) and static(out.shape):
                    continue
                if op.defn.short == "reshape":
                    before, after = (" * ".join(map(n.extent, t.shape)) or "1" for t in (x, out))
                    conditions = [f"{before} != {after}"] if before != after else []
                else:
                    window = tensor_type(op.operands[1]) if op.defn.short == "dynamic_update_slice" else out
                    starts = op.attr("starts") if op.defn.short == "slice" else (0,) * x.rank
                    places = zip(starts, window.shape, x.shape, strict=True)
                    conditions = [f"{s} + {n.extent(w)} > {n.extent(d)}" for s, w, d in places if w != d]
                if conditions:
                    n.put(f"if ({' || '.join(conditions)})")
                    n.put("    return 3;")

    def guarded(self, x: Op | Operand, output: str | None) -> None:
        """One step: the loops of an op, or the copy of a value to a result."""
        op = x if isinstance(x, Op) else None
        value = x.result if isinstance(x, Op) else x
        t = tensor_type(value)
        self.step += 1
        n = self.nest
        n.read = {}
        lines, n.lines = n.lines, []
        scratch: list[str] = []
        to = output or self.c_name(value.name if isinstance(value, Value) else "")
        if output is None:
            self.arena[to] = (t.dtype, t.shape, self.step, self.step)

        def made(dtype: DType, shape: Shape) -> str:
            name = self.c_name(f"{to}_part")
            self.arena[name] = (dtype, shape, self.step, self.step)
            scratch.append(name)
            return name

        try:
            with n.block(""):
                self.emit(op, value, to, made)
        except Violation as violation:
            self.refuse(violation, op.loc if op is not None else self.main.loc)
        body, n.lines = n.lines, lines
        for name in n.read:
            if name in self.arena:
                dtype, shape, start, _ = self.arena[name]
                self.arena[name] = (dtype, shape, start, self.step)
        here = [name for name in self.arena if name in n.read or name == to or name in scratch]
        n.lines += [body[0], *(f"@{name}" for name in here), *body[1:]]
        if op is not None:
            n.buffers[op.result] = to

    def emit(self, op: Op | None, value: Operand, to: str, scratch: Callable[[DType, Shape], str]) -> None:
        """The loops of a step."""
        n = self.nest
        if op is None or op.defn.short in MAPS | MOVES | LOOKUPS:
            fill(n, value, to, tensor_type(value).dtype)
        elif op.defn.short == "dot_general":
            contraction(n, op, to, scratch)
        else:
            STEPS[op.defn.short](n, op, to)

    # The file

    def file(self, entry: str, names: list[str], signature: list[str]) -> str:
        """The whole text."""
        pointers, size = self.placed()
        lines = [pointers[line[1:]] if line.startswith("@") else line for line in self.nest.lines]
        given = "".join(f"int64_t {self.nest.symbols[s]}, " for s in names).removesuffix(", ") or "void"
        calls = self.nest.tables
        body = "\n".join(used(lines))
        tables, weights = "", ""
        if self.data is None:
            tables = "".join(self.table(x, name) for x, name in calls.items())
        elif calls:
            weights = self.weights()
            signature = ["const void *weights", *signature]
        helpers = "\n\n".join(self.helpers.texts.values())
        unused = "".join(f"    (void){s};\n" for s in ["arena", *(s.rpartition(" ")[2].lstrip("*") for s in signature)])
        return f"""{PREAMBLE}
{helpers}

{tables}/* The bytes of the arena, which is aligned to {ALIGN}. */
size_t {entry}_arena({given});
size_t {entry}_arena({given})
{{
{"".join(f"    (void){self.nest.symbols[s]};{chr(10)}" for s in names)}    return (size_t)({size});
}}

/* 0; 1: an integer is divided by zero, 2: an index is out of range, 3: the extents do not fit. */
int {entry}(void *arena, {", ".join(signature)});
PTIR_FAST int {entry}(void *arena, {", ".join(signature)})
{{
    int bad = 0;
{unused}{weights}{body}
    return bad;
}}
"""

    def placed(self) -> tuple[dict[str, str], str]:
        """The declarations of the buffers in the arena by name, and its size. Steps declare them, since buffers share memory."""
        lines, n = dict[str, str](), self.nest
        if all(static(shape) for _, shape, _, _ in self.arena.values()):
            wanted = []
            for dtype, shape, start, end in self.arena.values():
                nbytes = dtype.size * max(1, count(shape))
                wanted.append(Interval(start, end + 1, -(-nbytes // ALIGN) * ALIGN))
            offsets = [*place(wanted, timeline(wanted))]
            for (name, (dtype, _, _, _)), at in zip(self.arena.items(), offsets, strict=True):
                lines[name] = f"        {memory(dtype)} *restrict {name} = ({memory(dtype)} *)((char *)arena + {at});"
            return lines, str(peak(wanted, offsets))
        size = "0"
        for name, (dtype, shape, _, _) in self.arena.items():
            t, whole = memory(dtype), " * ".join([str(dtype.size), *map(n.extent, shape)])
            lines[name] = f"        {t} *restrict {name} = ({t} *)((char *)arena + {size});"
            size = f"{size} + ({whole} + {ALIGN - 1}) / {ALIGN} * {ALIGN}".removeprefix("0 + ")
        return lines, size

    def weights(self) -> str:
        """Declarations of the constants, which are written to their file."""
        assert self.data is not None
        lines, at = [f"    /* weights: the bytes of {self.data[0]}, aligned to {ALIGN} */\n"], 0
        for x, name in self.nest.tables.items():
            data, t = from_literal(x).tobytes(), memory(x.type.dtype)
            lines.append(f"    const {t} *restrict {name} = (const {t} *)((const char *)weights + {at});\n")
            self.data[1].write(data + bytes(-len(data) % ALIGN))
            at += -(-len(data) // ALIGN) * ALIGN
        return "".join(lines)

    def table(self, x: Literal, name: str) -> str:
        """A constant as an array."""
        array = from_literal(x).reshape(-1)
        dtype = x.type.dtype
        if dtype.is_float and dtype.bits == 16:
            texts = [str(v) for v in array.view("uint16").tolist()]
        else:
            texts = [number(v, dtype) for v in array.tolist()]
        rows = [", ".join(texts[i : i + 12]) for i in range(0, len(texts), 12)]
        return f"static const {memory(dtype)} {name}[] = {{\n    " + ",\n    ".join(rows) + "\n};\n\n"


def used(lines: list[str]) -> list[str]:
    """The lines without local constants that no later line reads."""
    counts = Counter(name for line in lines for name in re.findall(r"\bt\d+\b", line))
    kept = []
    for line in reversed(lines):
        local = re.match(r" *const \w+ (t\d+) = ", line)
        if local is not None and counts[local[1]] == 1 and "&bad" not in line:
            counts.subtract(re.findall(r"\bt\d+\b", line))
        else:
            kept.append(line)
    return kept[::-1]


PREAMBLE = """#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compilers that can make a copy of a function for each processor do so; -DPTIR_PLAIN switches it off. */
#if !defined(PTIR_PLAIN) && defined(__linux__) && defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#define PTIR_FAST __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#define PTIR_LANES _Pragma("GCC unroll 1")
#else
#define PTIR_FAST
#define PTIR_LANES
#endif
"""

FORMAT = Format("c", "ptir", None, write)
