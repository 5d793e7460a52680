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
from collections.abc import Iterator, Mapping

from ptir_tools.bridges.c import complexes
from ptir_tools.bridges.c.blocks import CONTROL, Blocks
from ptir_tools.bridges.c.fusion import LOOKUPS, MAPS, MOVES, count, static
from ptir_tools.bridges.c.nest import key
from ptir_tools.bridges.c.random import SEED
from ptir_tools.bridges.c.scalars import braced, memory, number
from ptir_tools.bridges.c.steps import SEVERAL, STEPS
from ptir_tools.core import symbols
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program, clone
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Element, Literal, Operand, Value, operand_type, result_names
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TupleType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DATA
from ptir_tools.dialects.ptir.composites.decompose import decompose
from ptir_tools.dialects.ptir.composites.express import EXACT, PAIRS, QUANTIZED, SPECIAL, express
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.plan.placement import Interval, peak, place, timeline
from ptir_tools.plan.record import ALIGN
from ptir_tools.rewrite.vocabulary import tensor_type

if TYPE_CHECKING:
    from typing import IO

KNOWN = MAPS | MOVES | LOOKUPS | {*STEPS, *SEVERAL, *CONTROL}


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The file of the entry function of a verified program; nothing after reporting what C cannot express."""
    ready = clone(program)
    for op, ordinal in ready.streams().items():  # before passes remove one of them
        if op.attr("stream") is None:
            i = op.defn.attr_index["stream"]
            op.attrs = (*op.attrs[:i], ordinal, *op.attrs[i + 1 :])
    run_pipeline(ready, "decompose{calls-only=true},canonicalize,cse,dce", PassContext(verify_each=False))
    decompose(ready)
    try:
        express(ready, {k: v for k, v in {**EXACT, **PAIRS, **QUANTIZED, **SPECIAL}.items() if k not in KNOWN})
    except Violation as violation:  # a composite does not take the dtype
        diagnostics.error("NotTranslatable", f"C: {violation.message}", program.main.loc)
        return
    run_pipeline(ready, "canonicalize,cse,dce", PassContext(verify_each=False))
    before = diagnostics.errors
    made = Writer(ready, diagnostics, options[DATA])
    text = made.text()
    if diagnostics.errors == before:
        yield text


class Writer(Blocks):
    """Writes one function."""

    def __init__(self, program: Program, diagnostics: Diagnostics, data: tuple[str, IO[bytes]] | None) -> None:
        super().__init__(program, diagnostics)
        self.data = data  # the file for constants

    def text(self) -> str:
        """The file."""
        main = self.main
        entry = self.c_name("ptir_main" if main.name == "main" else main.name)
        names = sorted(symbols.symbols(self.program))
        self.nest.symbols = {s: self.c_name(s) for s in names}
        signature = [f"uint64_t {SEED}"] if any(op.defn.is_random for b in self.program.blocks() for op in b.body) else []
        signature += [f"int64_t {self.nest.symbols[s]}" for s in names]
        for p, label in zip(main.params, main.attrs.get("input_names") or [p.name for p in main.params], strict=True):
            for part, own in self.parts(p, label):
                assert not isinstance(part, Literal)
                self.nest.buffers[key(part)] = name = self.c_name(own)
                signature.append(f"const {self.typed(tensor_type(part).dtype)} *restrict {name}")
        self.allowed()
        pairs: list[tuple[Operand, str]] = []
        for x, label in zip(main.results, result_names(main), strict=True):
            for part, own in self.parts(x, label):
                pairs.append((part, name := self.c_name(own)))
                signature.append(f"{self.typed(tensor_type(part).dtype)} *restrict {name}")
        if self.diagnostics.errors:
            return ""
        self.block(main, pairs)
        return self.file(entry, names, signature)

    def parts(self, x: Operand, label: str) -> list[tuple[Operand, str]]:
        """A tensor and its name; of a tuple those of its elements."""
        t = operand_type(x)
        if not isinstance(t, TupleType):
            return [(x, label)]
        if not isinstance(x, Value) or any(isinstance(part, TupleType) for part in t.elements):
            self.refuse(Violation("NotTranslatable", f"{label} is a tuple of tuples, and C has none"), self.main.loc)
            return []
        return [(Element(x, i), f"{label}_{i}") for i in range(len(t.elements))]

    def typed(self, dtype: DType) -> str:
        """The C type of an element in memory; "void" after a report."""
        try:
            return memory(dtype)
        except Violation as violation:
            self.refuse(violation, self.main.loc)
            return "void"

    def allowed(self) -> None:
        """Report ops that C does not have."""
        for block in self.program.blocks():
            for op in block.body:
                if op.defn.short not in KNOWN:
                    self.refuse(Violation("NotTranslatable", f"`{op.defn.short}`: C has no such op yet"), op.loc)

    # The file

    def file(self, entry: str, names: list[str], signature: list[str]) -> str:
        """The whole text."""
        pointers, size = self.placed()
        lines = [_declared(line, pointers) if line.startswith("@") else line for line in self.nest.lines]
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
        written = "".join([*signature, helpers, tables, weights, body])
        types = "".join(text for name, text in complexes.TYPES.items() if name in written)
        return f"""{PREAMBLE}{LIBRARY if "_Complex" in helpers else ""}
{types}{helpers}

