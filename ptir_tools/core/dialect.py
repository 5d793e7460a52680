"""The records of a dialect, of its formats, and of its programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, PluginFault, UsageError
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Attribute, Function, Literal, Op, OpDef, Operand, Region, Value, clone_blocks
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import Limits, current
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast
from ptir_tools.core.types import Dim, Sym, Type
from ptir_tools.core.violations import Violation

if TYPE_CHECKING:
    import html

    from ptir_tools.core.arrays import Array
    from ptir_tools.core.choices import Choices
    from ptir_tools.core.evaluate import Context
else:
    html = lazy("html")

T = TypeVar("T", covariant=True)
# An engine of another project: from inputs by name to outputs by name.
Runner = Callable[["Mapping[str, Array]"], "dict[str, Array]"]


@dataclass(slots=True, eq=False)
class Program:
    """Functions of one dialect, and the isolated regions that their ops share.

    `attrs` has the attributes of the whole program: `target` (PTO), `outputs`, `dims`, `profile` (Tiny).
    """

    dialect: Dialect
    functions: list[Function] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    entry: str = ""
    attrs: dict[str, Attribute] = field(default_factory=dict)
    source: Source | None = None
    format: str = ""

    def __repr__(self) -> str:
        ops = sum(len(block.body) for block in self.blocks())
        blocks = f"{len(self.functions)} functions, {len(self.regions)} regions"
        return f"<{self.dialect.name} program {self.entry}: {blocks}, {ops} ops>"

    def _repr_html_(self) -> str:
        """The text of the program, for a notebook."""
        form = self.dialect.formats[0].load()
        pieces = form.write(self, Diagnostics(self.source), Options()) if form.write is not None else ()
        return f"<pre>{html.escape(''.join(pieces))}</pre>"

    def function(self, name: str) -> Function | None:
        """The function called `name`."""
        return next((f for f in self.functions if f.name == name), None)

    @property
    def main(self) -> Function:
        """The entry function. Raises KeyError when there is none."""
        if (result := self.function(self.entry)) is None:
            raise KeyError(self.entry)
        return result

    def streams(self) -> dict[Op, int]:
        """The ordinal of each random op among those of the text: functions, then regions, in order."""
        blocks = [*self.functions, *self.regions]
        if not any(d.is_random or d.regions for d in {op.defn for b in blocks for op in b.body}):
            return {}
        return {op: k for k, op in enumerate(op for b in blocks for op in b.ops() if op.defn.is_random)}

    def blocks(self) -> Iterator[Region]:
        """All blocks: functions, shared regions and nested regions, outer before inner."""
        return (b for block in (*self.functions, *self.regions) for b in block.blocks())


def _rename(program: Program, choices: Choices, names: Sequence[str]) -> None:
    """Give some values of each function and isolated region one of `names`, sometimes also the inputs of the program."""
    for block in (*program.functions, *program.regions):
        values, inner = list[Value](), [block]
        for b in inner:
            values += b.values()
            inner += (r for op in b.body for r in op.regions if not r.isolated)
        free = [n for n in choices.shuffled(names) if n not in {v.name for v in values}]
        for v, name in zip(choices.shuffled(values), free[: choices.number(0, len(free))], strict=False):
            v.name = name
    if "input_names" in program.main.attrs and choices.flag():
        program.main.attrs["input_names"] = [p.name for p in program.main.params]


def clone(program: Program) -> Program:
    """A copy of `program` that shares no op, value or region with it."""
    with collector_paused():
        n = len(program.functions)
        copies = clone_blocks([*program.functions, *program.regions])
        functions = [f for f in copies[:n] if isinstance(f, Function)]
        p = program
        return Program(p.dialect, functions, copies[n:], p.entry, dict(p.attrs), p.source, p.format)


@dataclass(slots=True, frozen=True, eq=False)
class Option(Generic[T]):
    """An option about programs of a dialect, whose record lists it. With a `flag` every command that reads programs has it, or
    only those in `commands`. Its text is one of `choices`, if there are any; else `parse` reads it, which raises ValueError. With
    `many` it may be repeated, and the type of `default` takes all values.
    """

    name: str
    default: T
    flag: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    many: bool = False
    parse: Callable[[str], object] = str
    commands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        words = [w for w in self.flag.removeprefix("--").split("-") if w.isascii() and w.isalnum() and w == w.lower()]
        if self.flag and self.flag != "--" + "-".join(words):
            raise ValueError(f"`{self.flag}` is not a flag, such as --profile")


OPTIONS: dict[str, Option[object]] = {}


def declare_options(*options: Option[object]) -> None:
    """Register options for `Options`. Raises ValueError for a name or a flag that is in use."""
    for option in options:
        for other in OPTIONS.values():
            if other is not option and (other.name == option.name or (option.flag and other.flag == option.flag)):
                clash = option.name if other.name == option.name else option.flag
                raise ValueError(f"there is an option `{clash}` already")
    OPTIONS.update({option.name: option for option in options})


_UNBOUND: Mapping[str, int] = {}
_AS_THEY_ARE: Mapping[str, Sequence[int | None]] = {}
# Of every format: numbers for symbols, and the extents of inputs; None leaves an extent as it is.
BIND = Option("bind", _UNBOUND)
SHAPES = Option("shapes", _AS_THEY_ARE)
# Of the formats whose specification has changed, or contradicts itself.
PROFILE = Option(
    "profile",
    "seed",
    flag="--profile",
    choices=("seed", "strict", "current"),
    help="The rules that apply. Tiny: `strict` adds nothing that a graph leaves out. MIND: `current` has Div.",
)
# Where text may name files of constants; and, for writing, the constants that stay in files, as `@file:key`.
WEIGHTS: Option[Sequence[str]] = Option(
    "weights",
    (),
    flag="--weights-root",
    metavar="DIR",
    many=True,
    help="Text PTIR, MIND: constants in files, @FILE:KEY, may be below DIR, too.",
)
_INSIDE: Mapping[Literal, str] = {}
OUTSIDE = Option("outside", _INSIDE)
declare_options(cast("Option[object]", BIND), cast("Option[object]", SHAPES))


class Options:
    """The caller's choices for reading, verifying, translating and writing: the limits, and options by name. Without limits,
    those of `limits.current()` are used.

    `options[OPTION]` is what was chosen, or its default. Raises TypeError for a name that no dialect has declared.
    """

    __slots__ = ("_chosen", "limits")

    def __init__(self, limits: Limits | None = None, **chosen: object) -> None:
        self.limits = limits or current()
        for name in chosen:
            if name not in OPTIONS:
                raise TypeError(f"there is no option `{name}`")
        self._chosen = chosen

    def __getitem__(self, option: Option[T]) -> T:
        return cast("T", self._chosen.get(option.name, option.default))

    def having(self, limits: Limits | None = None, **changes: object) -> Options:
        """A copy with other values for some options. Raises TypeError for an unknown name."""
        return Options(limits or self.limits, **{**self._chosen, **changes})


@dataclass(slots=True, frozen=True)
class Codes:
    """The dialect's codes for the errors that the generic verifier and the readers find."""

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
    run_time: dict[str, str] = field(default_factory=dict)  # of a PTIR program translated from this dialect
    untranslated: frozenset[str] = frozenset()  # errors of a run that a translated program may lack


