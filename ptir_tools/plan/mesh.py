"""A mesh of devices, and the shardings of a program's values over it.

An axis of a value is sharded over axes of the mesh, into equal parts. A value that is not sharded is replicated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ptir_tools.core import factors
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Element, Function, Op, Operand, Region, Value, result_names
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.core.source import Loc
from ptir_tools.core.spelling import near_names
from ptir_tools.core.types import TensorType
from ptir_tools.plan.liveness import Leaf, leaves, operand_leaves

INVALID = "InvalidSharding"
Spec = tuple[tuple[str, ...], ...]  # for each axis of a value, the mesh axes over which it is sharded
_AXIS = regex(r"\s*([A-Za-z_]\w*)\s*=\s*([0-9]{1,9})\s*\Z")
_LISTED = 12


@dataclass(slots=True, frozen=True)
class Mesh:
    """A grid of devices, whose axes have names and extents."""

    axes: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, extent in self.axes.items():
            if extent < 1:
                raise UsageError(f"axis {name} of the mesh has no device")

    @property
    def devices(self) -> int:
        """The number of devices."""
        return prod(self.axes.values())

    def parts(self, axes: Sequence[str]) -> int:
        """The number of shards over `axes`."""
        return prod(self.axes[a] for a in axes)

    def __str__(self) -> str:
        return ",".join(f"{name}={extent}" for name, extent in self.axes.items())


def mesh_of(text: str) -> Mesh:
    """The mesh `x=4,y=2`. Raises ValueError."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        if (m := _AXIS.match(part)) is None or m[1] in axes or int(m[2]) < 1:
            raise ValueError(f"{text!r} is not a mesh: each axis once, as NAME=EXTENT, with commas between them (x=4,y=2)")
        axes[m[1]] = int(m[2])
    return Mesh(axes)


def spec_of(text: str) -> tuple[str, Spec]:
    """`NAME=x,-`: a name, and for each axis of its value the mesh axis, several (`x+y`), or none (`-`). Raises ValueError."""
    name, equals, cuts = text.rpartition("=")
    parts = [part.strip() for part in cuts.split(",")] if cuts.strip() else []
    if not name.strip() or not equals or not all(parts):
        raise ValueError(f"{text!r} is not NAME=AXES: for each axis of the value an axis of the mesh or -, as in w=x,-")
    return name.strip(), tuple(() if part == "-" else tuple(a.strip() for a in part.split("+")) for part in parts)


def spec_text(spec: Spec) -> str:
    """`x,-`, as `--shard` takes it."""
    return ",".join("+".join(axes) or "-" for axes in spec)


class Sharding(NamedTuple):
    """A mesh, and the shardings of some values of the entry, by name."""

    mesh: Mesh
    specs: tuple[tuple[str, Spec], ...] = ()


def sharding(mesh: str, *specs: str) -> Sharding:
    """The sharding of `--mesh` and `--shard`: `sharding("x=4,y=2", "w=-,y")`. Raises UsageError."""
    try:
        return Sharding(mesh_of(mesh), tuple(map(spec_of, specs)))
    except ValueError as error:
        raise UsageError(str(error)) from None


class _Named(NamedTuple):
    """A named leaf of a value, its type, and the place of its text."""

    leaf: Leaf
    type: TensorType
    loc: Loc


def _named(main: Function) -> Iterator[tuple[str, _Named]]:
    """The inputs, results and values of a function with their names; inputs first."""
    names = main.attrs.get("input_names") or [p.name for p in main.params]
    places = main.attrs.get("input_locs", {})
    for name, p in zip(names, main.params, strict=True):
        for path, t in leaves(p.type):
            yield ".".join([name, *map(str, path)]), _Named((p, path), t, places.get(name, main.loc))
    for name, x in zip(result_names(main), main.results, strict=True):
        for leaf in operand_leaves(x):
            if (kind := leaf_type(leaf)) is not None:
                shown = [name, *map(str, leaf[1][1:] if isinstance(x, Element) else leaf[1])]
                yield ".".join(shown), _Named(leaf, kind, main.loc)
    for op in main.body:
        for v in op.results:
            for path, t in leaves(v.type):
                yield ".".join([v.name, *map(str, path)]), _Named((v, path), t, op.loc)


def leaf_type(leaf: Leaf) -> TensorType | None:
    """The type of a leaf, None where it is not a tensor."""
    return dict(leaves(leaf[0].type)).get(leaf[1])


