"""Frames, padding and slices of sequences of symbolic lengths, as models of speech and text have them, held to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from tests.bridges.onnx.test_import import ENGINES, model, node, noise

LENGTH, STEP = 8, 3


def spectra(x: Any, window: Any, onesided: bool) -> Any:
    """The transforms of frames of x [B, N], by NumPy: [B, frames, bins, 2]."""
    frames = np.stack([x[:, at : at + LENGTH] for at in range(0, x.shape[1] - LENGTH + 1, STEP)], 1) * window
    found = (np.fft.rfft if onesided else np.fft.fft)(frames.astype(complex if not onesided else float))
    return np.stack([found.real, found.imag], -1)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("onesided", "width"), [(0, 1), (1, 1), (0, 2)])
def test_frames_of_a_signal_of_any_length(known: bool, onesided: int, width: int) -> None:
    window = np.hanning(LENGTH).astype(np.float32)
    inputs: dict[str, Any] = {"x": ["B", "N", width], **({} if known else {"w": [LENGTH]})}
    weights = {"s": np.array(STEP), **({"w": window} if known else {})}
    program = ptir.from_onnx(model([node("STFT", "x s w", "y", onesided=onesided)], inputs, ["y"], weights))
    for batch, n in ((1, LENGTH), (2, 30)):
        x = noise(batch, n, width)
        feeds = {"x": x} if known else {"x": x, "w": window}
        signal = x[..., 0] if width == 1 else x[..., 0] + 1j * x[..., 1]
        for engine in ENGINES:
            (found,) = ptir.run(program, feeds, engine=engine).values()
            np.testing.assert_allclose(found, spectra(signal, window, bool(onesided)), 1e-5, 1e-5)


@pytest.mark.parametrize("given", [True, False])
def test_a_signal_is_padded_or_cropped_to_a_length(given: bool) -> None:
    """As Whisper does it: 30 seconds, however long the sound is. The padding is negative where it is longer."""
    nodes = [
        node("Shape", "x", "n", start=1),
        node("Sub", "whole n", "high"),
        node("Concat", "zero high zero zero", "p", axis=0),
        node("Concat", "zero zero zero high", "q", axis=0),
        node("Pad", "x p v" if given else "x p", "y"),
        node("Pad", "x q v" if given else "x q", "z"),
    ]
    weights = {"whole": np.array([10]), "zero": np.array([0])}
    inputs: dict[str, Any] = {"x": [2, "N"], **({"v": []} if given else {})}
    program = ptir.from_onnx(model(nodes, inputs, ["y", "z"], weights))
    for n in (4, 10, 13):
        x, v = noise(2, n), np.float32(3.5 if given else 0)
        feeds = {"x": x, "v": v} if given else {"x": x}
        fill = np.full((2, max(10 - n, 0)), v, np.float32)
        for engine in ENGINES:
            y, z = ptir.run(program, feeds, engine=engine).values()
            np.testing.assert_array_equal(y, np.concatenate([fill, x], 1)[:, -10:])
            np.testing.assert_array_equal(z, np.concatenate([x, fill], 1)[:, :10])


def test_padding_by_an_extent_that_is_not_negative() -> None:
    nodes = [node("Shape", "x", "n", start=1), node("Concat", "n zero zero n", "p", axis=0), node("Pad", "x p", "y")]
    program = ptir.from_onnx(model(nodes, {"x": ["M", "N"]}, ["y"], {"zero": np.array([0])}))
    assert str(program.main.result_types[0]) == "tensor<f32, (M+N)x(2*N)>"
    x = noise(2, 3)
    for engine in ENGINES:
        (found,) = ptir.run(program, {"x": x}, engine=engine).values()
        np.testing.assert_array_equal(found, np.pad(x, ((3, 0), (0, 3))))


def test_reflections_by_an_extent_are_refused() -> None:
    nodes = [node("Shape", "x", "n", start=1), node("Concat", "n zero zero n", "p", axis=0)]
    nodes.append(node("Pad", "x p", "y", mode="reflect"))
    with pytest.raises(ptir.Rejected, match="operand 1 of Pad depends on a symbolic extent"):
        ptir.from_onnx(model(nodes, {"x": ["M", "N"]}, ["y"], {"zero": np.array([0])}))


def _last(bound: str, whole: str) -> Any:
    """The last elements of `x`, as many as `k` has: as T5 takes those of its new tokens from the biases of all positions."""
    nodes = [node("Shape", "k", "n", start=0), node("Neg", "n", "m"), node("Slice", f"x {bound}", "y")]
    weights = {"zero": np.array([0]), "end": np.array([1 << 62])}
    return ptir.from_onnx(model(nodes, {"x": [whole], "k": ["K"]}, ["y"], weights))


@pytest.mark.parametrize("whole", ["N", "K"])
def test_a_slice_counts_a_negative_extent_from_the_end(whole: str) -> None:
    program = _last("m end zero", whole)
    assert program.main.result_types[0].shape == program.main.params[1].type.shape
    for n, k in ((5, 2), (5, 5)) if whole == "N" else ((3, 3), (0, 0)):
        x = noise(n)
        for engine in ENGINES:
            (found,) = ptir.run(program, [x, noise(k)], engine=engine).values()
            np.testing.assert_array_equal(found, x[n - k :])


def test_a_negative_extent_of_a_slice_is_not_zero() -> None:
    """It would be the first place then, not the end."""
    for bound in ("m end zero", "zero m zero"):
        program = _last(bound, "N")
        (found,) = ptir.run(program, [noise(5), noise(2)]).values()
        np.testing.assert_array_equal(found, noise(5)[3:] if bound[0] == "m" else noise(5)[:3])
        for again in (program, ptir.read(ptir.write(program)), ptir.optimize(program)):
            with pytest.raises(ptir.Rejected, match="K_is_not_0"):
                ptir.run(again, [noise(5), noise(0)])


@pytest.mark.parametrize("shape", [[1, 3], ["M", 3], [2, 1]])
def test_as_many_copies_as_an_extent_says(shape: list[Any]) -> None:
    nodes = [node("Shape", "k", "n"), node("Concat", "n two", "r", axis=0), node("Tile", "x r", "y")]
    nodes += [node("Concat", "two n", "q", axis=0), node("Tile", "x q", "z")]
    program = ptir.from_onnx(model(nodes, {"x": shape, "k": ["K"]}, ["y", "z"], {"two": np.array([2])}))
    x = noise(*(4 if d == "M" else d for d in shape))
    for k in (3, 1):
        for engine in ENGINES:
            y, z = ptir.run(program, [x, noise(k)], engine=engine).values()
            np.testing.assert_array_equal(y, np.tile(x, (k, 2)))
            np.testing.assert_array_equal(z, np.tile(x, (2, k)))
