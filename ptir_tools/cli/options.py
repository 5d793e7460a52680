"""Declarations of options, of those that commands share, and the decorator that turns a function into a command.

A declaration is data. `parsing` makes click's commands from it. A command line of only plain words needs no click.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ptir_tools.cli.report import FORMS, Reporter
from ptir_tools.cli.session import Given, Session
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import BIND, SHAPES, WEIGHTS, Option, Options
from ptir_tools.core.lazy import late, lazy, regex
from ptir_tools.core.limits import ELEMENTS, LIMITS, LimitExceeded, Limits, using
from ptir_tools.core.records import NamedTuple, dataclass, field, fields, replace
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.dialects import DIALECTS, FORMATS

if TYPE_CHECKING:
    from ptir_tools.plan import mesh as meshes
    from ptir_tools.plan.mesh import Mesh, Sharding, Spec
else:
    meshes = lazy("ptir_tools.plan.mesh")

_ARRAYS = regex(r"@?(.+\.(?:npz|safetensors(?:\.index\.json)?))(?::.*)?", re.DOTALL)
_FILES = ("FILE", "FILE.py", "PLAN.json", "DIR", "A", "B")  # metavars of options whose value is a file or a folder
_CHOSEN = "option_"  # prefix of the parameters that are options of dialects
SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text: str) -> int:
    """A count or a number of bytes: `4096`, `64K`, `2GiB`. Raises ValueError."""
    match = re.fullmatch(r"(_*[0-9][0-9_]*)([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is not a size: a number, or one with K, M, G or T")
    digits = match[1].replace("_", "").lstrip("0")
    if len(digits) > len(str(ELEMENTS)) or (value := int(digits or "0") * SCALE[match[2].lower()]) > ELEMENTS:
        raise ValueError(f"{text!r} is too big: a size is at most {ELEMENTS}")
    return value


def binding(text: str) -> tuple[str, int]:
    """`NAME=INT`, a symbol's value. Raises ValueError."""
    name, _, number = text.partition("=")
    if not name or not re.fullmatch(r"[0-9]+", number):
        raise ValueError(f"{text!r} is not NAME=INT with an integer that is not negative")
    if len(number.lstrip("0")) > len(str(ELEMENTS)) or int(number) > ELEMENTS:
        raise ValueError(f"{text!r} is too big: an extent is at most {ELEMENTS}")
    return name.removeprefix("?"), int(number)


def shaping(text: str) -> tuple[str, tuple[int | None, ...]]:
    """`INPUT=1,3,*`, the extents of an input. Raises ValueError."""
    name, _, extents = text.rpartition("=")
    words = [word.strip() for word in extents.split(",") if extents.strip()]
    if not name or not all(word == "*" or re.fullmatch(r"[0-9]+", word) for word in words):
        raise ValueError(f"{text!r} is not INPUT=1,3,* with extents that are integers, not negative, or *")
    return name.removeprefix("%"), tuple(None if word == "*" else binding(f"n={word}")[1] for word in words)


Parameters = dict[str, Any]  # of a command, by name


class Kind(NamedTuple):
    """The kind of a parameter's values: `choice`, `int_range`, `finite` or `parsed`, with its arguments."""

    name: str
    arguments: tuple[Any, ...]
    settings: dict[str, object]

    def read(self, text: str) -> object:
        """The value. Raises ValueError for an invalid text, and for one that only click can read."""
        if self.name == "parsed":
            return self.arguments[0](text)
        if self.name == "choice":
            return self.arguments[0][self.arguments[0].index(text)]
        least, most = (*self.arguments, None)[:2]
        value = int(text) if self.name == "int_range" else float(text)
        if not (math.isfinite(value) and least <= value and (most is None or value <= most)):
            raise ValueError
        if value == least and self.settings.get("min_open"):
            raise ValueError
        return value


def choice(words: Iterable[str]) -> Kind:
    """One of some words."""
    return Kind("choice", (list(words),), {})


