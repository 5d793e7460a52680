"""Programs on eight devices, and on two processes of four: what they give is what one device gives, and what each device holds is
what the plan says. Each runs in a process of its own: JAX counts its devices once. Skipped where jax is not installed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import ptir_tools as ptir
from tests.conftest import ROOT, run_ptir
from tests.models import FOLDER, inputs, program, torch
from tests.plan.test_mesh import CUTS, MLP

MESH = "x=4,y=2"
# Columns of the first projections and rows of the second: Megatron's way, with the batch over the other axis.
LLAMA = (
    "x=y", "layers.*.q_proj=-,x", "layers.*.k_proj=-,x", "layers.*.v_proj=-,x", "layers.*.o_proj=x", "layers.*.gate_proj=-,x",
    "layers.*.up_proj=-,x", "layers.*.down_proj=x",
)  # fmt: skip
GPT2 = (
    "tokens=y", "h*.mlp.c_fc.weight=-,x", "h*.mlp.c_fc.bias=x", "h*.mlp.c_proj.weight=x", "h*.attn.c_proj.weight=-,x", "wte=x",
)  # fmt: skip


def devices(count: int) -> dict[str, str]:
    """The environment of a process with so many devices."""
    return {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}", "JAX_PLATFORMS": "cpu"}


def words(specs: tuple[str, ...]) -> list[str]:
    return [word for spec in specs for word in ("--shard", spec)]


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "ptir_tools", *map(str, args)]


def spread(name: str, specs: tuple[str, ...], tmp_path: Path) -> None:
    """A model on eight devices gives what it gives on one."""
    given = inputs(name)
    save_file(given, tmp_path / "in.safetensors")
    save_file(ptir.run(program(name), given, engine="numpy"), tmp_path / "one.safetensors")
    args = ["run", FOLDER / f"{name}.ptir", "--inputs", tmp_path / "in.safetensors", "--mesh", MESH, *words(specs)]
    bound = 2e-6 * max(float(np.abs(x).max()) for x in torch(name).values())
    args += ["--expect", tmp_path / "one.safetensors", "--rtol", "1e-5", "--atol", str(bound)]
    ran = subprocess.run(command(*args), env=devices(8), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_llama_on_eight_devices(tmp_path: Path) -> None:
    spread("llama", LLAMA, tmp_path)


def test_gpt2_on_eight_devices(tmp_path: Path) -> None:
    spread("gpt2_prefill", GPT2, tmp_path)


HELD = """
import json, sys
import numpy as np
import ptir_tools as ptir
from ptir_tools.engines.choose import prepare
from ptir_tools.engines.options import RunOptions
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.evaluate import Context
program = ptir.read(sys.argv[1])
sharding = ptir.sharding(*sys.argv[2:])
made = prepare(program, RunOptions(sharding=sharding), Diagnostics())
made([np.ones(p.type.shape, "float32") for p in program.main.params], Context())
found = made.compiled.memory_analysis()
plan = ptir.plan(program, sharding=sharding).functions["main"]
print(json.dumps([found.argument_size_in_bytes, plan.nbytes("parameter"), found.output_size_in_bytes, plan.nbytes("result")]))
"""


def test_xla_holds_as_many_bytes_on_each_device_as_the_plan_says(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    args = [sys.executable, "-c", HELD, str(tmp_path / "p.ptir"), MESH, *CUTS, "z=x"]
    ran = subprocess.run(args, env=devices(8), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    arguments, parameters, outputs, results = json.loads(ran.stdout)
    assert arguments == parameters
    assert outputs - results in range(1, 64)  # the flag that says whether the run failed, and what a tuple takes


def test_too_few_devices_are_reported(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    args = command("run", tmp_path / "p.ptir", "--random", "0", "--mesh", MESH)
    ran = subprocess.run(args, env=devices(4), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "the mesh x=4,y=2 has 8 devices, and JAX has 4" in ran.stderr


def test_what_fails_on_a_mesh_is_reported_as_on_one_device(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(
        "func @main(%a: tensor<si32, 4>, %b: tensor<si32, 4>) -> tensor<si32, 4> {\n"
        "  %q = div(%a, %b) -> tensor<si32, 4>\n  return %q\n}\n"
    )
    args = ["run", tmp_path / "p.ptir", "--input", "a=1", "--input", "b=[1, 2, 0, 4]", "--mesh", "x=4", "--shard", "a=x"]
    ran = subprocess.run(command(*args), env=devices(4), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "IntegerDivideByZero" in ran.stderr


def test_two_hosts_run_one_program(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    args = ["run", tmp_path / "p.ptir", "--random", "0", "--mesh", MESH, *words((*CUTS, "h=x,y"))]
    hosts = [
        subprocess.Popen(
            command(*args, "--hosts", f"127.0.0.1:{port},2,{i}", "-o", tmp_path / f"{i}.npz"),
            env=devices(4), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(2)
    ]  # fmt: skip
    for host in hosts:
        _, err = host.communicate(timeout=300)
        assert host.returncode == 0, err
    assert not (tmp_path / "1.npz").exists()  # the first one reports
    one = subprocess.run(command(*args[:4], "-o", tmp_path / "one.npz"), cwd=ROOT, capture_output=True, check=True)
    assert not one.stdout
    np.testing.assert_allclose(np.load(tmp_path / "0.npz")["z"], np.load(tmp_path / "one.npz")["z"], rtol=2e-5, atol=1e-6)


def test_a_mesh_is_written_as_stablehlo_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(MLP)
    cuts = words((*CUTS, "h=x,y", "z=x"))
    ran = run_ptir("translate", tmp_path / "p.ptir", "--to", "stablehlo", "--mesh", MESH, *cuts, "--check")
    assert ran.status == 0, ran.err
    assert 'sdy.mesh @mesh = <["x"=4, "y"=2]>' in ran.text
    assert '%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}' in ran.text
    assert 'sdy.sharding_constraint %0 <@mesh, [{"x"}, {"y"}]>' in ran.text
    ran = run_ptir("translate", tmp_path / "p.ptir", "--to", "stablehlo", "--mesh", MESH, "--shard", "x=z")
    assert ran.status == 1
    assert "InvalidSharding" in ran.err
    assert run_ptir("translate", tmp_path / "p.ptir", "--to", "tiny", "--mesh", MESH).status == 2
