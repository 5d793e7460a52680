"""Functions of JAX on four devices that exchange values within loops, branches and functions, held to XLA on as many."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("jax")

_PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
import ptir_tools as ptir

mesh = Mesh(np.array(jax.devices()).reshape(4), ("i",))
x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
ring = [(k, (k + 1) % 4) for k in range(4)]


def swapped(c):
    return lax.all_to_all(c.reshape(2, 3).repeat(2, 0), "i", 0, 0).reshape(4, 3)[:2]


def scattered(c):
    return lax.all_gather(lax.psum_scatter(jnp.tile(c, (2, 1)), "i", scatter_dimension=0, tiled=True), "i", tiled=True)[:2]


@jax.jit
def added(c):
    return c + lax.psum(c, "i") * lax.axis_index("i")


CASES = {
    "sums": lambda x: lax.fori_loop(0, 3, lambda k, c: c + lax.psum(c, "i") * 0.1, x),
    "ring": lambda x: lax.fori_loop(0, 3, lambda k, c: lax.ppermute(c, "i", ring) + x, x),
    "scan": lambda x: lax.scan(lambda c, _: (c + lax.pmax(c, "i"), lax.all_gather(c, "i").sum()), x, None, length=3)[0],
    "until": lambda x: lax.while_loop(
        lambda c: lax.psum(c.sum(), "i") < 100.0, lambda c: c * 1.5 + lax.pmean(jnp.abs(c), "i"), jnp.abs(x)
    ),
    "branch": lambda x: lax.cond(lax.psum(x.sum(), "i") > 0, lambda c: lax.psum(c, "i"), lambda c: c - lax.psum(c, "i"), x),
    "branches": lambda x: lax.fori_loop(
        0, 4, lambda k, c: lax.switch(k, [lambda c: lax.psum(c, "i"), lambda c: c + 1, lambda c: c - lax.pmax(c, "i")], c), x
    ),
    "swapped": lambda x: lax.fori_loop(0, 2, lambda k, c: swapped(c) + c, x),
    "scattered": lambda x: lax.fori_loop(0, 2, lambda k, c: scattered(c) * 0.1 + c, x),
    "called": lambda x: lax.fori_loop(0, 2, lambda k, c: added(added(c)), x),
    "nested": lambda x: lax.fori_loop(
        0, 2, lambda k, c: lax.fori_loop(0, 2, lambda j, d: d + lax.psum(d, "i") * 0.1 + k, c), x
    ),
}


def on_devices(f):
    return jax.shard_map(f, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec("i"), check_vma=False)


def check(name):
    f = on_devices(CASES[name])
    wanted, program = np.asarray(jax.jit(f)(x)), ptir.from_jax(f, x)
    for engine in ("reference", "native"):
        (found,) = ptir.run(program, [x], engine=engine).values()
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5, err_msg=name + " " + engine)


def disagree():
    f = on_devices(lambda x: lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c + lax.pmax(jnp.abs(c), "i"), x))
    program = ptir.from_jax(f, x)
    try:
        ptir.run(program, [np.float32([5, 5, 0, 0, 0, 0, 0, 0])[:, None].repeat(3, 1)])
    except ptir.Rejected as error:
        assert "out" in str(error), error
    else:
        raise AssertionError("devices that leave a loop at different times are not seen")
    y = np.ones((8, 3), np.float32)
    np.testing.assert_array_equal(*ptir.run(program, [y]).values(), 2 * y)


for name in CASES:
    check(name)
disagree()
print(len(CASES))
"""


def test_devices_exchange_values_within_loops() -> None:
    surroundings = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=500, check=False
    )
    assert found.returncode == 0, f"{found.returncode}: {found.stderr[-2000:]}"
    assert found.stdout.split() == ["10"]
