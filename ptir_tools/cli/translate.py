"""`ptir translate`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from ptir_tools.cli import checking
from ptir_tools.cli.options import (
    check_options,
    elide_option,
    file_argument,
    int_range,
    mesh_options,
    option,
    output_option,
    sharding_of,
    split_option,
    subcommand,
    weights_option,
)
from ptir_tools.cli.output import distinct, each_program, format_of, is_folder, move_weights, only_one, to_stdout, write_weights
from ptir_tools.cli.session import Session
from ptir_tools.convert.options import CONSTANTS, LOSSY
from ptir_tools.core.diagnostics import Diagnostics, UsageError, unknown_name
from ptir_tools.core.dialect import Program
from ptir_tools.core.files import replacing
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects import FORMATS, OWNERS, writable
from ptir_tools.dialects.writing import program_pieces

if TYPE_CHECKING:
    from ptir_tools.plan.mesh import Mesh, Spec

arrayfiles = lazy("ptir_tools.core.arrayfiles")
arrays = lazy("ptir_tools.core.arrays")
inputs = lazy("ptir_tools.tools.inputs")
outcome = lazy("ptir_tools.tools.compare")
tempfile = lazy("tempfile")
toolchain = lazy("ptir_tools.tools.toolchain")
comments = lazy("ptir_tools.tools.comments")
compare = lazy("ptir_tools.engines.compare")
convert = lazy("ptir_tools.convert")
core = lazy("ptir_tools.core.dialect")
symbols = lazy("ptir_tools.core.symbols")
weights = lazy("ptir_tools.dialects.weights")


@dataclass(slots=True)
class Flags:
    """The options of the command, as click names them."""

    to: str
    lossy: bool
    constants: str | None
    elide_constants_larger: int | None
    weights_to: str | None
    opset: int | None
    external_data: bool
    mesh: Mesh | None
    shard: tuple[tuple[str, Spec], ...]
    split_input: bool
    check: bool
    check_with: str | None
    check_runs: int


@subcommand(
    file_argument,
    output_option,
    option(
        "--to",
        metavar="FORMAT",
        default="",
        help=f"One of {', '.join(writable())} (from the suffix of the -o FILE, if one format has it).",
    ),
    option("--lossy", is_flag=True, help="Allow changes of a NaN, of a range, or beyond rounding."),
    option(
        "--constants",
        metavar="FILE",
        help="Tiny, PTO: the .npz that gets (from Tiny: gives) constants that the IR cannot contain.",
    ),
    elide_option,
    weights_option,
    option("--opset", type=int_range(1), metavar="N", help="ONNX: the operator set (21)."),
    option("--external-data", is_flag=True, help="ONNX, C: keep constants in OUTPUT.data, as always from 2 GB (C: 16 MB) on."),
    *mesh_options,
    split_option,
    *check_options,
    option(
        "--check-with",
        metavar="COMMAND",
        help="pto-cpp: build {binary} of {source}, a host program for the kernels, with COMMAND. Run it on random inputs, and "
        "compare with ONNX Runtime if the program is a model of ONNX, else with the reference engine.",
    ),
    flags=Flags,
)
def command(session: Session, file: str, output: str | None, flags: Flags) -> None:
    """Write a program in another format, of its own IR or of another.

    Between formats of one IR only the text is rewritten. Between IRs the program is verified first. Ops that the target
    cannot express are refused, and all of them are reported.

    \b
    Examples:
      ptir translate net.mind.ir --to ptir --check
      ptir translate graph.json --to ptir | ptir opt | ptir run - --bind M=64 --random 0
      ptir translate program.json --to ptir-dump
      ptir translate net.ptir --to tiny --constants weights.npz -o graph.json
      ptir translate model.onnx -o model.ptir
      ptir translate model.onnx --to pto-cpp --target a3 -o out/ --check-with 'c++ {source} -o {binary}'
    """
    flags.to = flags.to or format_of(output)
    if flags.to not in FORMATS:
        raise unknown_name("format", flags.to, writable())
    only_one("--split-input", flags.split_input, constants=flags.constants, weights_to=flags.weights_to)
    distinct([file], output=output, weights_to=flags.weights_to, constants=flags.constants)
    session.set(lossy=flags.lossy)
    if flags.mesh is not None and not FORMATS[flags.to].meshes:
        able = " and ".join(name for name, entry in FORMATS.items() if entry.meshes)
        raise UsageError(f"{flags.to} has no place for a mesh: --mesh is for {able}")
    session.set(sharding=sharding_of(flags.mesh, flags.shard))
    session.set(elide_constants=flags.elide_constants_larger, opset=flags.opset)

    if flags.check_with is not None and FORMATS[flags.to].host is None:
        able = " and ".join(name for name, entry in FORMATS.items() if entry.host is not None)
        raise UsageError(f"--check-with is for {able}, not for {flags.to}")
    folder = output if FORMATS[flags.to].host is not None and is_folder(output) else None
    only_one("--split-input", flags.split_input, output=folder, check_with=flags.check_with)

    def make(source: Source) -> Iterable[str] | Iterable[bytes]:
        with contextlib.ExitStack() as files:
            return _translate(session, source, output, folder, flags, files)

    result = each_program(session, file, flags.split_input, make)
    if folder is None:
        result.write(output, flags.to)


def _translate(
    session: Session, source: Source, output: str | None, folder: str | None, flags: Flags, files: contextlib.ExitStack
) -> Iterable[str] | Iterable[bytes]:
    """The pieces of the program in `source`, in the format of `--to`. With a `folder` they are written there, with a host
    program."""
    dialect = OWNERS[flags.to].name
    program, diagnostics = session.program(source, verify=False)
    between = dialect != program.dialect.name
    if (
        between or flags.check or not FORMATS[flags.to].readable
    ):  # a format that cannot be read is a lowering, which needs a verified program
        session.verify(program, diagnostics)
        session.reporter.settle(diagnostics)
    if flags.constants is not None:
        session.set(constants=inputs.constants(flags.constants, program) if program.dialect.constants_outside else {})
    elif (flags.check or flags.check_with or folder) and OWNERS[flags.to].constants_given:
        session.set(constants={})
    if between and (flags.check or flags.check_with):
        program = _with_sizes(session, program, dialect)
    after = _convert(session, program, dialect, diagnostics) if between else program
    moved = move_weights(session, after, flags.to, flags.weights_to, output)
    _constants_file(session, after, output, flags, files)
    pieces = program_pieces(after, flags.to, diagnostics, session.options)
    session.reporter.settle(diagnostics)
    if between:
        pieces = comments.keep_comments(pieces, flags.to, program, after)
    if flags.check:
        _check(session, program, after, pieces, flags)
    if flags.check_with or folder:
        place = folder or files.enter_context(tempfile.TemporaryDirectory(prefix="ptir-"))
        _host(session, program, after, [str(piece) for piece in pieces], place, flags)
    if flags.constants is not None and after.dialect.constants_outside:
        literals = {name: arrays.from_literal(x) for name, x in (session.options[CONSTANTS] or {}).items()}
        with replacing(flags.constants) as file:
            arrayfiles.save(flags.constants, file, literals)
    write_weights(flags.weights_to, moved)
    return pieces


def _constants_file(session: Session, program: Program, output: str | None, flags: Flags, files: contextlib.ExitStack) -> None:
    """Open the file for constants next to a model, if it is requested or the model is too large."""
    if (capacity := FORMATS[flags.to].capacity) is None:
        if flags.external_data:
            able = " and ".join(name for name, entry in FORMATS.items() if entry.capacity is not None)
            raise UsageError(f"--external-data is for {able}, not for {flags.to}")
        return
    if flags.external_data and to_stdout(output):
        raise UsageError("--external-data writes a file next to the model; give a file with -o")
    if flags.external_data or (not to_stdout(output) and weights.nbytes(program) >= capacity):
        path = f"{output}.data"
        session.set(data=(os.path.basename(path), files.enter_context(replacing(path))))


def _check(session: Session, program: Program, after: Program, pieces: list[str] | list[bytes], flags: Flags) -> None:
    """Compare the written text with `program`: read it back, or run it on the engine of its own project if that is installed."""
    peer = None
    if (find := FORMATS[flags.to].peer) is not None:
        whole = program_pieces(after, flags.to, Diagnostics(), session.options.having(data=None))
        peer = find(b"".join(p for p in whole if isinstance(p, bytes)))
    if peer is not None:
        name, run = peer
        checking.check(session, program, after, flags.check_runs, peer=name, execute=run)
    else:
        written = checking.written(session, after, flags.to, pieces)
        checking.check(session, program, written, flags.check_runs, finite=session.options[convert.LOSSY])


def _host(session: Session, program: Program, after: Program, pieces: list[str], folder: str, flags: Flags) -> None:
    """Write the text, a host program and the constants to a folder; with --check-with build, run and compare it."""
    find = FORMATS[flags.to].host
    assert find is not None
    project = toolchain.Project(folder, find(after, session.options), pieces)
    constants = {name: arrays.from_literal(x) for name, x in (session.options[CONSTANTS] or {}).items()}
    if flags.check_with is None:
        project.put(project.host.files(constants))
        return
    project.build(flags.check_with)
    name, judge = outcome.judge(program) or ("the reference engine", None)
    session.reporter.tell(f"--check-with compares with {name}")
    finite = session.options[LOSSY]
    result = checking.check(
        session, program, after, flags.check_runs, execute=project.run, judge=judge, option="--check-with", finite=finite
    )
    checking.end(session, Diagnostics(program.source), result.verdict)


def _convert(session: Session, program: Program, dialect: str, diagnostics: Diagnostics) -> Program:
    after: Program | None = convert.translate(program, dialect, diagnostics, session.options)
    session.reporter.settle(diagnostics)
    if after is None:
        raise UsageError(f"there is no conversion from {program.dialect.name} to {dialect}")
    return after


def _with_sizes(session: Session, program: Program, dialect: str) -> Program:
    """The program that --check translates: `program`, or, if numbers are needed, a copy with small sizes for its free symbols."""
    if not symbols.symbols(program) or _translates(session, program, dialect):
        return program
    sizes = compare.small_sizes(program, session.bindings)
    static: Program = core.clone(program)
    symbols.bind(static, {**session.bindings, **sizes})
    verified = session.verify(static, Diagnostics(program.source))
    if not sizes or not verified or not _translates(session, static, dialect):
        return program
    session.reporter.say(f"--check chose {checking.listed(sizes)}: the translation needs numbers, and is only for these")
    return static


def _translates(session: Session, program: Program, dialect: str) -> bool:
    return convert.translate(program, dialect, Diagnostics(program.source), session.options) is not None