def int_range(least: int, most: int | None = None) -> Kind:
    """An integer in a range."""
    return Kind("int_range", (least, most), {})


def finite(least: float, *, min_open: bool = False) -> Kind:
    """A finite float that is at least `least` (`min_open`: greater than it)."""
    return Kind("finite", (least,), {"min_open": min_open})


def parsed(parse: Callable[[str], object]) -> Kind:
    """Values that `parse` reads; it raises ValueError."""
    return Kind("parsed", (parse,), {})


@dataclass(slots=True, frozen=True, eq=False)
class Parameter:
    """An option or argument, with the words and settings of `click.option` or `click.argument`. --help lists it under `title`."""

    words: tuple[str, ...]
    settings: Mapping[str, Any]
    is_argument: bool = False
    title: str = "Options"
    name: str = field(init=False)  # the parameter of the function

    def __post_init__(self) -> None:
        named = [word for word in self.words if not word.startswith("-")]
        long = [word for word in self.words if word.startswith("--")]
        name = (named or long or list(self.words))[0].lstrip("-").partition("/")[0].replace("-", "_").lower()
        object.__setattr__(self, "name", name)

    @property
    def spelled(self) -> list[str]:
        """The words of an option on the command line."""
        return [word for word in self.words if word.startswith("-")]

    @property
    def many(self) -> bool:
        """Whether its value is a tuple."""
        return bool(self.settings.get("multiple")) or self.settings.get("nargs") == -1

    @property
    def is_flag(self) -> bool:
        """Whether it is an option without a value."""
        return bool(self.settings.get("is_flag"))

    @property
    def default(self) -> object:
        """The value if the command line has none."""
        return self.called(self.settings.get("default", () if self.many else False if self.is_flag else None))

    def called(self, value: object) -> object:
        """The result of the callback for a value. Raises ValueError."""
        callback = self.settings.get("callback")
        return value if callback is None else callback(None, None, value)

    def read(self, text: str) -> object:
        """The value of a word. Raises ValueError for an invalid word, and for one that only click can read."""
        kind = self.settings.get("type")
        if kind is None and isinstance(self.settings.get("default"), str | None):
            return text
        if kind is int:
            return int(text)
        if isinstance(kind, Kind):
            return kind.read(text)
        raise ValueError(f"click decides about {self.name}")

    @property
    def required(self) -> bool:
        """Whether the command line must give it."""
        one = self.is_argument and self.settings.get("nargs", 1) != -1 and "default" not in self.settings
        return bool(self.settings.get("required", one))

    @property
    def is_name(self) -> bool:
        """Whether its values are names, mostly of files. They must not be empty."""
        return self.is_argument or self.metavar in _FILES

    @property
    def metavar(self) -> str:
        """The name of its value in --help."""
        return (self.settings.get("metavar") or self.name.upper()).strip("[].")


def option(*words: str, **settings: object) -> Parameter:
    """An option, declared as `click.option` does; `type` may be a `Kind`."""
    return Parameter(words, settings)


def argument(*words: str, **settings: object) -> Parameter:
    """An argument, declared as `click.argument` does; `type` may be a `Kind`."""
    return Parameter(words, settings, is_argument=True)


def titled(title: str, *parameters: Parameter) -> tuple[Parameter, ...]:
    """The options, for --help to list under `title`."""
    return tuple(replace(p, title=title) for p in parameters)


_COMMON = "Common options"
REPORTING = titled(
    _COMMON,
    option("--color", type=choice(["auto", "always", "never"]), default="auto", help="When to use color (auto)."),
    option(
        "--diagnostics",
        "form",
        type=choice(FORMS),
        default="text",
        help="The format of diagnostics (text).",
    ),
    option("--diagnostics-to", "path", metavar="FILE", help="Write diagnostics to this file, and not to standard error."),
    option(
        "--max-errors",
        type=int_range(1),
        default=20,
        metavar="N",
        help="Show at most N errors per file, and N notes per code (20).",
    ),
    option("--load", metavar="FILE.py", multiple=True, help="Load a plug-in: passes, rules, kernels, IRs."),
    option("-q", "--quiet", is_flag=True, help="Show errors only."),
    option("-v", "--verbose", is_flag=True, help="Show notes, too."),
)