def placed(program: Program, sharding: Sharding, diagnostics: Diagnostics) -> dict[Leaf, Spec]:
    """The shardings of the leaves that `sharding` names, with an entry for every axis. `program` is static. All errors are
    reported as InvalidSharding: an unknown name, an unknown mesh axis or one that is used twice, more axes than the value has, an
    extent that is not divided into equal parts.
    """
    known: dict[str, _Named] = {}
    for name, entry in _named(program.main):
        known.setdefault(name, entry)
    wanted: dict[Leaf, Spec] = {}
    for name, spec in sharding.specs:
        bare = name.removeprefix("%")
        if not (matches := _meant(bare, known)):
            suggestions = near_names(bare, known)
            listed = f"there are: {', '.join(list(known)[:_LISTED])}" + (", …" if len(known) > _LISTED else "")
            help = f"did you mean `{suggestions[0]}`?" if suggestions else listed
            diagnostics.error(INVALID, f"no input, result or value is called `{bare}`", program.main.loc, help=help)
        for one in matches:
            named, full = known[one], (*spec, *[()] * (known[one].type.rank - len(spec)))
            faults = list(_faults(spec, named.type, sharding.mesh))
            if not faults and wanted.get(named.leaf, full) != full:
                faults = [f"it is cut as {spec_text(wanted[named.leaf])}, too"]
            for fault in faults:
                diagnostics.error(INVALID, f"`{one}`, {named.type}, cannot be cut as {spec_text(spec)}: {fault}", named.loc)
            wanted[named.leaf] = full
    return wanted


def _meant(name: str, known: Mapping[str, _Named]) -> list[str]:
    """The known names that `name` matches; `*` in it matches any characters."""
    if name in known or "*" not in name:
        return [name] if name in known else []
    pattern = ".*".join(map(re.escape, name.split("*")))
    return [other for other in known if re.fullmatch(pattern, other)]


def _faults(spec: Spec, t: TensorType, mesh: Mesh) -> Iterator[str]:
    if len(spec) > t.rank:
        yield f"it has {t.rank} axes, and {len(spec)} are given"
    used = [a for axes in spec for a in axes]
    for name in dict.fromkeys(used):
        if name not in mesh.axes:
            yield f"the mesh {mesh} has no axis {name}"
        elif used.count(name) > 1:
            yield f"axis {name} of the mesh is used {used.count(name)} times"
    if any(a not in mesh.axes for a in used):
        return
    for i, (axes, extent) in enumerate(zip(spec, t.static_shape, strict=False)):
        if extent % (parts := mesh.parts(axes)):
            yield f"axis {i} has {extent} elements, which {parts} devices do not share equally"


class Placing(NamedTuple):
    """The leaves of `placed` in a form that holds for a rewritten program: inputs and results by position among all leaves,
    other values by name."""

    inputs: tuple[Spec | None, ...]
    results: tuple[Spec | None, ...]
    values: Mapping[str, Spec]


def placing(program: Program, wanted: Mapping[Leaf, Spec]) -> Placing:
    """`wanted` for any rewritten `program`."""
    main = program.main
    inputs = tuple(wanted.get((p, path)) for p in main.params for path, _ in leaves(p.type))
    read: list[Leaf | None] = []
    for x in main.results:
        read += list(operand_leaves(x)) or [None]  # a literal has no leaf
    results = tuple(None if leaf is None else wanted.get(leaf) for leaf in read)
    values = {v.name: spec for (v, path), spec in wanted.items() if v.op is not None and not path}
    return Placing(inputs, results, values)


def spread(block: Region, mesh: Mesh, wanted: Mapping[Leaf, Spec]) -> dict[Leaf, Spec]:
    """Sharding propagation: the shardings of all leaves of a block from those in `wanted`, by `core.factors` of each op, forward
    and backward until a fixpoint. Inputs and constants that are not in `wanted`, and values without information, are
    replicated."""
    shardings = dict(wanted)
    changed = bool(wanted)
    while changed:  # if backward changes nothing, forward would not either
        for op in block.body:
            _cut_more(op, mesh, shardings, wanted)
        changed = False
        for op in reversed(block.body):
            changed |= _cut_more(op, mesh, shardings, wanted)
    return shardings


def _cut_more(op: Op, mesh: Mesh, shardings: dict[Leaf, Spec], wanted: Mapping[Leaf, Spec]) -> bool:
    """Propagate shardings between an op's result and its operands that are results of ops. Whether any changed."""
    if len(op.results) != 1:
        return False
    values = [*op.operands, op.results[0]]
    if not any(any(spec) for spec in (_operand_spec(x, shardings) for x in values)) or (labelled := factors.labels(op)) is None:
        return False
    labels = [*labelled[0], labelled[1]]
    changed = False
    for at in (len(values) - 1, *range(len(values) - 1)):
        x = values[at]
        if not isinstance(x, Value) or x.op is None or x.op.defn.is_constant or (x, ()) in wanted:
            continue
        specs = [_operand_spec(y, shardings) for y in values]
        known = [pair for k, pair in enumerate(zip(labels, specs, strict=True)) if k != at]
        extents = factors.shape_of(x)
        new = factors.cut(labels[at], known, specs[at])
        even = tuple(axes if n % mesh.parts(axes) == 0 else () for axes, n in zip(new, extents, strict=True))
        if even != specs[at]:
            shardings[x, ()], changed = even, True
    return changed


def _operand_spec(x: Operand, shardings: Mapping[Leaf, Spec]) -> Spec:
    read = list(operand_leaves(x))
    t = leaf_type(read[0]) if len(read) == 1 else None
    if t is None:
        return ((),) * len(factors.shape_of(x)) if not isinstance(x, (Value, Element)) else ()
    return shardings.get(read[0], ((),) * t.rank)
