"""Conformance of an implementation of MIND Core IR or Tiny IR with conformance cases (format: `tools.cases`).

The implementation is this toolkit, or a command. Each case has one task; the answer is compared here.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Rejected, Severity, UsageError
from ptir_tools.core.dialect import PROFILE, Options, Program, Reader, Writer
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.source import Source
from ptir_tools.core.symbols import bind
from ptir_tools.core.typed import Protocol
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import OWNERS, load_dialect, load_format
from ptir_tools.dialects.sniff import sniff
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.signature import Port
from ptir_tools.passes import PassContext, default_pipeline, run_pipeline
from ptir_tools.tools.cases import Case, Result
from ptir_tools.tools.inputs import Inputs, dtype_of, generated, shape_of

IRS = ("mind", "tiny")
TASKS = ("verify", "canonicalize", "gradient", "run", "save")
STABLE, STABLE_FORM = "stability", "mic"  # the category of texts that are loaded and saved, and their format
GRADIENT = "autodiff,canonicalize"
_TOLERANCES = {"f64": 1e-12, "f16": 1e-3, "bf16": 1e-2}  # the default tolerance by dtype, and for all other dtypes:
_TOLERANCE = 1e-6
# Codes of MIND's public cases that differ from its catalogue; they pass where the message is right, too.
_SAME = {"E4003": "E3007"}
_SKIPPED_PROFILES = {"gpu": "no GPU is used"}


class Found(NamedTuple):
    """An error that an implementation reports."""

    code: str
    message: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f" at {self.line}:{self.column}"
        return f"{self.code}{place}: {self.message}"


@dataclass(slots=True)
class Answer:
    """The answer of an implementation: errors, or the text of a module, or its outputs."""

    errors: list[Found] = field(default_factory=list)
    text: str = ""
    outputs: list[Array] = field(default_factory=list)


class Implementation(Protocol):
    """An implementation: a function from task and case to an answer. Raises Unable when there is no answer."""

    def __call__(self, task: str, case: Case) -> Answer: ...


class Unable(Exception):
    """An implementation did not answer, or not in the required format."""


class Outcome(NamedTuple):
    """The outcome of a case: passed, failed or skipped, and why."""

    status: str
    reason: str = ""


def evaluate(case: Case, ir: str, answer: Implementation) -> Outcome:
    """Run one case on an implementation. Raises UsageError for a command that cannot be run."""
    if case.module is None:
        return Outcome("skipped", "input.source is a program of the surface language")
    if case.profile in _SKIPPED_PROFILES:
        return Outcome("skipped", _SKIPPED_PROFILES[case.profile])
    task = task_of(case)
    try:
        given = answer(task, case)
        wrong = _error_differs(case, given) if case.fails else _success_differs(case, ir, given)
    except (Unable, Rejected, LimitExceeded) as error:
        wrong = str(error)
    return Outcome("failed", wrong) if wrong else Outcome("passed")


def task_of(case: Case) -> str:
    """The task of a case."""
    if case.category == STABLE:
        return "save"
    if case.ir is not None:
        return "canonicalize"
    if case.category == "autodiff" or case.gradient is not None:
        return "gradient"
    return "run" if case.results or (case.fails and case.category == "runtime") else "verify"


def _error_differs(case: Case, answer: Answer) -> str:
    """The mismatch of the errors of a case that must fail; empty when there is none."""
    wanted = Found(case.code, case.message, case.line, case.column)
    if any(_is(wanted, entry) for entry in answer.errors):
        return ""
    message = "; ".join(map(str, answer.errors)) or "no error"
    return f"expected {wanted}\nfound {message}"


def _is(wanted: Found, result: Found) -> bool:
    same = wanted.code == result.code or (bool(wanted.message) and _SAME.get(wanted.code) == result.code)
    places = all(w in (None, f) for w, f in zip(wanted[2:], result[2:], strict=True))
    return same and places and wanted.message.lower() in result.message.lower()


def _success_differs(case: Case, ir: str, answer: Answer) -> str:
    if answer.errors:
        return f"expected no error\nfound {'; '.join(map(str, answer.errors))}"
    if case.category == STABLE:
        return _texts_differ(case.ir or case.module or "", answer.text)
    if case.ir is not None:
        wanted, result = (_spelled(text, ir, case, what) for text, what in ((case.ir, "expected"), (answer.text, "answered")))
        return _texts_differ(wanted, result)
    outputs = answer.outputs
    if task_of(case) == "gradient":
        program = _program(answer.text, ir, case, "answered")
        outputs = _outputs(program, case)
        if case.gradient is not None:
            return _arrays_differ(_outputs(_program(case.gradient, ir, case, "expected"), case), outputs)
    return _results_differ(case.results, outputs, ir) if case.results else ""


def _texts_differ(wanted: str, result: str) -> str:
    return "".join(difflib.unified_diff(wanted.splitlines(True), result.splitlines(True), "expected", "found"))


def _reader(text: str, ir: str) -> Reader:
    """What reads a module: in the format that the text begins like, if it is one of the IR."""
    name = sniff(text)
    read = load_format(name if name and OWNERS[name].name == ir else ir).read
    assert read is not None
    return read


def _writer(form: str) -> Writer:
    write = load_format(form).write
    assert write is not None
    return write


def _program(text: str, ir: str, case: Case, what: str) -> Program:
    """The verified program of a text. Raises Unable."""
    diagnostics, options = Diagnostics(source := Source(what, text)), _options(case)
    program = _reader(text, ir)(source, diagnostics, options)
    if program is None or not verify(program, diagnostics, options) or diagnostics.errors:
        raise Unable(f"the {what} module is wrong: {'; '.join(map(str, _found(diagnostics)))}")
    return program


def _spelled(text: str, ir: str, case: Case, what: str) -> str:
    """A module in this toolkit's canonical spelling, so that only its content is compared."""
    return "".join(_writer(ir)(_program(text, ir, case, what), Diagnostics(), Options()))