def _parameter_of(declared: Option[object]) -> str:
    """The name of its parameter. No other option of a command has that name."""
    return f"{_CHOSEN}{declared.name}"


def _flag(declared: Option[object]) -> Parameter:
    """The option of the command line for an option of a dialect."""
    kind = choice(declared.choices) if declared.choices else parsed(declared.parse)
    settings = {"multiple": True} if declared.many else {"default": declared.default}
    words = declared.flag, _parameter_of(declared)
    return option(*words, type=kind, metavar=declared.metavar or None, help=declared.help, **settings)


def _flagged(command: str) -> list[Option[Any]]:
    """The options of all dialects that a command takes, in the order of their flags. Plug-ins are already loaded."""
    declared = dict.fromkeys(o for d in DIALECTS.values() for o in d.options if o.flag)
    return sorted((o for o in declared if not o.commands or command in o.commands), key=lambda o: o.flag)


def _of_dialects(command: str) -> tuple[Parameter, ...]:
    """The options of dialects that this and some other commands take, by dialect."""
    used = _flagged(command)
    listed = ((d.name.upper(), [_flag(o) for o in d.options if o.commands and o in used]) for d in DIALECTS.values())
    return tuple(p for title, flags in listed for p in titled(title, *flags))


def _reading(command: str) -> tuple[Parameter, ...]:
    """The options of every command that reads programs, including those of dialects."""
    return titled(
        _COMMON,
        option(
            "--bind",
            "bindings",
            type=parsed(binding),
            metavar="NAME=INT",
            multiple=True,
            help="Replace a symbol by a number.",
        ),
        option(
            "--shape",
            "shapes",
            type=parsed(shaping),
            metavar="INPUT=1,3,*",
            multiple=True,
            help="Give an input numbers for its extents; * leaves one as it is.",
        ),
        *(_flag(o) for o in _flagged(command) if not o.commands),
        option("--strict", is_flag=True, help="Treat notes and warnings as errors."),
    )


LIMIT_NAMES = tuple(f"max_{f.name}" for f in fields(Limits))
LIMITING = tuple(option("--" + name.replace("_", "-"), name, type=parsed(size), hidden=True) for name in LIMIT_NAMES)


def from_option(*more: str) -> Parameter:
    """`--from`: every format that can be read, and the command's own formats."""
    known = [*(e.name for e in FORMATS.values() if e.readable), *more]
    help = "The input's format, instead of recognizing it by content."
    (declared,) = titled(_COMMON, option("--from", "form_in", type=choice(known), help=help))
    return declared


