"""Ops whose dimension numbers are XLA's, held to XLA. Skipped where jax is not installed (extra `oracle`)."""

from __future__ import annotations

import numpy as np
import pytest

from tests import peers
from tests.ptir.oracle import run

SEEDS = range(20)


def whole(rng, shape):
    """Small whole numbers in f32: every sum and product is exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
def test_dot_general(seed):
    rng = np.random.default_rng(seed)
    names = "bcmkl"
    extent = dict(zip(names, rng.integers(1, 5, len(names)).tolist(), strict=True))
    left, right = ("".join(rng.permutation(list(axes))) for axes in ("bckl", "bcklm"))
    batch, contract = ["".join(rng.permutation(list(axes))) for axes in ("bc", "kl")]
    numbers = [tuple(map(side.index, axes)) for axes in (contract, batch) for side in (left, right)]
    x, y = (whole(rng, [extent[a] for a in side]) for side in (left, right))
    want = peers.lax.dot_general(peers.jnp.asarray(x), peers.jnp.asarray(y), ((numbers[0], numbers[1]), (numbers[2], numbers[3])))
    keys = ("contract_lhs", "contract_rhs", "batch_lhs", "batch_rhs")
    np.testing.assert_array_equal(run("dot_general", x, y, **dict(zip(keys, numbers, strict=True))), np.asarray(want))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reduce_window(seed, kind):
    rng = np.random.default_rng(seed)
    x = whole(rng, rng.integers(3, 7, 2))
    window, strides, base, dilation = (tuple(rng.integers(1, 3, 2).tolist()) for _ in range(4))
    padding = tuple((a, b) for a, b in rng.integers(0, 3, (2, 2)).tolist())
    combine, start = {"sum": (peers.lax.add, 0.0), "max": (peers.lax.max, -np.inf), "min": (peers.lax.min, np.inf)}[kind]
    want = peers.lax.reduce_window(peers.jnp.asarray(x), np.float32(start), combine, window, strides, padding, base, dilation)
    attrs = {"window_dims": window, "strides": strides, "padding": padding, "base_dilation": base, "window_dilation": dilation}
    np.testing.assert_array_equal(run("reduce_window", x, reduce=kind, **attrs), np.asarray(want))


@pytest.mark.parametrize("seed", SEEDS)
def test_scatter_add(seed):
    rng = np.random.default_rng(seed)
    x, indices = whole(rng, (5, 4, 6)), rng.integers(0, 3, (3, 2)).astype(np.int32)
    updates = whole(rng, (3, 2, 3))
    dims = {"update_window_dims": (1, 2), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (2, 1)}
    want = peers.lax.scatter_add(
        peers.jnp.asarray(x),
        peers.jnp.asarray(indices),
        peers.jnp.asarray(updates),
        peers.lax.ScatterDimensionNumbers(*dims.values()),
    )
    np.testing.assert_array_equal(run("scatter_add", x, indices, updates, index_vector_dim=1, **dims), np.asarray(want))
