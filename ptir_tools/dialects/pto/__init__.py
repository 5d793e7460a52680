"""PTO IR: tiles, memrefs, events. Specification: PTO IR (Tile-Level IR)."""

from collections.abc import Mapping

from ptir_tools.core.dialect import Codes, Dialect, FormatEntry, Option, Pipeline, Program
from ptir_tools.core.lazy import late, lazy, value

_HERE = "ptir_tools.dialects.pto"
RESULTS = r"(?:%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*\s*=\s*)?"
targets = lazy("ptir_tools.dialects.pto.targets")

TILES = "pto-canonicalize,pto-canonicalize-views,pto-infer-tile-info,pto-legalize"
BOUND = "pto-bufferize,pto-canonicalize,pto-insert-events"  # addresses, then what waits for what


SPLIT = "pto.split"  # an attribute of a program for `pto-split-cores`: over how many cores


def _for_target(program: Program, options: Mapping[str, object]) -> None:
    """The program with the target of `options`, or with its own, to be split over the cores of `options`."""
    if options["target"]:
        targets.retarget(program, options["target"])
    if options["cores"] != 1:
        program.attrs[SPLIT] = str(options["cores"])


def _target(name: str) -> str:
    """The name of a target, as it was given. Raises ValueError."""
    if targets.find(name) is None:
        raise ValueError(f"`{name}` is not a target; there are {' and '.join(targets.TARGETS)}")
    return name


TARGET: Option[str | None] = Option(  # over the module's own
    "target",
    None,
    flag="--target",
    metavar="TARGET",
    parse=_target,
    commands=("verify", "run", "translate", "plan"),
    help="PTO: the target, a3 or a5.",
)


def _cores(text: str) -> int:
    """A number of cores. Raises ValueError."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_CORES:
        raise ValueError(f"`{text}` is not a number of cores from 1 to {MOST_CORES}")
    return int(text)


MOST_CORES = 1024
CORES = Option(
    "cores",
    1,
    flag="--cores",
    metavar="N",
    parse=_cores,
    commands=("translate",),
    help="PTO: split the kernels over N cores.",
)
HAZARDS = Option("hazards", True)  # the hazard check is part of verify
ROOM = Option("room", False)  # what is live at once must have room: an error, no warning
FORMS = Option("forms", False)  # what `pto-legalize` rewrites is an error
DIALECT_VERSION = Option(
    "dialect_version",
    "newest",
    flag="--dialect-version",
    choices=("newest", "0.1"),
    commands=("translate",),
    help="ptoas: the spelling; 0.1 is that of the first wheels.",
)

_ODD_NAMES = (
    "0", "00", "1", "2", "10", "9999999999999999999999999", "-", "-1", "a-b", ".5", "1e5", "0x2", "inf", "true", "to", "step",
    "else", "index", "wait", "tile", "valid", "$", "a.b", "i", "x", "v0", "e1", "c0",
)  # fmt: skip
DIALECT = Dialect(
    name="pto",
    specification="PTO IR (https://github.com/hw-native-sys/pto-isa)",
    formats=(
        FormatEntry(
            "pto",
            f"{_HERE}.text.format",
            suffix=".pto",
            begins=rf"{RESULTS}\"?[A-Za-z_]\w*\.[A-Za-z_]|module\b|#pto\b",
            keywords=r"module|func\.func|return|to|wait|iter_args|step|else|do",
            type_words="tile|memref|vector|index|strided",
            op_prefix=r"(?:pto\.|arith\.)?",
            directive=r"#pto\b",
            ambiguous=True,  # other dialects of MLIR
            opening=("module", "func.func"),
        ),
        FormatEntry(
            "ptoas",
            f"{_HERE}.ptoas.format",
            suffix=".pto",
            begins=late(f"{_HERE}.ptoas.sniff", "begins"),
            imported=True,
        ),
        FormatEntry("pto-as", f"{_HERE}.text.assembly", readable=False),
        FormatEntry("pto-cpp", f"{_HERE}.text.cpp", readable=False, host=late(f"{_HERE}.text.cpp.host", "host")),
    ),
    declares=f"{_HERE}.ops",
    shows_makers=True,
    codes=Codes(
        syntax="ParseError",
        operand_count="TypeMismatch",
        unknown_attribute="UnknownAttribute",
        result_type="TypeMismatch",
    ),
    constant="constant",
    pipeline=f"{TILES},pto-insert-events",
    pipelines={
        "pto": Pipeline(
            f"{TILES},pto-split-cores,pto-software-pipeline,pto-canonicalize,{BOUND}",
            "The complete pipeline for a target: clean up, infer, split over cores, load ahead, bind tiles, add events.",
            {"target": "", "cores": 1},
            _for_target,
        )
    },
    passes="ptir_tools.passes.pto",
    type_text=late(f"{_HERE}.types", "type_text"),
    options=(TARGET, CORES, HAZARDS, ROOM, FORMS, DIALECT_VERSION),
    check=late(f"{_HERE}.check", "check"),
    check_despite_errors=late(f"{_HERE}.check", "check_elements"),
    explain=value(f"{_HERE}.codes", "CODES"),
    generate=late(f"{_HERE}.generate", "generate"),
    odd_names=_ODD_NAMES,
    guard=late(f"{_HERE}.steps", "Steps"),
    names_results=False,
    keeps_order=True,
    constants_outside=True,
    constants_given=True,
    late_errors=frozenset({"InvalidValid", "Misaligned", "OutOfBounds"}),
    outputs=late(f"{_HERE}.run.executor", "memory"),
    executor=late(f"{_HERE}.run.executor", "Executable"),
    timeline=late(f"{_HERE}.run.timeline", "Timeline"),
    pipe=late(f"{_HERE}.pipes", "unit"),
    signals=late(f"{_HERE}.types", "is_event"),
    arenas=late(f"{_HERE}.memory.capacity", "arenas"),
    targets=value(f"{_HERE}.machines", "MACHINES"),
)