class Code(NamedTuple):
    """A diagnostic code for `ptir explain`: its meaning, and a wrong and a right program (text in `format`)."""

    code: str
    meaning: str
    wrong: str = ""
    right: str = ""
    format: str = ""


Stop = Callable[[Violation, Type], Op]


class Extents(NamedTuple):
    """The functions of `core.symbols` for a dialect whose extents are expressions (Tiny). `names` are the symbols in an
    expression, `given` those that parameters of these types determine, and `determined` those that an op may determine."""

    symbols: Callable[[Program], list[str]]
    value: Callable[[Sym, Mapping[str, int]], Dim]
    bind: Callable[[Program, Mapping[str, int]], None]
    infer: Callable[[Program, dict[str, int]], object]
    specialize: Callable[[Program, dict[str, int]], object]
    sizes: Callable[[Program, Mapping[str, int]], dict[str, int]]
    names: Callable[[Sym], Sequence[Sym]]
    given: Callable[[Sequence[Type]], set[Sym]]
    determined: Callable[[Op], set[Sym]]


@dataclass(slots=True, frozen=True)
class Pipeline:
    """Several passes under one name, for `ptir opt -p NAME{option=value}`: `steps` is their text, `help` one line, `options`
    have the type of their defaults, and `prepare(program, options)` is called first. It is the default of programs that have
    one of the ops `suits`."""

    steps: str
    help: str
    options: Mapping[str, object] = field(default_factory=dict)
    prepare: Callable[[Program, Mapping[str, object]], None] | None = None
    suits: tuple[str, ...] = ()