def _outputs(program: Program, case: Case, engine: str = "auto") -> list[Array]:
    """The outputs of a program on the inputs of a case; for a gradient module, missing inputs are random. Raises Unable."""
    chosen = Inputs(tuple(case.tensors.items()), bindings=case.bind, random=0 if case.gradient is not None else None)
    try:
        return list(run(program, chosen.arrays(program), RunOptions(engine=engine, bindings=case.bind)).values())
    except UsageError as error:
        raise Unable(str(error)) from None
    except Violation as violation:  # of an input's shape
        raise Rejected([Diagnostic(Severity.ERROR, violation.code, violation.message)]) from None


def _arrays_differ(wanted: Sequence[Array], results: Sequence[Array]) -> str:
    if len(wanted) != len(results):
        return f"expected {len(wanted)} outputs, found {len(results)}"
    for k, (w, f) in enumerate(zip(wanted, results, strict=True)):
        if (w.dtype, w.shape) != (f.dtype, f.shape):
            return f"output {k}: expected {w.dtype}{list(w.shape)}, found {f.dtype}{list(f.shape)}"
        if wrong := _values_differ(k, w, f, _TOLERANCE if w.dtype.itemsize < 8 else _TOLERANCES["f64"]):
            return wrong
    return ""


def _results_differ(wanted: Sequence[Result], results: Sequence[Array], ir: str) -> str:
    if len(wanted) != len(results):
        return f"expected {len(wanted)} outputs, found {len(results)}"
    for k, (w, f) in enumerate(zip(wanted, results, strict=True)):
        dtype = load_dialect(ir).dtypes().get(w.dtype)
        if dtype is None:
            return f"output {k}: {ir} has no dtype {w.dtype}"
        if (arrays.numpy_dtype(dtype), w.shape) != (f.dtype, f.shape):
            return f"output {k}: expected {w.dtype}{list(w.shape)}, found {f.dtype}{list(f.shape)}"
        values = _array(Port(f"output {k}", tensor(dtype, w.shape)), w.values)
        given = _TOLERANCES.get(dtype.name, _TOLERANCE) if w.tolerance is None else w.tolerance
        if wrong := _values_differ(k, values, f, given):
            return wrong
    return ""


def _array(port: Port, text: str) -> Array:
    """The array that nested lists spell. Raises Unable."""
    if 0 in (shape := shape_of(port)):
        return np.zeros(shape, arrays.numpy_dtype(dtype_of(port.type)))
    try:
        return generated(port, text, 0, 0)
    except UsageError as error:
        raise Unable(str(error)) from None


def _values_differ(k: int, wanted: Array, result: Array, tolerance: float) -> str:
    """The first element that differs by more than `tolerance`, relative to the expected one where that is above 1."""
    w, f = arrays.widen(wanted), arrays.widen(result)
    off = w != f
    if w.dtype.kind == "f":
        with np.errstate(all="ignore"):
            off &= ~(np.isnan(w) & np.isnan(f)) & ~(np.abs(w - f) <= tolerance * np.maximum(np.abs(w), 1))
    if not np.any(off):
        return ""
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    return f"output {k}{list(at)}: expected {w[at]}, found {f[at]} ({int(np.count_nonzero(off))} elements differ)"