{tables}/* The bytes of the arena, which is aligned to {ALIGN}. */
size_t {entry}_arena({given});
size_t {entry}_arena({given})
{{
{"".join(f"    (void){self.nest.symbols[s]};{chr(10)}" for s in names)}    return (size_t)({size});
}}

/* 0; 1: an integer is divided by zero, 2: an index is out of range, 3: the extents do not fit. */
int {entry}(void *arena, {", ".join(signature)});
PTIR_COPIES int {entry}(void *arena, {", ".join(signature)})
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
                lines[name] = f"{memory(dtype)} *restrict {name} = ({memory(dtype)} *)((char *)arena + {at});"
            return lines, str(peak(wanted, offsets))
        size = "0"
        for name, (dtype, shape, _, _) in self.arena.items():
            t, whole = memory(dtype), " * ".join([str(dtype.size), *map(n.extent, shape)])
            lines[name] = f"{t} *restrict {name} = ({t} *)((char *)arena + {size});"
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
        if dtype.is_float and dtype.bits < 32:
            texts = [str(v) for v in array.view(f"uint{dtype.bits}").tolist()]
        else:
            texts = [braced(v, dtype) if dtype.is_complex else number(v, dtype) for v in array.tolist()]
        rows = [", ".join(texts[i : i + 12]) for i in range(0, len(texts), 12)]
        return f"static const {memory(dtype)} {name}[] = {{\n    " + ",\n    ".join(rows) + "\n};\n\n"


def _declared(line: str, pointers: Mapping[str, str]) -> str:
    """The declaration of a buffer in a step at a depth."""
    depth, name = line[1:].split()
    return "    " * (int(depth) + 1) + pointers[name]


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
#if defined(PTIR_PLAIN) || !defined(__linux__) || !defined(__x86_64__)
#define PTIR_COPIES
#elif defined(__clang__) && __clang_major__ >= 18 || !defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 12
#define PTIR_COPIES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define PTIR_COPIES
#endif

/* Iterations of a loop after PTIR_EACH or PTIR_LANES do not depend on each other. A function after PTIR_FUSED adds products that
   need not be rounded first. */
#if defined(PTIR_PLAIN) || !defined(__GNUC__)
#define PTIR_EACH
#define PTIR_LANES
#define PTIR_FUSED
#elif defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#define PTIR_EACH _Pragma("clang loop vectorize(assume_safety)")
#define PTIR_LANES _Pragma("clang loop unroll(disable) vectorize(assume_safety)")
#define PTIR_FUSED
#else
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#define PTIR_EACH
#define PTIR_LANES _Pragma("GCC unroll 1")
#define PTIR_FUSED __attribute__((optimize("fp-contract=fast")))
#endif
"""

LIBRARY = """
#include <complex.h>
#undef complex
#undef I
"""

FORMAT = Format("c", "ptir", None, write)