output_option = option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
output_tree_option = option(
    "-o", "--output", metavar="FILE", help="Write to this file instead of standard output; for several files, to this folder."
)
file_argument = argument("file", default="", metavar="[FILE]")
files_argument = argument("files", nargs=-1, metavar="[FILE]...")
split_option = option("--split-input", is_flag=True, help="Lines `// -----` (`# -----`) divide the file into programs.")
weights_option = option(
    "--weights-to",
    metavar="FILE",
    help="Text PTIR: keep constants of more than 16 elements in FILE (.safetensors or .npz).",
)
elide_option = option(
    "--elide-constants-larger", type=int_range(0), metavar="N", help="Print constants of more than N elements as dense<?>."
)
strict_fp_option = option("--strict-fp", is_flag=True, help="Rewrites and engines keep every rounding as written.")
float_options = (
    strict_fp_option,
    option("--fast-math", is_flag=True, help="Rewrites may assume finite numbers and reassociate."),
)
check_runs_option = option("--check-runs", type=int_range(1), default=3, metavar="N", help="The number of random inputs (3).")
check_engine_option = option(
    "--engine",
    type=parsed(late("ptir_tools.engines.options", "engine_of")),
    metavar="ENGINE",
    help="For --check: the engine that runs the program after the passes (reference).",
)
check_options = (
    option("--check", is_flag=True, help="Run before and after on random inputs; differing outputs are an error."),
    check_runs_option,
)
mesh_options = titled(
    "Several devices",
    option(
        "--mesh",
        type=parsed(late("ptir_tools.plan.mesh", "mesh_of")),
        metavar="AXIS=N,…",
        help="A grid of devices: x=4,y=2 are 8 of them.",
    ),
    option(
        "--shard",
        type=parsed(late("ptir_tools.plan.mesh", "spec_of")),
        metavar="NAME=AXES",
        multiple=True,
        help="Cut an input, result or value: per axis an axis of the mesh, or -; `*` in a name matches any text. Repeatable.",
    ),
)
json_option = option("--json", "as_json", is_flag=True, help="Print JSON.")
in_place_option = option("--in-place", "-i", is_flag=True, help="Rewrite the files that change.")
jobs_option = option("-j", "--jobs", type=int_range(1), default=1, metavar="N", help="Work on N files at once (1).")
diff_option = option("--diff", is_flag=True, help="Print what would change as a unified diff.")
check_timeout_option = option(
    "--timeout", type=finite(0, min_open=True), metavar="S", help="Give up on CMD after S seconds: it fails."
)


def sharding_of(mesh: Mesh | None, shard: Sequence[tuple[str, Spec]]) -> Sharding | None:
    """The cuts of --mesh and --shard. Raises UsageError for --shard without --mesh."""
    if mesh is None and shard:
        raise UsageError("--shard cuts values over the axes of a mesh: give it with --mesh x=4,y=2")
    return None if mesh is None else meshes.Sharding(mesh, tuple(shard))


@dataclass(slots=True, eq=False)
class Subcommand:
    """A command: a function of a session and the parameters. Its docstring is the help."""

    function: Callable[..., None]
    parameters: tuple[Parameter, ...]
    flags: type | None = None  # a record of parameters, which the function takes as `flags`

    @property
    def name(self) -> str:
        """The name of its module."""
        return self.function.__module__.rpartition(".")[2]

    def plain(self, words: Sequence[str]) -> tuple[Parameters, list[Given]] | None:
        """The parameters and the given options of a command line of only plain words, or None if click has to parse it.

        Plain words are arguments, flags, and options with their value in the same word (`--seed=1`) or in the next. Click
        parses words that are wrong, shortened or joined.
        """
        try:
            given, arguments = self._sorted(words)
        except ValueError:
            return None
        parameters, chosen = {p.name: p.default for p in self.parameters}, list[Given]()
        for p in self.parameters:
            if p.is_argument and arguments:
                given[p.name] = arguments if p.settings.get("nargs") == -1 else arguments[:1]
                arguments = arguments[len(given[p.name]) :]
            if p.name in given:
                try:
                    values = [p.read(x) if isinstance(x, str) else x for x in given[p.name]]
                    parameters[p.name] = p.called(tuple(values) if p.many else values[-1])
                except ValueError:
                    return None
                chosen.append(Given(p.name, "" if p.is_argument else p.spelled[0], parameters[p.name]))
            elif p.required:
                return None
        return None if arguments else (parameters, chosen)

    def _sorted(self, words: Sequence[str]) -> tuple[dict[str, list[str | bool]], list[str | bool]]:
        """The given options, by parameter, and the arguments. Raises ValueError for a word that is not plain."""
        options = {word: p for p in self.parameters for word in p.spelled}
        given, arguments, left = dict[str, list[str | bool]](), list[str | bool](), iter(words)
        for word in left:
            name, joined, value = word.partition("=")
            if word == "-" or not word.startswith("-"):
                arguments.append(word)
            elif (p := options.get(name)) is None or (joined and (p.is_flag or not name.startswith("--"))):
                raise ValueError(f"{word} is not plain")
            elif p.is_flag:
                given.setdefault(p.name, []).append(True)
            else:
                value = value if joined else next(left, "--")
                if not joined and value.startswith("-") and value != "-":
                    raise ValueError(f"{value} looks like an option")
                given.setdefault(p.name, []).append(value)
        return given, arguments

    def run(self, reporter: Reporter, parameters: Parameters, chosen: Sequence[Given]) -> None:
        """Run the command. Raises Leave with an exit code, and any error."""
        for p, given in ((p, g) for g in chosen for p in self.parameters if p.name == g.name):
            if p.is_name and "" in (given.value if isinstance(given.value, tuple) else (given.value,)):
                raise UsageError(f"{given.spelled or p.metavar}: the name is empty")
        session = _session(reporter, self.name, parameters, chosen)
        if self.flags is not None:
            parameters["flags"] = self.flags(**{f.name: parameters.pop(f.name) for f in fields(self.flags)})
        try:
            with using(session.options.limits):
                self.function(session, **parameters)
        except RecursionError:
            if session.options.limits.nesting <= LIMITS.nesting:
                raise  # a fault of the toolkit: the default depth can always be read
            raise LimitExceeded("the program is nested deeper than Python can follow, though --max-nesting allows it") from None


