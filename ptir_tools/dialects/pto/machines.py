"""The targets as `ptir targets` lists them."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.dialect import Machine
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.targets import TARGETS, Target


def _machine(target: Target) -> Machine:
    """What it has of each location, and then layouts, products, element types per op."""

    def details() -> Iterator[str]:
        for location, layouts in target.layouts.items():
            size = target.capacity.get(location)
            yield f"{location:8} {f'{size} bytes, ' if size else ''}layouts {', '.join(layouts)}"
        yield f"products {', '.join(f'{a} x {b}' for a, b in sorted(target.products))}"
        for op, dtypes in sorted(element_types(target).items()):
            yield f"{op:20} {' '.join(sorted(dtypes))}"

    return Machine(", ".join(f"{location} {n} bytes" for location, n in target.capacity.items()), details)


MACHINES = {name: _machine(target) for name, target in TARGETS.items()}
