"""The large packages that numbers are compared with: imported when a test uses them, not when tests are collected.

A test file imports this module and not the packages, since pytest looks into every name of a test file.
"""

from __future__ import annotations

from ptir_tools.core.lazy import lazy

torch, F = lazy("torch"), lazy("torch.nn.functional")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")