def subcommand(
    *own: Parameter, flags: type | None = None, reads: bool = True, also_from: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Subcommand]:
    """Make `fn(session, **parameters)` a command. `own` are its options and arguments. `flags` is a record of some of them,
    which the function gets as one. `also_from` are more formats for `--from`."""

    def declare(function: Callable[..., None]) -> Subcommand:
        result = Subcommand(function, own, flags)
        if not reads:
            result.parameters += REPORTING
            return result
        result.parameters += (*_of_dialects(result.name), *REPORTING, from_option(*also_from), *_reading(result.name), *LIMITING)
        used = {word for p in result.parameters if not p.name.startswith(_CHOSEN) for word in p.words}
        if clash := next((o for o in _flagged(result.name) if o.flag in used), None):
            raise UsageError(f"the flag {clash.flag} of the option `{clash.name}` is taken")
        return result

    return declare


def _files(given: Iterable[object]) -> Iterator[str]:
    """The array files that a command line names: payloads may be read from them, wherever they are."""
    for x in given:
        if isinstance(x, (tuple, list)):
            yield from _files(x)
        elif isinstance(x, str) and (match := _ARRAYS.fullmatch(x)):
            yield match[1]


def _session(reporter: Reporter, command: str, parameters: Parameters, words: Sequence[Given]) -> Session:
    """Take the shared options out of `parameters`."""
    for name in ("color", "form", "path", "max_errors", "quiet", "verbose"):
        setattr(reporter, name, parameters.pop(name))
    parameters.pop("load")  # done before the command was imported
    if "form_in" not in parameters:
        return Session(command, reporter, words)
    reporter.strict = parameters.pop("strict")
    limits = {name.removeprefix("max_"): value for name in LIMIT_NAMES if (value := parameters.pop(name)) is not None}
    taken = {o: parameters.pop(_parameter_of(o)) for o in _flagged(command) if _parameter_of(o) in parameters}
    chosen = {o.name: type(o.default)(given) if o.many else given for o, given in taken.items()}
    chosen[WEIGHTS.name] += tuple(_files(parameters.values()))
    bindings, shapes = dict(parameters.pop("bindings")), dict(parameters.pop("shapes"))
    options = Options(replace(LIMITS, **limits), **{**chosen, BIND.name: bindings, SHAPES.name: shapes})
    return Session(command, reporter, words, options, parameters.pop("form_in"), bindings)
