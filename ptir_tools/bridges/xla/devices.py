"""A mesh of JAX devices, of this process or several, and arrays that are sharded over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.bridges.xla.hosts import Hosts, join
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Function, Literal, Op
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.plan.mesh import Mesh, Placing, Spec

if TYPE_CHECKING:
    import jax
    from jax import sharding
else:
    jax = lazy("jax")
    sharding = lazy("jax.sharding")


class Cuts:
    """A JAX mesh, and the shardings of values over it."""

    def __init__(self, grid: sharding.Mesh | sharding.AbstractMesh, places: Placing) -> None:
        self.grid, self.places = grid, places

    def named(self, spec: Spec | None) -> sharding.NamedSharding:
        """A JAX sharding; None is replicated."""
        return sharding.NamedSharding(self.grid, sharding.PartitionSpec(*(axes or None for axes in spec or ())))

    def keep(self, op: Op, result: Data) -> Data:
        """The results of `op`, sharded as its name says."""
        spec = self.places.values.get(op.results[0].name) if len(op.results) == 1 else None
        return result if spec is None else jax.lax.with_sharding_constraint(result, self.named(spec))

    def out(self) -> list[sharding.NamedSharding | None]:
        """The shardings of the results: as requested, or None for XLA's choice."""
        return [None if spec is None else self.named(spec) for spec in self.places.results]


class Devices(Cuts):
    """The first JAX devices as a mesh; with `hosts` the devices of all hosts, exactly as many as the mesh has. Raises UsageError
    when there are too few, or when the hosts cannot connect."""

    def __init__(self, mesh: Mesh, places: Placing, hosts: Hosts | None = None) -> None:
        self.several = hosts is not None
        if hosts is not None:
            join(hosts)
        result = jax.devices()
        if len(result) < mesh.devices or (self.several and len(result) != mesh.devices):
            help = f"on a CPU: XLA_FLAGS=--xla_force_host_platform_device_count={mesh.devices}" if not self.several else None
            raise UsageError(f"the mesh {mesh} has {mesh.devices} devices, and JAX has {len(result)}", help)
        devices = np.array(result[: mesh.devices], object).reshape(tuple(mesh.axes.values()))
        super().__init__(sharding.Mesh(devices, tuple(mesh.axes), axis_types=_kinds(mesh)), places)

    def put(self, given: Sequence[Array], specs: Sequence[Spec | None]) -> list[jax.Array]:
        """Arrays on the devices; each device gets its shards."""

        def one(x: Array, spec: Spec | None) -> jax.Array:
            return jax.make_array_from_callback(x.shape, self.named(spec), lambda index: x[index])

        return [one(np.asarray(x), spec) for x, spec in zip(given, specs, strict=True)]

    def constants(self, function: Function) -> dict[Op, Array]:
        """The constants of a function that are sharded, put on the devices like inputs."""
        ops = [op for op in function.body if op.defn.is_constant and op.results[0].name in self.places.values]
        literals = [op.attr("value") for op in ops]
        return {op: arrays.from_literal(x) for op, x in zip(ops, literals, strict=True) if isinstance(x, Literal)}

    def cut(self, results: Mapping[Op, Array]) -> list[jax.Array]:
        """The results of ops that ran before the function, on the devices."""
        return self.put(list(results.values()), [self.places.values.get(op.results[0].name) for op in results])

    def out(self) -> list[sharding.NamedSharding | None]:
        """The shardings of the results; with several hosts each gets all of it."""
        return [self.named(None)] * len(self.places.results) if self.several else super().out()


def on_paper(mesh: Mesh, places: Placing) -> Cuts:
    """An abstract mesh without devices, for a function that is lowered but not run."""
    grid = sharding.AbstractMesh(tuple(mesh.axes.values()), tuple(mesh.axes), axis_types=_kinds(mesh))
    return Cuts(grid, places)


def _kinds(mesh: Mesh) -> tuple[sharding.AxisType, ...]:
    """XLA chooses the shardings that are not given."""
    return (sharding.AxisType.Auto,) * len(mesh.axes)
