"""The four dialects and their serializations. Nothing here is imported before a program needs it."""

from importlib import import_module
from typing import NamedTuple, cast

from ptir_tools.core.dialect import Dialect, Format

DIALECTS = ("ptir", "pto", "mind", "tiny")


class Entry(NamedTuple):
    """Where a format lives: the dialect it serializes and the module that exports it as `FORMAT`. `named`: it has names for
    results, which passes keep."""

    name: str
    dialect: str
    module: str
    readable: bool = True
    named: bool = True


# In the order in which --help lists them.
FORMATS: dict[str, Entry] = {
    e.name: e
    for e in (
        Entry("ptir", "ptir", "ptir_tools.dialects.ptir.text.format"),
        Entry("ptir-dump", "ptir", "ptir_tools.dialects.ptir.gptrs.dump", named=False),
        Entry("ptir-json", "ptir", "ptir_tools.dialects.ptir.gptrs.json", named=False),
        Entry("pto", "pto", "ptir_tools.dialects.pto.text.format"),
        Entry("mind", "mind", "ptir_tools.dialects.mind.text.format", named=False),
        Entry("tiny", "tiny", "ptir_tools.dialects.tiny.text.json"),
        Entry("mind-json", "mind", "ptir_tools.dialects.mind.text.records", readable=False, named=False),
        Entry("pto-as", "pto", "ptir_tools.dialects.pto.text.assembly", readable=False),
        Entry("mlir", "mind", "ptir_tools.dialects.mind.mlir.format", readable=False, named=False),
    )
}


def load_format(name: str) -> Format:
    """The format called `name`. Raises KeyError for an unknown name."""
    return cast(Format, import_module(FORMATS[name].module).FORMAT)


def load_dialect(name: str) -> Dialect:
    """The dialect called `name`, its ops declared. Raises KeyError for an unknown name."""
    if name not in DIALECTS:
        raise KeyError(name)
    return cast(Dialect, import_module(f"ptir_tools.dialects.{name}").DIALECT)
