"""`python -m tests.bench quantize DIR [NAME…] [--options OPTIONS]`: every `.onnx` file of a folder, quantized by the pass and by
ONNX Runtime's static quantizer from the same samples.

A line per model has, in this order: the products in integers; the largest relative error of an output on samples held out, of the
pass, of its model in ONNX Runtime (with `results=true`), and of ONNX Runtime's quantizer; the time of f32 by that of integers in
our engine; and the time of ONNX Runtime's quantized model by ours. One thread, medians of interleaved runs in CPU time. Samples
are smooth random numbers, as pictures and sounds are. Both choose ranges by minimum and maximum, unsigned values, and signed
weights with a scale per channel.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ptir_tools as ptir
from ptir_tools.dialects.ptir.quantization.samples import errors, held_out
from ptir_tools.engines.compiled import Compiled
from ptir_tools.passes import PassContext, run_pipeline
from tests.bench.world import Arrays, line, opened, shaped, timed
from tests.suites.world import fitting

SAMPLES, FEW, LARGE = 64, 16, 1 << 17  # samples; of inputs of many numbers
HEADINGS = ("model", "products", "error", "in ORT", "ORT", "faster", "by ORT")
# Sizes of real use, of inputs that the files leave open, and the range of pictures; else it is from 0 to 1.
SHAPES = {
    "320n": {"images": (1, 3, 320, 320)},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 320, 320)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)},
    "open-nsfw": {"input:0": (1, 224, 224, 3)},
}
RANGES = {"ch_": (-1.0, 1.0), "open-nsfw": (-110.0, 145.0)}
READY = "convolutions,fold-scales{range=true},canonicalize,cse,dce"  # scales are in the weights, as in ONNX Runtime
OLDEST = 13  # the operator set from which ONNX Runtime quantizes by channel


def smooth(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Random numbers in [0, 1] whose neighbors are alike, as in pictures and sounds; in pictures there are rows of signs."""
    axes = [a for a in range(len(shape)) if shape[a] > 4][-2:]
    waves = np.zeros([1] * len(shape))
    for a in axes:
        row = np.square(np.fft.fftfreq(shape[a]) * shape[a])
        waves = waves + row.reshape([-1 if b == a else 1 for b in range(len(shape))])
    x = np.fft.ifftn(np.fft.fftn(rng.normal(size=shape), axes=axes) / (1 + np.sqrt(waves)), axes=axes).real
    x = (x - x.min()) / max(float(np.ptp(x)), 1e-9)
    if len(shape) == 4 and min(shape[a] for a in axes) >= 48:
        view = np.moveaxis(x, axes, (-2, -1))
        high, wide = view.shape[-2:]
        size = int(rng.integers(3, 7))  # of a part of a sign, which has 5 x 5
        signs = np.pad(rng.random((high // (7 * size), wide // (6 * size), 5, 5)) < 0.5, ((0, 0), (0, 0), (1, 1), (1, 0)))
        rows = signs.transpose(0, 2, 1, 3).reshape(signs.shape[0] * 7, -1).repeat(size, 0).repeat(size, 1)
        lines = view[..., : rows.shape[0], : rows.shape[1]]
        lines[:] = np.where(rows, rng.random(), lines)
    return x.astype(np.float32)


def drawn(path: Path) -> tuple[dict[str, Sequence[int]], list[dict[str, np.ndarray]]]:
    """The shapes of the inputs of a model, and samples of them."""
    shapes, inputs = fitting(opened(str(path)), None)
    known = SHAPES.get(path.stem, {})
    low, high = next((pair for name, pair in RANGES.items() if path.stem.startswith(name)), (0.0, 1.0))
    rng = np.random.default_rng(0)

    def one(name: str, x: np.ndarray) -> np.ndarray:
        shape = known.get(name, x.shape)
        if x.dtype == np.float32:
            return (smooth(rng, shape) * np.float32(high - low) + np.float32(low)).astype(np.float32)
        return rng.integers(0, 100, shape).astype(x.dtype)

    first = {name: one(name, x) for name, x in inputs.items()}
    count = SAMPLES if sum(x.size for x in first.values()) < LARGE else FEW
    return {**shapes, **known}, [first, *({name: one(name, x) for name, x in inputs.items()} for _ in range(count - 1))]


def peer(model: Any, folder: Path, samples: Sequence[Arrays]) -> Path:
    """The model that ONNX Runtime's static quantizer makes."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = iter(samples)

        def get_next(self) -> Arrays | None:
            return next(self.rest, None)

    if model.opset_import[0].version < OLDEST:
        model = onnx.version_converter.convert_version(model, 17)
    given, ready, made = (folder / f"{name}.onnx" for name in ("given", "ready", "made"))
    onnx.save(model, given)
    try:
        quant_pre_process(str(given), str(ready))
    except Exception:  # it infers shapes of some models only without symbols
        quant_pre_process(str(given), str(ready), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(ready),
        str(made),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return made


def measured(path: Path, options: str) -> Iterator[str]:
    """The columns of a model after its name."""
    import onnx

    shapes, samples = drawn(path)
    model = shaped(path, shapes)
    calibration, rest = held_out(samples)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(model, folder / "model.onnx")
        program = ptir.read(folder / "model.onnx")
        np.savez(folder / "samples.npz", **{n: np.stack([s[n] for s in samples]) for n in samples[0]})  # type: ignore[arg-type]
        plain, context = ptir.optimize(program, READY), PassContext(ready=Compiled)
        made = ptir.optimize(plain, "")
        run_pipeline(made, f'quantize{{calibration="{folder / "samples.npz"}"{options}}}', context)
        yield str(context.statistics["quantize"]["quantized"])
        session = opened(str(folder / "model.onnx"))
        want = [dict(zip([y.name for y in session.get_outputs()], session.run(None, s), strict=True)) for s in rest]
        ours = ptir.compile(made, threads=1)
        yield f"{max(errors(want, [{k: v.copy() for k, v in ours(s).items()} for s in rest]).values()):.4f}"

        def off(file: Path) -> tuple[str, Any]:
            other = opened(str(file))
            given = [x.name for x in other.get_inputs()]
            got = [dict(enumerate(other.run(None, dict(zip(given, s.values(), strict=True))))) for s in rest]
            last = dict(zip(given, rest[0].values(), strict=True))
            return f"{max(errors(want, got).values()):.4f}", lambda: other.run(None, last)

        rounded = ptir.optimize(plain, f'quantize{{calibration="{folder / "samples.npz"}",results{options}}}')
        onnx.save(ptir.to_onnx(rounded), folder / "ours.onnx")
        yield off(folder / "ours.onnx")[0]
        try:
            theirs, call = off(peer(model, folder, calibration))
        except Exception as error:
            theirs, call = type(error).__name__, None
        yield theirs
        floats = ptir.compile(plain, threads=1)
        calls = [lambda: ours(rest[0]), lambda: floats(rest[0]), *([call] if call else [])]
        mine, wide, *by = timed(1, *calls)
        yield f"{wide / mine:.2f}"
        yield f"{by[0] / mine:.2f}" if by else "-"


def main(arguments: Sequence[str]) -> None:
    """Print the table of the folder `arguments[0]`; further arguments choose files by a part of their name."""
    options, wanted = "", list(arguments)
    if "--options" in wanted:
        k = wanted.index("--options")
        options = f",{wanted[k + 1]}" if wanted[k + 1] else ""
        del wanted[k : k + 2]
    if not wanted or not Path(wanted[0]).is_dir():
        sys.exit("usage: python -m tests.bench quantize DIR [NAME…] [--options OPTIONS]")
    folder, *wanted = wanted
    line(HEADINGS)
    for path in sorted(Path(folder).rglob("*.onnx")):
        if wanted and not any(name in path.name for name in wanted):
            continue
        row = [path.stem]
        try:
            row.extend(measured(path, options))
        except Exception as error:
            row.append(f"{type(error).__name__}: {str(error)[:100]}")
        line(row)
