"""ONNX Runtime as a peer for comparisons: it runs the file that the program was read from, else the program exported to ONNX."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from ptir_tools.bridges.onnx.table import DTYPES, NUMBERS
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program, Runner
from ptir_tools.core.dtypes import BF16, F32, FP8_E4M3, FP8_E5M2, SI4, SI8, UI4, UI8, DType
from ptir_tools.core.lazy import lazy, np, regex
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import onnxruntime

    from ptir_tools.bridges.onnx import format as onnx_format
    from ptir_tools.bridges.onnx import listing, protocols, submodel
else:
    onnx_format = lazy("ptir_tools.bridges.onnx.format")
    listing = lazy("ptir_tools.bridges.onnx.listing")
    protocols = lazy("ptir_tools.bridges.onnx.protocols")
    onnx = lazy("onnx")
    submodel = lazy("ptir_tools.bridges.onnx.submodel")
    onnxruntime = lazy("onnxruntime")

NAME = "onnxruntime"
INSTALL = "this is ONNX Runtime: pip install 'ptir-tools[onnx]'"
# A dtype that NumPy lacks is passed as a wider one.
_HELD = {BF16: F32, FP8_E4M3: F32, FP8_E5M2: F32, SI4: SI8, UI4: UI8}
_HELD_BY_NAME = {dtype.numpy: held.numpy for dtype, held in _HELD.items()}
_PLAIN = ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)), "float16", "float32", "float64")
_INNER = ".typed"
_MESSAGE = (1 << 31) - 1  # bytes of a model that is passed in memory
_NEWEST_IR = regex(r"max supported IR version: (\d+)")  # in ONNX Runtime's message about a model of a newer IR version


def outputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a program in order, from ONNX Runtime on the CPU; `inputs` are arrays by name. Raises Rejected for a program
    that ONNX cannot express, UsageError for one that ONNX Runtime cannot run, and where it is not installed.
    """
    return ready(program, plain=True)(inputs)


def ready(program: Program, threads: int = 0, plain: bool = False) -> Runner:
    """A function of inputs that returns outputs as `outputs` does; `threads` 0 means one per core. With `plain`, quantized
    operators are not fused with others, which would round differently."""
    require_runtime()
    source = program.source
    if source is not None and source.data is not None:
        whole = os.path.exists(source.name) and "part" not in program.attrs
        model: str | onnx.ModelProto = source.name if whole else _model(program)
    else:
        diagnostics = Diagnostics(source)
        result = onnx_format.exported(program, diagnostics, Options())
        diagnostics.raise_if_errors()
        assert result is not None
        model = result
    sessions: list[tuple[onnxruntime.InferenceSession, list[DType | None]]] = []

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        if not sessions:
            sessions.append(_opened(model, inputs, threads, plain))
        return _outputs(*sessions[0], inputs)

    return call


