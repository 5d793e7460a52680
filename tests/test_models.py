"""Real models: what the scripts write is fresh, every engine and every way through the toolkit gives torch's numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools import passes
from ptir_tools.core.symbols import bind
from ptir_tools.engines import signature as ports
from tests.conftest import ROOT, run_ptir
from tests.models import FOLDER, MODULES, hold, inputs, program, torch
from tests.passes.cases import WITH_FILES

NAMES = sorted(MODULES)
ENGINES = ("reference", "numpy", "native")
SYMBOLS = {"gpt2_prefill": {"B": 2, "T": 16}, "quantized_mlp": {"N": 7}}
OUTPUTS = {n: [port.name for port in ports.results(program(n))] for n in NAMES}
IN_JSON = [n for n in NAMES if n != "quantized_mlp"]  # gpt.rs has no scales
pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the scripts wrote just now."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, FOLDER, folder], check=True, cwd=ROOT)
    return folder


def test_files_are_fresh(written: Path) -> None:
    made = {p.name: p.read_bytes() for p in written.iterdir()}
    kept = {p.name: p.read_bytes() for p in FOLDER.iterdir() if p.suffix in (".ptir", ".safetensors") and ".expect" not in p.name}
    assert made.keys() == kept.keys()
    assert not [name for name in made if made[name] != kept[name]], "python testdata/models rewrites them"


def test_they_stay_small() -> None:
    assert sum(p.stat().st_size for p in FOLDER.iterdir() if p.is_file()) < 2_000_000


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", NAMES)
def test_engines_give_what_torch_gives(name: str, dtype: str, engine: str) -> None:
    hold(name, ptir.run(program(name, dtype), inputs(name, dtype), engine=engine), dtype)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "quantized_mlp"])  # whose steps depend on the last bit of its input
def test_narrow_floats_keep_their_bound(name: str, dtype: str, engine: str) -> None:
    """Weights and inputs rounded to `dtype`, every op in it: torch's tokens still, and its numbers at that roundoff."""
    hold(name, ptir.run(program(name, dtype), inputs(name, dtype), engine=engine), dtype)


@pytest.mark.parametrize("name", NAMES)
def test_they_read_as_they_were_built(name: str) -> None:
    kept = ptir.read(FOLDER / f"{name}.ptir")
    assert ptir.verify(kept) == ()
    assert ptir.write(kept) == ptir.write(program(name))
    hold(name, ptir.run(kept, inputs(name), engine="reference"), "f32")


@pytest.mark.parametrize("name", NAMES)
def test_optimized(name: str) -> None:
    small = ptir.optimize(program(name))
    assert ptir.verify(small) == ()
    assert ptir.write(ptir.optimize(small)) == ptir.write(small)
    hold(name, ptir.run(small, inputs(name), engine="reference"), "f32")


# Without passes that want a file, and what computes with less precision.
ALONE = [name for name in passes.names("ptir") if name not in WITH_FILES and not passes.measured(name, "ptir")]


@pytest.mark.parametrize("step", ALONE)
@pytest.mark.parametrize("name", NAMES)
def test_each_pass(name: str, step: str) -> None:
    made = ptir.optimize(program(name), step)
    assert ptir.verify(made) == ()
    if ptir.write(made) != ptir.write(program(name)):  # else its numbers are those of the program
        found = ptir.run(made, inputs(name), engine="reference")
        hold(name, dict(zip(OUTPUTS[name], found.values(), strict=True)), "f32")


@pytest.mark.parametrize("name", NAMES)
def test_planned(name: str) -> None:
    """What lives at once fits, within a tenth of what must."""
    (plan,) = ptir.plan(program(name), bind=SYMBOLS.get(name)).functions.values()
    assert plan.lower_bound <= plan.peak <= 1.1 * plan.lower_bound
    assert run_ptir("plan", FOLDER / f"{name}.ptir", *(f"--bind={k}={v}" for k, v in SYMBOLS.get(name, {}).items())).status == 0