class SpaceBuffer(NamedTuple):
    """A buffer of an `Arena`: alive from step `start` to before step `end`. `parent` is the buffer whose bytes it shares."""

    name: str
    type: Type | None
    nbytes: int
    start: int
    end: int
    parent: int | None = None  # index of the parent among the buffers
    alias: str = ""


class Hash(NamedTuple):
    """The content address of a program: its number, and the symbol under which its entry is compiled."""

    number: Callable[[Program, Diagnostics, bool], int | None]  # True: independent of names
    symbol: Callable[[str, int], str]


class Arena(NamedTuple):
    """A memory space of a function: its name, its buffers, and its size on a target."""

    name: str
    buffers: Sequence[SpaceBuffer]
    capacity: int | None


class Machine(NamedTuple):
    """A machine of a dialect, for `ptir targets`: one line about it, without its name, and lines that list what it allows."""

    summary: str
    details: Callable[[], Iterator[str]]


class Executable(Protocol):
    """A program prepared for running. `memory` is the bytes that a run takes; `function` is the function that runs (after
    passes)."""

    @property
    def memory(self) -> int: ...

    function: Function

    def __call__(self, arguments: Sequence[object], context: Context) -> tuple[object, ...]: ...


class Timeline(Protocol):
    """The start and end of each op of a run, for a dialect with concurrent units."""

    def report(self, source: Source | None = None) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
        """Tables: title, columns, rows."""

    def chrome_trace(self, source: Source | None = None) -> dict[str, object]:
        """The same as a Chrome trace."""


Guard = Callable[[Iterable[tuple[Value, Operand]]], bool]  # whether values may be replaced by the given ones, in order
Reader = Callable[[Source, Diagnostics, Options], Program | None]
Writer = Callable[[Program, Diagnostics, Options], Iterator[str]]
Encoder = Callable[[Program, Diagnostics, Options], bytes]
Layout = Callable[[Source, Diagnostics], str | None]


class Format(NamedTuple):
    """A serialization. A reader reports errors to the collector and may then return None or a partial program.
    A writer yields pieces of text and reports what the format cannot express, like `encode` of a binary format. `layout` formats
    a text and keeps its comments. `outline` tells what a file of another project says of itself, also where it is refused."""

    name: str
    dialect: str
    read: Reader | None
    write: Writer | None
    layout: Layout | None = None
    encode: Encoder | None = None
    outline: Callable[[bytes], Mapping[str, object]] | None = None


class Sidecar(NamedTuple):
    """A file next to a text, with data that the text cannot contain. `path` derives its path from that of the text. `supply`
    fills it. `fill` copies the data from a program that has them; it returns False for another program."""

    path: Callable[[str], str | None]
    supply: Callable[[Program, Source, Diagnostics, Options], None]
    fill: Callable[[Program, Program], bool]