def values(program: Program, wide: Program, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """ONNX Runtime's arrays for the values `names` of `program`, as far as its file has these names; `wide` has them as outputs,
    and runs where there is no file. Raises like `outputs`."""
    require_runtime()
    source = program.source
    if source is None or source.data is None:
        return dict(zip(names, outputs(wide, inputs).values(), strict=True))
    model = _model(program)
    requested, own = set(names), {value.name for value in model.graph.output}
    more = [name for node in model.graph.node for name in node.output if protocols.spelled(name) in requested and name not in own]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
    entry = run(model, inputs)
    spelled = Counter(map(protocols.spelled, entry))
    return {protocols.spelled(name): x for name, x in entry.items() if spelled[protocols.spelled(name)] == 1}


def _model(program: Program) -> onnx.ModelProto:
    """The model, or the part of a model, that a program was read from."""
    source = program.source
    assert source is not None
    model = onnx.load(source.name) if os.path.exists(source.name) else onnx.ModelProto.FromString(source.data)
    return submodel.submodel(model, *program.attrs["part"]) if "part" in program.attrs else model


def peer(data: bytes) -> tuple[str, Runner] | None:
    """The name of ONNX Runtime, and a function that runs the model in `data`; None where it is not installed."""
    if not is_installed():
        return None
    return NAME, partial(run, onnx.ModelProto.FromString(data))


def is_installed() -> bool:
    """Whether ONNX Runtime can be imported."""
    return importlib.util.find_spec(NAME) is not None


def require_runtime() -> None:
    """Raise UsageError, with the install command, unless ONNX Runtime is installed."""
    try:
        onnxruntime.InferenceSession  # noqa: B018
    except ModuleNotFoundError:
        raise UsageError(INSTALL) from None


def run(model: str | onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name, in order, of a model: a ModelProto, or the path of its file. Inputs have the model's names, or the
    importer's spelling of them. Raises UsageError for a model that ONNX Runtime cannot run.
    """
    return _outputs(*_opened(model, inputs, 0, True), inputs)


def _opened(
    model: str | onnx.ModelProto, inputs: Mapping[str, Array], threads: int, plain: bool
) -> tuple[onnxruntime.InferenceSession, list[DType | None]]:
    """A session for inputs of these dtypes, and the model's dtype of each output that is returned in another."""
    dtypes: list[DType | None] = []
    if not isinstance(model, str) or any(x.dtype.name not in _PLAIN for x in inputs.values()):
        if isinstance(model, str):
            model = onnx.load(model)
        model, dtypes = _with_plain_ports(model)
    return _session(model if isinstance(model, str) else model.SerializeToString(), threads, plain), dtypes


def _outputs(session: onnxruntime.InferenceSession, dtypes: list[DType | None], inputs: Mapping[str, Array]) -> dict[str, Array]:
    feeds = {}
    for value in session.get_inputs():
        x = inputs.get(value.name, inputs.get(protocols.spelled(value.name)))
        if x is None:
            raise UsageError(f"ONNX Runtime needs the input `{value.name}`, which the program does not have")
        feeds[value.name] = np.asarray(x) if x.dtype.name in _PLAIN else x.astype(_HELD_BY_NAME[x.dtype.name])
    try:
        result = session.run(None, feeds)
    except Exception as error:  # its own exceptions have no common base
        raise UsageError(f"ONNX Runtime failed: {_first_line(error)}") from None
    kinds = dtypes or [None] * len(result)
    wide = (y if d is None else y.astype(arrays.numpy_dtype(d)) for y, d in zip(result, kinds, strict=True))
    return {value.name: y for value, y in zip(session.get_outputs(), wide, strict=True)}


def _with_plain_ports(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[DType | None]]:
    """A copy whose signature has only dtypes of NumPy, and the model's dtype of each output that changed."""
    copy = type(model)()
    copy.CopyFrom(model)
    before, after, dtypes = list["onnx.NodeProto"](), list["onnx.NodeProto"](), list[DType | None]()
    for value in (*copy.graph.input, *copy.graph.output):
        t = value.type.tensor_type
        dtype = DTYPES.get(t.elem_type)
        held = _HELD.get(dtype) if dtype is not None else None
        is_input = len(dtypes) < len(copy.graph.input)
        dtypes.append(dtype if held else None)
        if dtype is None or held is None:
            continue
        plain, own = value.name, f"{value.name}{_INNER}"
        _renamed(copy.graph, plain, own)
        value.name = plain
        t.elem_type = NUMBERS[held]
        more = {"saturate": 0} if held is F32 and dtype is not BF16 and is_input else {}
        target = NUMBERS[dtype if is_input else held]
        ends = ([plain], [own]) if is_input else ([own], [plain])
        (before if is_input else after).append(onnx.helper.make_node("Cast", *ends, to=target, **more))
    nodes = [*before, *copy.graph.node, *after]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy, dtypes[len(copy.graph.input) :]


def _renamed(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new
        for inner in listing.graphs_of(node):
            _renamed(inner, old, new)
    for value in (*graph.input, *graph.output, *graph.initializer):
        if value.name == old:
            value.name = new


def _with_ir(model: str | bytes, version: int) -> bytes | None:
    """The model with its IR version lowered to `version`: operators have versions of their own."""
    result = onnx.load(model) if isinstance(model, str) else onnx.ModelProto.FromString(model)
    if result.ir_version <= version or result.ByteSize() > _MESSAGE:
        return None
    result.ir_version = version
    whole: bytes = result.SerializeToString()
    return whole


def _session(model: str | bytes, threads: int, plain: bool) -> onnxruntime.InferenceSession:
    chosen = onnxruntime.SessionOptions()
    chosen.add_session_config_entry("session.disable_quant_qdq", str(int(plain)))
    chosen.intra_op_num_threads = threads
    chosen.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model, chosen, providers=["CPUExecutionProvider"])
    except Exception as error:
        if (newest := _NEWEST_IR.search(str(error))) and (older := _with_ir(model, int(newest[1]))) is not None:
            return _session(older, threads, plain)
        raise UsageError(f"ONNX Runtime does not take the model: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
