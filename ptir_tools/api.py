"""The Python API: what `ptir` does, as functions. Import it as `ptir_tools`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack, cast, overload
from typing import Literal as OneOf

from ptir_tools import convert, engines, passes
from ptir_tools.core import arrayfiles, symbols
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Rejected, UsageError, unknown_name
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.files import replacing
from ptir_tools.core.ir import Literal, Op
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import Limits
from ptir_tools.core.source import Source
from ptir_tools.core.verify import legalized
from ptir_tools.core.verify import verify as verify_program
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import DIALECTS, FORMATS, OWNERS, reading, weights
from ptir_tools.dialects.writing import program_pieces
from ptir_tools.engines.compiled import Compiled
from ptir_tools.engines.options import RunOptions
from ptir_tools.engines.sinks import TraceSink
from ptir_tools.engines.trace import tracing
from ptir_tools.plan import Method, Plan
from ptir_tools.plan import plan as plan_program
from ptir_tools.plan.mesh import Sharding, sharding
from ptir_tools.plugins import load
from ptir_tools.tools.diff import differences
from ptir_tools.tools.stats import Row, count

if TYPE_CHECKING:
    import jax
    import onnx
    import torch

    from ptir_tools.bridges import jax as jax_bridge
    from ptir_tools.bridges import numpy_trace
    from ptir_tools.bridges.numpy_control import cond, scan, while_
    from ptir_tools.bridges.onnx import format as onnx_format
    from ptir_tools.bridges.onnx import torch_export
    from ptir_tools.bridges.xla import function as xla_function
    from ptir_tools.bridges.xla.hosts import Hosts
    from ptir_tools.core.arrays import Array
    from ptir_tools.core.evaluate import Data
    from ptir_tools.dialects.ptir.builder.build import Graph, Tensor
    from ptir_tools.engines import compare as tolerances
    from ptir_tools.engines.tracefolder import TraceFolder
    from ptir_tools.tools import notebook, values
else:
    _LATER = {  # which programs that are read and run do without
        "Graph": "ptir_tools.dialects.ptir.builder.build",
        "Tensor": "ptir_tools.dialects.ptir.builder.build",
        "TraceFolder": "ptir_tools.engines.tracefolder",
        **dict.fromkeys(("cond", "scan", "while_"), "ptir_tools.bridges.numpy_control"),
    }

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(lazy(_LATER[name]), name)

    jax_bridge = lazy("ptir_tools.bridges.jax")
    numpy_trace = lazy("ptir_tools.bridges.numpy_trace")
    onnx_format = lazy("ptir_tools.bridges.onnx.format")
    torch_export = lazy("ptir_tools.bridges.onnx.torch_export")
    xla_function = lazy("ptir_tools.bridges.xla.function")
    tolerances = lazy("ptir_tools.engines.compare")
    notebook = lazy("ptir_tools.tools.notebook")
    values = lazy("ptir_tools.tools.values")

__all__ = [
    "Compiled", "Graph", "Program", "Rejected", "Tensor", "TraceFolder", "TraceSink", "UsageError", "Violation",
    "compare", "compile", "cond", "diff", "from_jax", "from_onnx", "from_torch", "load", "optimize", "plan", "read", "run",
    "scan", "sharding", "stats", "to_jax", "to_onnx", "to_torch", "trace", "tracing", "translate", "verify", "while_", "write",
]  # fmt: skip


# Editors complete these names. A plug-in may add formats, so functions take any text, too.
Engine = OneOf["auto", "reference", "numpy", "native", "xla"]
Format = OneOf[
    "ptir", "ptir-dump", "ptir-json", "onnx", "stablehlo", "stablehlo-bytecode", "pto", "ptoas", "pto-as", "pto-cpp", "mind",
    "mic", "mindc", "mind-json", "mlir", "tiny", "c",
]  # fmt: skip


class ReadOptions(TypedDict, total=False):
    """What may be chosen about reading and verifying; each IR takes what is its own."""

    limits: Limits
    profile: str  # "seed", "strict" (Tiny), "current" (MIND)
    target: str | None  # PTO: "a3" or "a5", over the module's own
    hazards: bool  # PTO: False leaves the hazard check out
    placeholders: dict[str, str]  # PTIR snippets: {{name}}
    weights: tuple[str, ...]  # text PTIR: folders and files that may hold constants, next to the program's own folder


class WriteOptions(TypedDict, total=False):
    """What may be chosen about writing."""

    elide_constants: int | None  # constants of more elements become dense<?>


class TranslateOptions(TypedDict, total=False):
    """What may be chosen about translating."""

    limits: Limits
    profile: str
    target: str | None  # to PTO: "a3" or "a5"
    cores: int  # to PTO: split the kernels over so many cores
    lossy: bool  # allow what changes a NaN, a range or more than rounding
    constants: dict[str, Literal] | None  # Tiny: the values of its constant INPUTs, by tensor_id; to Tiny it is filled


class OptimizeOptions(TypedDict, total=False):
    """What may be chosen about passes: fields of `PassContext`."""

    limits: Limits
    floats: passes.Floats  # what rewrites may change: "strict", "default", "fast"
    max_iterations: int | None
    verify_each: bool
    expensive_checks: bool
    step_limit: int | None
    hooks: list[passes.Hook]
    measures: list[str]  # gets what passes tell: how far outputs have moved


class PlanOptions(TypedDict, total=False):
    """What may be chosen about a plan."""

    align: int
    method: Method
    sharding: Sharding | None  # the plan of one device of a mesh


class EngineOptions(TypedDict, total=False):
    """What may be chosen about a run: fields of `RunOptions`."""

    engine: Engine
    function: str | None
    seed: int
    threads: int
    limits: Limits
    strict_fp: bool
    order: OneOf["sequential", "adversarial", "random"]  # PTO
    undef: OneOf["error", "nan", "zero", "random"]  # PTO
    observe: Callable[[Op, tuple[Data, ...]], None] | None
    timer: Callable[[Sequence[Op], float, float], None] | None
    timeout: float | None
    passes: passes.PassContext | None
    trace: TraceSink | None
    sharding: Sharding | None  # "xla": how values are cut over a mesh of devices
    hosts: Hosts | None  # "xla": the processes that run together
    poison: bool  # "numpy", "native": overwrite dead memory after each step


def read(
    program: str | os.PathLike[str],
    format: Format | str | None = None,
    *,
    bind: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    **options: Unpack[ReadOptions],
) -> Program:
    """Read and verify a program: the text itself (when it has a line end or a brace), or the path of its file or trace folder.

    `format` is recognized by content unless given; `bind` replaces symbols by numbers, `shapes` those of inputs (None leaves an
    extent as it is); for `options` see `ReadOptions`. Raises Rejected, OSError, LimitExceeded, UsageError for a shape that an
    input cannot have, and for an unknown option.
    """
    _known(options, ReadOptions)
    chosen, diagnostics = Options(bind=bind or {}, shapes=shapes or {}, **options), Diagnostics()
    source = _source(program, diagnostics, chosen)
    diagnostics.raise_if_errors()
    result = source and reading.read(source, diagnostics, chosen, format)
    if result:
        verify_program(result, diagnostics, chosen)
    diagnostics.raise_if_errors()
    return cast(Program, result)


def _source(program: str | os.PathLike[str], diagnostics: Diagnostics, options: Options) -> Source | None:
    if isinstance(program, str) and ("\n" in program or "{" in program):
        return Source("<string>", program)
    path = reading.program_file(os.fspath(program))
    with open(path, "rb") as file:
        return reading.decode(file.read(), path, diagnostics, options.limits)


def trace(function: Callable[..., object], *examples: object) -> Program:
    """The program of a function of NumPy for arguments like `examples`: arrays or numbers. Inputs have the names of the
    parameters.

    The function is called once. Operators and functions of NumPy on its arguments become ops, with NumPy's broadcasting and
    dtypes. What it computes from other arrays is constant. A branch on a value of an argument is a TypeError: use `np.where`.
    Raises UsageError for a function of NumPy that is not recorded.
    """
    return numpy_trace.trace(function, *examples)


def from_jax(function: Callable[..., object], *examples: object) -> Program:
    """The program of a function of JAX for arguments like `examples`: arrays, `jax.ShapeDtypeStruct`s, and trees of them.

    A function that `jax.jit` has made is taken with its options. The inputs are called as the parameters of the function are,
    and the leaves of a tree by their path (`params.dense.w`). Raises Rejected for what PTIR cannot express, UsageError when
    JAX is not installed.
    """
    return jax_bridge.from_jax(function, *examples)


def to_jax(program: Program, seed: int = 0) -> Callable[..., jax.Array | tuple[jax.Array, ...]]:
    """`program` as a function of JAX, which jit, grad and vmap take: of one array per input, in order; it gives an array, or a
    tuple of them. Programs of other IRs are translated to PTIR first. Needs the extra `xla`.

    The shapes of the arrays bind symbols. Random ops give what `seed` gives on every engine. JAX reports no error when a function
    runs: an index out of range is moved into it, and an integer divided by zero is what XLA makes of it. 64-bit dtypes need JAX's
    `jax_enable_x64`. Raises Rejected for a program that does not become PTIR, UsageError when JAX is not installed, or for an op
    that JAX cannot say.
    """
    return xla_function.to_jax(program if program.dialect.name == convert.HUB else translate(program, convert.HUB), seed)


def to_torch(
    program: Program, *, bind: Mapping[str, int] | None = None, **options: Unpack[EngineOptions]
) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """`program` as a function of tensors of torch: one per input, in order; it gives a tensor, or a tuple of them. It runs on the
    processor and has no gradients. For `options` see `EngineOptions`.

    Raises UsageError when torch is not installed, for an unknown option, and in a call for tensors that need gradients.
    """
    _known(options, EngineOptions)
    return notebook.to_torch(program, RunOptions(bindings=bind or {}, **options))


def from_onnx(
    model: onnx.ModelProto | str | os.PathLike[str],
    *,
    constants: Mapping[str, object] | None = None,
    bind: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    given: Collection[str] = (),
    from_values: Sequence[str] = (),
    to_values: Sequence[str] = (),
    **options: Unpack[ReadOptions],
) -> Program:
    """The PTIR program of an ONNX model: the path of its file, or a `ModelProto`. Needs the extra `onnx`.

    `constants` are inputs that are known: arrays by name, which the program then has not as parameters. `bind` gives symbols,
    `shapes` the extents of inputs (None leaves one as it is). `given` names inputs with a default that are to stay inputs.
    `from_values` and `to_values` name values of the model: only the part between them is read.
    Raises Rejected naming every node that cannot be expressed, UsageError when the package is not installed, OSError.
    """
    chosen = Options(
        placeholders=constants or {},
        bind=bind or {},
        shapes=shapes or {},
        given=given,
        from_values=from_values,
        to_values=to_values,
        **options,
    )
    diagnostics = Diagnostics()
    result = onnx_format.program(model, diagnostics, chosen)
    diagnostics.raise_if_errors()
    program = cast(Program, result)
    verify_program(program, diagnostics, chosen)
    diagnostics.raise_if_errors()
    return program


def to_onnx(program: Program, *, opset: int | None = None, lossy: bool = False) -> onnx.ModelProto:
    """`program` as a `ModelProto` of ONNX. Programs of other IRs are translated to PTIR first. Needs the extra `onnx`.

    `opset` is the operator set, 21 unless given. `lossy` takes the plain operators where ONNX leaves open what becomes of a NaN,
    or of a float that an integer cannot hold. Raises Rejected naming every op that ONNX cannot say, UsageError when the package
    is not installed.
    """
    diagnostics = Diagnostics(program.source)
    ready = program if program.dialect.name == convert.HUB else translate(program, convert.HUB)
    made = onnx_format.exported(ready, diagnostics, Options(opset=opset, lossy=lossy))
    diagnostics.raise_if_errors()
    return cast("onnx.ModelProto", made)


def from_torch(
    module: torch.nn.Module,
    example_inputs: Sequence[object],
    *,
    dynamic: Mapping[str, object] | Sequence[object] | None = None,
    bind: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> Program:
    """The PTIR program of a `torch.nn.Module`, exported in memory by `torch.onnx.export(dynamo=True)`. Needs the extra `torch`.

    `dynamic` gives the dynamic axes as `dynamic_shapes` of torch, `bind` and `shapes` numbers as in `from_onnx`. Raises Rejected,
    UsageError as `from_onnx`.
    """
    return from_onnx(torch_export.exported(module, tuple(example_inputs), dynamic), bind=bind, shapes=shapes)


def verify(program: Program, **options: Unpack[ReadOptions]) -> tuple[Diagnostic, ...]:
    """The warnings and notes about a program, for one made or changed by hand. Raises Rejected when there are errors."""
    _known(options, ReadOptions)
    diagnostics = Diagnostics(program.source)
    verify_program(program, diagnostics, Options(**options))
    diagnostics.raise_if_errors()
    return tuple(diagnostics.sorted())


@overload
def write(  # type: ignore[overload-overlap]
    program: Program,
    format: OneOf["stablehlo-bytecode"],
    *,
    weights: str | os.PathLike[str] | None = None,
    **options: Unpack[WriteOptions],
) -> bytes: ...
@overload
def write(
    program: Program,
    format: Format | str | None = None,
    *,
    weights: str | os.PathLike[str] | None = None,
    **options: Unpack[WriteOptions],
) -> str: ...
def write(
    program: Program,
    format: str | None = None,
    *,
    weights: str | os.PathLike[str] | None = None,
    **options: Unpack[WriteOptions],
) -> str | bytes:
    """The text of `program` in a format of its IR, by default the one it was read from; of bytecode its bytes.

    `weights` is a .safetensors or .npz file to write: text PTIR, put next to it, takes its constants of more than 16 elements
    from there. Raises Rejected, UsageError, OSError.
    """
    _known(options, WriteOptions)
    form = format or program.format or program.dialect.name
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    if not FORMATS[form].written:
        raise UsageError(f"{form} can be read, not written")
    if OWNERS[form] is not program.dialect or FORMATS[form].made_by:
        raise UsageError(f"`write` does not make {form} of a {program.dialect.name} program; `{_call(program, form)}` does")
    outside = {} if weights is None else _save_weights(program, form, os.fspath(weights))
    diagnostics = Diagnostics(program.source)
    pieces = program_pieces(program, form, diagnostics, Options(outside=outside, **options))
    diagnostics.raise_if_errors()
    binary = FORMATS[form].binary is not None
    return b"".join(cast("list[bytes]", pieces)) if binary else "".join(cast("list[str]", pieces))


def _call(program: Program, form: str) -> str:
    """The call that gives `program` in a format of any IR. Raises UsageError where there is none."""
    owner = OWNERS[form]
    if convert.route(program.dialect.name, owner.name) is None:
        raise UsageError(f"no conversion leads from {program.dialect.name} to {owner.name}, whose format {form} is")
    if maker := FORMATS[form].made_by:
        return f"{maker}(program)"
    given = "program" if owner is program.dialect else f'translate(program, "{owner.name}")'
    return f'write({given}, "{form}")'


def _save_weights(program: Program, form: str, path: str) -> dict[Literal, str]:
    if not FORMATS[form].has_weights:
        raise UsageError(f"weights are files next to text PTIR; {form} holds its constants itself")
    references, arrays = weights.outside(program, path)
    with replacing(path) as file:
        arrayfiles.save(path, file, arrays)
    return references


def _known(options: Collection[str], kind: type) -> None:
    """Raise UsageError for an option that `kind`, a TypedDict, does not have."""
    for name in options:
        if name not in kind.__annotations__:
            raise unknown_name("option", name, kind.__annotations__)


def stats(program: Program) -> list[Row]:
    """The operations and bytes of each kind of op, the most frequent first: fields `name`, `ops`, `operations` and `bytes`."""
    return count(program)


def diff(before: Program, after: Program) -> str:
    """How two programs of an IR differ in structure, as a unified diff; empty if they do not. Names make no difference.

    Raises UsageError for two IRs.
    """
    return "".join(differences(before, after, ("before", "after")))


def compare(
    before: Program,
    after: Program,
    *,
    bind: Mapping[str, int] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
) -> values.Report:
    """Run two programs on the same random inputs and compare them value by value, as `ptir diff --run` does. IRs, formats, dtypes
    and precisions may differ.

    The report has the `verdict` (a text that begins with PASS or FAIL), and the `first` and the `worst` value that differ. `rtol`
    and `atol` replace the computed bounds. Raises UsageError for programs without a form in PTIR, or with different inputs, and
    Rejected for what goes wrong in a program.
    """
    within = None if rtol is None and atol is None else tolerances.Tolerance(atol or 0.0, rtol or 0.0)
    chosen = RunOptions(bindings=bind or {})
    done = tolerances.check(before, after, 1, seed, options=chosen, mixed=True, within=within)
    return values.of_check(before, after, done, chosen, within)[2]


def optimize(program: Program, pipeline: str | None = None, **options: Unpack[OptimizeOptions]) -> Program:
    """An optimized copy of `program`. `pipeline` None is what `ptir opt` runs; for `options` see `OptimizeOptions`.

    Raises UsageError for a pipeline that makes no sense, and for an unknown option or float mode.
    """
    _known(options, OptimizeOptions)
    if "floats" in options and options["floats"] not in list(passes.Floats):
        raise unknown_name("float mode", options["floats"], list(passes.Floats))
    made = clone(program)
    diagnostics = Diagnostics(program.source)
    chosen = passes.default_pipeline(made) if pipeline is None else pipeline
    passes.run_pipeline(made, chosen, passes.PassContext(diagnostics, ready=Compiled, **options))
    diagnostics.raise_if_errors()
    return made


def translate(program: Program, dialect: str, **options: Unpack[TranslateOptions]) -> Program:
    """`program` in another IR (`ptir`, `pto`, `mind`, `tiny`). `write` gives the text of a program in a format of its IR.

    Raises Rejected naming every op that the target cannot express, UsageError for an unknown IR or option.
    """
    _known(options, TranslateOptions)
    if dialect not in DIALECTS and convert.route(program.dialect.name, dialect) is None:
        if dialect not in FORMATS:
            raise unknown_name("IR", dialect, DIALECTS)
        raise UsageError(f"{dialect} is a format of {OWNERS[dialect].name}, not an IR; `{_call(program, dialect)}` makes it")
    diagnostics = Diagnostics(program.source)
    made = convert.translate(program, dialect, diagnostics, Options(**options))
    diagnostics.raise_if_errors()
    if made is None:
        raise UsageError(f"there is no conversion from {program.dialect.name} to {dialect}")
    return made


def plan(program: Program, *, bind: Mapping[str, int] | None = None, **options: Unpack[PlanOptions]) -> Plan:
    """Where every value of `program` lives in memory. `bind` gives the symbols; for `options` see `PlanOptions`.

    Raises Violation("UnboundSymbol") when an extent stays open, Rejected for a program that cannot be made explicit, UsageError
    for an unknown option.
    """
    _known(options, PlanOptions)
    made = clone(legalized(program))
    symbols.specialize(made, {**made.attrs.get("dims", {}), **(bind or {})})
    return plan_program(made, **options)


def run(
    program: Program,
    inputs: Mapping[str, Array] | Sequence[Array],
    *,
    bind: Mapping[str, int] | None = None,
    **options: Unpack[EngineOptions],
) -> dict[str, Array]:
    """The outputs of `program` by name. `inputs` are arrays by name or in order; for `options` see `EngineOptions`.

    Raises UsageError for inputs that do not fit and for an unknown option, Rejected for what goes wrong in the program,
    LimitExceeded.
    """
    _known(options, EngineOptions)
    return notebook.Results(engines.run(program, inputs, RunOptions(bindings=bind or {}, **options)))


def compile(
    program: Program, *, bind: Mapping[str, int] | None = None, reuse: bool = False, **options: Unpack[EngineOptions]
) -> Compiled:
    """`program` as a function of its inputs that is made ready once: see `Compiled`. For `options` see `EngineOptions`.

    Raises UsageError for an unknown option.
    """
    _known(options, EngineOptions)
    return Compiled(program, RunOptions(bindings=bind or {}, **options), reuse)