@dataclass(slots=True)
class Ours:
    """This toolkit as the implementation; `engine` runs modules."""

    ir: str
    engine: str = "auto"

    def __call__(self, task: str, case: Case) -> Answer:
        """Do one task of a case."""
        diagnostics, options = Diagnostics(source := Source("module", case.module or "")), _options(case)
        program = _reader(source.text, self.ir)(source, diagnostics, options)
        if program is not None:
            bind(program, case.bind)
            verify(program, diagnostics, options)
        if program is None or diagnostics.errors:
            return Answer(_found(diagnostics))
        if task == "run":
            try:
                return Answer(outputs=_outputs(program, case, self.engine))
            except Rejected as rejected:
                return Answer(_found(rejected.diagnostics))
        if task not in ("verify", "save"):
            pipeline = GRADIENT if task == "gradient" else default_pipeline(program)
            run_pipeline(program, pipeline, PassContext(diagnostics))
        return Answer(
            _found(diagnostics), "".join(_writer(STABLE_FORM if task == "save" else self.ir)(program, Diagnostics(), options))
        )


def _options(case: Case) -> Options:
    return Options(profile=case.profile if case.profile in PROFILE.choices else PROFILE.default)


def _found(diagnostics: Iterable[Diagnostic]) -> list[Found]:
    return [Found(d.code, d.message, *d.where[1:]) for d in diagnostics if d.severity is Severity.ERROR]


@dataclass(slots=True)
class Command:
    """A command as the implementation. In it `{task}` is one of TASKS, `{file}` the path of the module, and `{inputs}` that of a
    JSON object with what the case gives: `tensors`, `bind`, `profile`.

    It exits with 0 and prints a module (canonicalize, gradient), or the outputs as JSON (run): a list of objects `dtype`,
    `shape`, `values`. Or it exits with another code and prints, on either stream, the error's code, its message, and
    `LINE:COLUMN`.
    Raises UsageError when it cannot be run.
    """

    command: str
    ir: str
    timeout: float | None = None

    def __post_init__(self) -> None:
        try:
            shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"--command {self.command}: {str(error).lower()}") from None
        if not self.command.split():
            raise UsageError("--command needs a command")

    def __call__(self, task: str, case: Case) -> Answer:
        """Run the command once."""
        with tempfile.TemporaryDirectory(prefix="ptir-") as folder:
            places = {"task": task, "file": os.path.join(folder, "module"), "inputs": os.path.join(folder, "inputs.json")}
            tensors = {name: json.loads(text) for name, text in case.tensors.items()}
            given = {"tensors": tensors, "bind": case.bind, "profile": case.profile}
            for place, text in (("file", case.module or ""), ("inputs", json.dumps(given))):
                with open(places[place], "w", encoding="utf-8", newline="") as file:
                    file.write(text)
            words = [re.sub(r"\{(task|file|inputs)\}", lambda m: places[m[1]], word) for word in shlex.split(self.command)]
            status, out, errors = _ran(words, self.timeout)
        if status:
            return Answer(_reported(f"{out}\n{errors}", case))
        return Answer(outputs=_read_outputs(out, self.ir)) if task == "run" else Answer(text=out)


def _ran(words: Sequence[str], timeout: float | None) -> tuple[int, str, str]:
    """(exit code, standard output, standard error). Processes that the command has started end with it."""
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise UsageError(f"--command {words[0]}: {(error.strerror or str(error)).lower()}") from None
    with child:
        try:
            out, errors = child.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Unable(f"no answer within {timeout:g} s") from None
            raise
    if child.returncode < 0:
        raise Unable(f"the command was ended by signal {-child.returncode}")
    return child.returncode, out.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def _reported(text: str, case: Case) -> list[Found]:
    """The error that a failing command reports, in terms of the expected one: its whole output is the message."""
    codes = [code for code in (case.code, _SAME.get(case.code, "")) if code and re.search(rf"\b{re.escape(code)}\b", text)]
    place = f"{case.line or ''}:{case.column or ''}"
    there = case.line is None or re.search(rf"(?<!\d){re.escape(place)}(?!\d)", text) is not None
    return [Found(codes[0] if codes else "", text.strip(), *((case.line, case.column) if there else (None, None)))]


def _read_outputs(text: str, ir: str) -> list[Array]:
    """Outputs that a command prints. Raises Unable."""
    try:
        listed = json.loads(text)
        arrays = []
        for k, entry in enumerate(listed if isinstance(listed, list) else [listed]):
            t = tensor(load_dialect(ir).dtypes()[entry["dtype"]], tuple(entry["shape"]))
            arrays.append(_array(Port(f"output {k}", t), json.dumps(entry["values"])))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unable(f"the outputs are not in the form of a list of dtype, shape, values: {error}") from None
    return arrays
