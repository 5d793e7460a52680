"""A mesh of the devices that JAX has, of this process or of several, and arrays that are cut for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.ir import Function, Literal, Op
from ptir_tools.core.lazy import lazy
from ptir_tools.plan.mesh import Mesh, Placing, Spec

if TYPE_CHECKING:
    import jax
    import numpy as np
    from jax import sharding
else:
    jax = lazy("jax")
    np = lazy("numpy")
    sharding = lazy("jax.sharding")

WAIT = 300  # seconds for all hosts to come


class Devices:
    """The first devices of JAX as a mesh. With `hosts` (address, how many, which) those of all hosts, which have to be as many
    as the mesh has. Raises UsageError when there are too few, or when the hosts do not find each other."""

    def __init__(self, mesh: Mesh, places: Placing, hosts: tuple[str, int, int] | None = None) -> None:
        self.places = places
        self.several = hosts is not None
        if hosts is not None:
            join(*hosts)
        found = jax.devices()
        if len(found) < mesh.devices or (self.several and len(found) != mesh.devices):
            help = f"on a CPU: XLA_FLAGS=--xla_force_host_platform_device_count={mesh.devices}" if not self.several else None
            raise UsageError(f"the mesh {mesh} has {mesh.devices} devices, and JAX has {len(found)}", help)
        grid = np.array(found[: mesh.devices], object).reshape(tuple(mesh.axes.values()))
        kinds = (sharding.AxisType.Auto,) * len(mesh.axes)
        self.mesh = sharding.Mesh(grid, tuple(mesh.axes), axis_types=kinds)

    def named(self, spec: Spec | None) -> Any:
        """A sharding of JAX; None is whole everywhere."""
        return sharding.NamedSharding(self.mesh, partition(spec))

    def put(self, given: Sequence[Any], specs: Sequence[Spec | None]) -> list[Any]:
        """Arrays on the devices, each of which gets its parts."""

        def one(x: Any, spec: Spec | None) -> Any:
            return jax.make_array_from_callback(x.shape, self.named(spec), lambda index: x[index])

        return [one(np.asarray(x), spec) for x, spec in zip(given, specs, strict=True)]

    def constants(self, function: Function) -> dict[Op, Any]:
        """The constants of a function that are to be cut, which are put on the devices like inputs."""
        ops = [op for op in function.body if op.defn.is_constant and op.results[0].name in self.places.values]
        literals = [op.attr("value") for op in ops]
        return {op: arrays.from_literal(x) for op, x in zip(ops, literals, strict=True) if isinstance(x, Literal)}

    def cut(self, made: Mapping[Op, Any]) -> list[Any]:
        """What ops gave before the function runs, on the devices."""
        return self.put(list(made.values()), [self.places.values.get(op.results[0].name) for op in made])

    def keep(self, op: Op, found: Any) -> Any:
        """What `op` gave, cut as its name asks."""
        spec = self.places.values.get(op.results[0].name) if len(op.results) == 1 else None
        return found if spec is None else jax.lax.with_sharding_constraint(found, self.named(spec))

    def out(self) -> Any:
        """The shardings of the results and of the flag: what was asked for, or XLA's choice. Several hosts all get everything."""
        if self.several:
            return [self.named(None)] * len(self.places.results), self.named(None)
        return [None if spec is None else self.named(spec) for spec in self.places.results], None


def partition(spec: Spec | None) -> Any:
    """A spec as JAX writes it."""
    return sharding.PartitionSpec(*(axes or None for axes in spec or ()))


def join(address: str, count: int, index: int) -> None:
    """Make this process one of several that run together, once. Raises UsageError."""
    if jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(address, count, index, initialization_timeout=WAIT)
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"the {count} hosts do not come together at {address}: {str(error).splitlines()[0]}") from error