class Host(NamedTuple):
    """A host program for a text in another language. `text` includes the file `kernels`. `files` gives arguments by the
    names of their files, and `memory` is the name of the file of each output."""

    kernels: str
    text: str
    files: Callable[[Mapping[str, Array]], dict[str, Array]]
    memory: Mapping[str, str]


@dataclass(slots=True, frozen=True, eq=False)
class FormatEntry:
    """Facts about a format before it is loaded. `module` exports it as `FORMAT`, or is the format itself.

    A text is in the format when `begins` matches where it begins, after blanks and comments: a regular expression, or a
    function of the text and that place. A JSON text is in it when one of `json_keys` is a key at its top level. A binary format
    has `binary`: what its bytes begin with, or what tells whether bytes are in it.
    """

    name: str
    module: str | Format
    readable: bool = True
    written: bool = True
    named: bool = True  # results have names, which passes keep
    comment: str = "//"  # the mark that begins a comment
    suffix: str = ""  # usual suffix of a file
    begins: str | Callable[[str, int], bool] = ""
    ambiguous: bool = False  # texts of other tools begin like this, too
    opening: tuple[str, ...] = ()  # words at the beginning of a text; misspellings are corrected to them
    json_keys: tuple[str, ...] = ()
    binary: bytes | Callable[[bytes], bool] | None = None
    options: tuple[Option[object], ...] = ()  # an option for reading that no other format has
    sidecar: Sidecar | None = None
    has_weights: bool = False  # constants may be in files that the text names
    made_by: str = ""  # the function of the Python API that writes it, if `write` does not
    meshes: bool = False  # the format can express how a program is sharded
    capacity: int | None = None  # bytes of constants that a file can contain; with more, they are in a file next to it
    peer: Callable[[bytes], tuple[str, Runner] | None] | None = None  # the engine of another project that runs it, with its name
    host: Callable[[Program, Options], Host] | None = None  # a program that calls what a text of the format defines
    # The format is of another project: by default, a program read from it is written as text of the dialect.
    imported: bool = False
    keywords: str = ""  # keywords, words that begin a type, and the text before the name of an op: regular
    type_words: str = ""  # expressions with which editors color; without keywords there are no colors
    op_prefix: str = ""
    directive: str = ""  # regular expression: text that begins like a comment but is not one
    comments_found: bool = False  # a translation keeps its comments
    lines_before: Callable[[Function], int] | None = None  # lines before the first op, where a translation puts comments

    def load(self) -> Format:
        """The format."""
        if isinstance(self.module, Format):
            return self.module
        try:
            result: Format = import_module(self.module).FORMAT
        except ModuleNotFoundError as error:
            if error.name is None or not f"{self.module}.".startswith(f"{error.name}."):
                raise
            raise UsageError(f"the format `{self.name}`: there is no module {error.name}") from None
        return result


