"""What a dialect tells the toolkit about itself, and how its texts are read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Literal, Program, Value
from ptir_tools.core.limits import LIMITS, Limits
from ptir_tools.core.opdef import OPS, OpDef
from ptir_tools.core.source import Source
from ptir_tools.core.types import Dim, Sym, Type


@dataclass(slots=True, frozen=True)
class Options:
    """What the caller may choose about reading, verifying and writing; each dialect takes what is its own."""

    limits: Limits = LIMITS
    profile: str = "seed"  # Tiny: strict or seed
    target: str | None = None  # PTO: a3 or a5, over the module's own
    hazards: bool = True  # PTO: the hazard check is part of verify
    placeholders: dict[str, str] = field(default_factory=dict)  # PTIR snippets: {{name}}
    lossy: bool = False  # translating: also what changes a NaN, a range or more than rounding
    constants: dict[str, Literal] | None = None  # translating: what Tiny keeps outside, by tensor_id; to Tiny it is filled
    elide_constants: int | None = None  # writing: constants of more elements become dense<?>
    weights: tuple[str, ...] = ()  # reading text PTIR: folders and files where payloads may be, next to the program's own folder
    outside: Mapping[Literal, str] = field(default_factory=dict)  # writing text PTIR: payloads kept in files, as `@file:key`


@dataclass(slots=True, frozen=True)
class Codes:
    """The dialect's own code for what the generic verifier and the readers find."""

    encoding: str = "InvalidEncoding"
    syntax: str = "SyntaxError"
    undefined: str = "UndefinedValue"
    redefined: str = "RedefinedValue"
    unknown_op: str = "UnknownOp"
    operand_count: str = "OperandCountMismatch"
    unknown_attribute: str = "UnknownAttribute"
    missing_attribute: str = "MissingAttribute"
    result_type: str = "ResultTypeMismatch"
    undefined_result: str = "UndefinedValue"
    unbound: str = "UnboundSymbol"
    extent: str = "DynamicDimensionMismatch"
    run_time: dict[str, str] = field(default_factory=dict)  # of a PTIR program that stands for one of this dialect


class Code(NamedTuple):
    """A diagnostic code for `ptir explain`: what it means, and a wrong and a right program (text in `format`)."""

    code: str
    meaning: str
    wrong: str = ""
    right: str = ""
    format: str = ""


class Extents(NamedTuple):
    """How a dialect whose extents are expressions (Tiny) does what `core.symbols` does where a symbol is just a name."""

    symbols: Callable[[Program], list[str]]
    value: Callable[[Sym, Mapping[str, int]], Dim]
    bind: Callable[[Program, Mapping[str, int]], None]
    infer: Callable[[Program, dict[str, int]], object]
    specialize: Callable[[Program, dict[str, int]], object]
    sizes: Callable[[Program, Mapping[str, int]], dict[str, int]]


@dataclass(slots=True, frozen=True)
class Pipeline:
    """Passes under one name, for `ptir opt -p NAME{option=value}`: `steps` is their text, `help` one line, `options` have the
    type of their defaults, and `prepare(program, options)` is called first."""

    steps: str
    help: str
    options: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Program, Mapping[str, Any]], None] | None = None


@dataclass(slots=True, eq=False)
class Dialect:
    """One IR. `legalize` runs before the generic verifier and may rewrite the program (Tiny's binary normalizer);
    `check` runs after it, on programs without errors so far; `pipeline` is what `ptir opt` runs by default,
    `pipelines` are others by name."""

    name: str
    codes: Codes = field(default_factory=Codes)
    constant: str = ""
    pipeline: str = ""
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    type_text: Callable[[Type], str] = str
    legalize: Callable[[Program, Diagnostics, Options], None] | None = None
    check: Callable[[Program, Diagnostics, Options], None] | None = None
    explain: tuple[Code, ...] = ()
    extents: Extents | None = None
    renames_results: bool = False  # results are called like their values, and no other way

    def __repr__(self) -> str:
        return f"<dialect {self.name}>"

    @property
    def ops(self) -> dict[str, OpDef]:
        """Its declared ops by short name, in order of declaration."""
        prefix = self.name + "."
        return {d.short: d for d in OPS.values() if d.name.startswith(prefix)}


Reader = Callable[[Source, Diagnostics, Options], Program | None]
Writer = Callable[[Program, Diagnostics, Options], Iterator[str]]


class Format(NamedTuple):
    """A serialization. A reader reports errors to the collector and may then return None or a partial program;
    a writer yields pieces of text and reports what the format cannot say."""

    name: str
    dialect: str
    read: Reader | None
    write: Writer | None


class Scope:
    """The names of one function while it is read: every definition once, before its uses."""

    __slots__ = ("codes", "diagnostics", "sigil", "values")

    def __init__(self, codes: Codes, diagnostics: Diagnostics, sigil: str = "%") -> None:
        self.codes = codes
        self.diagnostics = diagnostics
        self.sigil = sigil
        self.values: dict[str, tuple[Value, int]] = {}

    def define(self, value: Value, at: int) -> None:
        """Bind `value.name`; reports a name that is taken, and then keeps the first."""
        if (before := self.values.get(value.name)) is not None:
            shown = self.sigil + value.name
            self.diagnostics.error(
                self.codes.redefined, f"{shown} is defined twice", at, labels=[(before[1], "first defined here")]
            )
            return
        self.values[value.name] = (value, at)

    def lookup(self, name: str) -> Value | None:
        """The value called `name`, or None."""
        found = self.values.get(name)
        return found[0] if found else None
