"""`--constants FILE`: the values of Tiny's INPUTs in storage "const_pool", which a graph cannot hold itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ptir_tools.cli.inputs import fitted
from ptir_tools.cli.output import replacing
from ptir_tools.cli.specs import require_shape
from ptir_tools.core import arrayfiles, arrays
from ptir_tools.core.ir import Literal, Program
from ptir_tools.core.types import TensorType
from ptir_tools.engines.signature import signature

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array

CONST_POOL = "const_pool"


def read(path: str, program: Program) -> dict[str, Literal]:
    """The constants of the Tiny graph `program` that the file holds. Raises OSError, and UsageError for one that does not fit."""
    archive, storage = arrayfiles.Archive(path), program.main.attrs.get("storage", {})
    pool = {p.name for p in program.main.params if storage.get(p.name) == CONST_POOL}
    found = {}
    for port, p in zip(signature(program), program.main.params, strict=True):
        if p.name in pool and port.name in archive.names and isinstance(port.type, TensorType):
            array = archive.read(port.name, lambda _, shape, dtype, port=port: require_shape(port, shape))  # type: ignore[misc]
            found[port.name] = arrays.to_literal(fitted(port, array), port.type)
    return found


def as_arrays(constants: Mapping[str, Literal]) -> dict[str, Array]:
    """The arrays that literals stand for."""
    return {name: arrays.from_literal(x) for name, x in constants.items()}


def write(path: str, constants: Mapping[str, Literal]) -> None:
    """Write the constants to a .npz or .safetensors file. Raises OSError, UsageError."""
    with replacing(path) as file:
        arrayfiles.save(path, file, as_arrays(constants))