@pytest.mark.parametrize("name", IN_JSON)
def test_through_json_and_dump(name: str, tmp_path: Path) -> None:
    """gpt.rs's serializations: JSON alone, and a trace's folder, in which the dump has the structure."""
    built = program(name)
    (tmp_path / "program.json").write_text(ptir.write(built, "ptir-json"), "utf-8")
    (tmp_path / "program.ptir").write_text(ptir.write(built, "ptir-dump"), "utf-8")
    given = list(inputs(name).values())
    for path in (tmp_path / "program.json", tmp_path):
        found = ptir.run(ptir.read(path), given)
        hold(name, dict(zip(OUTPUTS[name], found.values(), strict=True)), "f32")


@pytest.mark.parametrize("name", ["llama", "resnet", "mobilenet", "gpt2_prefill", "gpt2_cached", "quantized_mlp"])
def test_through_tiny(name: str, tmp_path: Path) -> None:
    """Tiny has no place for weights: they become inputs, kept in a file."""
    graph, weights = tmp_path / "graph.json", tmp_path / "weights.npz"
    ran = run_ptir("translate", FOLDER / f"{name}.ptir", "--to", "tiny", "--constants", weights, "-o", graph)
    assert ran.status == 0, ran.err
    found = ptir.run(ptir.read(graph), {**np.load(weights), **inputs(name)})
    hold(name, dict(zip(OUTPUTS[name], found.values(), strict=True)), "f32")


@pytest.mark.parametrize("name", ["llama", "resnet", "mobilenet", "gpt2_prefill"])
def test_through_mind(name: str) -> None:
    """Of Core v1 alone, with what `--lossy` makes of divisions, maxima and choices."""
    static = program(name)
    bind(static, SYMBOLS.get(name, {}))
    module = ptir.translate(static, "mind", lossy=True)
    found = ptir.run(ptir.read(ptir.write(module, "mind")), inputs(name))
    hold(name, dict(zip(OUTPUTS[name], found.values(), strict=True)), "f32")


@pytest.mark.parametrize(
    ("name", "dialect", "why"),
    [("gpt2_greedy", "tiny", "while"), ("gpt2_cached", "mind", "scan"), ("quantized_mlp", "mind", "quantize")],
)
def test_what_another_ir_has_not_is_refused(name: str, dialect: str, why: str) -> None:
    with pytest.raises(ptir.Rejected) as info:
        ptir.translate(program(name), dialect)
    assert {d.code for d in info.value.diagnostics if d.severity == "error"} == {"NotTranslatable"}
    assert any(why in d.message for d in info.value.diagnostics)


def test_what_gpt_rs_cannot_say_is_refused() -> None:
    with pytest.raises(ptir.Rejected, match="no scale"):
        ptir.write(program("quantized_mlp"), "ptir-json")


def test_the_cache_changes_no_logits() -> None:
    """Whole sequences, and position after position."""
    cached = ptir.run(program("gpt2_cached", "f64"), inputs("gpt2_cached"), engine="reference")
    whole = ptir.run(program("gpt2_prefill", "f64"), {"tokens": cached["tokens"]}, engine="reference")["logits"]
    np.testing.assert_allclose(cached["logits"], whole[:, :-1], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(ptir.run(program("gpt2_greedy"), inputs("gpt2_greedy"))["done.1"], cached["tokens"])


@pytest.mark.parametrize("shape", [(1, 1), (3, 7)])
def test_symbols_take_any_size(shape: tuple[int, int]) -> None:
    tokens = torch("gpt2_cached")["tokens"][:1, : shape[1]].repeat(shape[0], 0)
    (logits,) = ptir.run(program("gpt2_prefill", "f64"), {"tokens": tokens}).values()
    np.testing.assert_allclose(logits, torch("gpt2_cached")["logits"][:1, : shape[1]].repeat(shape[0], 0), rtol=0, atol=1e-13)