@dataclass(slots=True, eq=False)
class Dialect:
    """The record of one IR: all facts and functions that the toolkit needs about it. Functions may be `core.lazy.late`, so that a
    record costs nothing.

    `legalize` runs before the generic verifier and may rewrite the program (Tiny's binary normalizer); `check` runs after it, on
    programs without errors so far. `pipeline` is what `ptir opt` runs by default, `pipelines` are
    others by name. `declares` is the module that declares the ops
    when it is imported; empty: they are declared already. `passes` is the package whose modules are its passes.
    """

    name: str
    formats: tuple[FormatEntry, ...] = ()
    specification: str = ""  # the public document that manuals refer to, with its address
    declares: str = ""
    codes: Codes = field(default_factory=Codes)
    constant: str = ""
    pipeline: str = ""
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    passes: str = ""
    options: tuple[Option[object], ...] = ()
    type_text: Callable[[Type], str] = str
    dtypes: Callable[[], Mapping[str, DType]] = dict  # dtypes by the dialect's own names
    legalize: Callable[[Program, Diagnostics, Options], None] | None = None
    check: Callable[[Program, Diagnostics, Options], None] | None = None
    # Runs instead of `check` if there are errors.
    check_despite_errors: Callable[[Program, Diagnostics, Options], None] | None = None
    explain: Callable[[], Sequence[Code]] = tuple
    extents: Extents | None = None
    stop: Stop | None = None  # makes an op of a type that fails when it runs
    # Parameters: a `core.choices.Choices`, and `size`, `only`, `symbols`, `faults`.
    generate: Callable[..., Program] | None = None
    # Parameters: a `core.choices.Choices`, and `size`; makes whole layers instead of single ops.
    networks: Callable[..., Program] | None = None
    odd_names: tuple[str, ...] = ()  # names that are easily confused with something else, for random programs
    guard: Callable[[Any], Guard] | None = None  # for `Rewriter.allows`, with a rewriter
    renames_results: bool = False  # results always have the names of their values
    names_results: bool = True  # results have names
    shows_makers: bool = False  # an error about an operand shows the op that made it
    keeps_order: bool = False  # the order of its ops is part of their meaning
    constants_outside: bool = False  # constants are inputs; a file next to the program has their values
    constants_given: bool = False  # without such a file, the caller of a run gives them
    # Codes of errors that are found during a run, or by the verifier once numbers are known.
    late_errors: frozenset[str] = frozenset()
    outputs: Callable[[Function], Sequence[Value]] = lambda _: ()  # parameters whose contents are outputs, before the results
    executor: Callable[[Program, Function, Any], Executable] | None = None  # runs programs instead of the engines of PTIR
    timeline: Callable[[], Timeline] | None = None  # an empty one for the executor, which fills it
    pipe: Callable[[Op], str | None] | None = None  # the unit that executes an op, if units run concurrently
    signals: Callable[[Type], bool] = lambda _: False  # whether values of the type only signal that an op is complete
    arenas: Callable[[Program], Iterator[Arena]] | None = None  # its own memory spaces, for the plan
    hash: Hash | None = None
    targets: Callable[[], Mapping[str, Machine]] = dict  # the machines for its programs

    def __repr__(self) -> str:
        return f"<dialect {self.name}>"

    def declare(self) -> None:
        """Register its ops. A second call changes nothing."""
        if self.declares:
            import_module(self.declares)

    def random(self, choices: Choices, networks: bool = False, **how: object) -> Program:
        """A random program or network. Raises UsageError without a generator, PluginFault for one that makes no program."""
        make = self.networks if networks else self.generate
        if make is None:
            raise UsageError(f"{self.name} has no generator{' of networks' if networks else ''}")
        result = make(choices, **how)
        if not isinstance(result, Program):
            raise PluginFault(make, f"the generator of {self.name} gives {type(result).__name__}, not a program")
        if choices.number(1, 3) == 1:
            _rename(result, choices, self.odd_names)
        return result

    @property
    def ops(self) -> dict[str, OpDef]:
        """Its declared ops by short name, in order of declaration."""
        self.declare()
        prefix = self.name + "."
        return {d.short: d for d in OPS.values() if d.name.startswith(prefix)}


class Scope:
    """The names of one function while it is read: every definition once, before its uses."""

    __slots__ = ("codes", "diagnostics", "places", "sigil", "values")

    def __init__(self, codes: Codes, diagnostics: Diagnostics, sigil: str = "%") -> None:
        self.codes = codes
        self.diagnostics = diagnostics
        self.sigil = sigil
        self.values: dict[str, Value] = {}
        self.places: dict[str, int] = {}  # where each name is defined

    def define(self, value: Value, at: int, name: str = "") -> None:
        """Bind a name, by default that of the value. A taken name is reported, and the first value keeps it."""
        name = name or value.name
        if name in self.values:
            labels = [(self.places[name], "first defined here")]
            self.diagnostics.error(self.codes.redefined, f"{self.sigil}{name} is defined twice", at, labels=labels)
        else:
            self.values[name], self.places[name] = value, at
