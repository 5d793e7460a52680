"""The registered dialects and their serializations. Only their records are imported until a program needs more."""

from ptir_tools.core.dialect import Dialect, Format, FormatEntry, declare_options
from ptir_tools.dialects import mind, ptir, pto, tiny

# By name. What is registered later, by plug-ins, is seen by everyone who asks later.
DIALECTS: dict[str, Dialect] = {}
FORMATS: dict[str, FormatEntry] = {}  # in the order in which --help lists them: those that can be read first
OWNERS: dict[str, Dialect] = {}  # of each format


def register(dialect: Dialect) -> None:
    """Make a dialect and its formats known. Raises ValueError for a name that is taken."""
    names = [entry.name for entry in dialect.formats]
    if taken := [dialect.name] * (dialect.name in DIALECTS) or [name for name in names if name in FORMATS]:
        raise ValueError(f"there is a `{taken[0]}` already")
    declare_options(*dialect.options)
    DIALECTS[dialect.name] = dialect
    OWNERS.update(dict.fromkeys(names, dialect))
    entries = sorted((*FORMATS.values(), *dialect.formats), key=lambda entry: not entry.readable)
    FORMATS.clear()
    FORMATS.update({entry.name: entry for entry in entries})


def writable() -> list[str]:
    """The names of the formats that can be written."""
    return [name for name, entry in FORMATS.items() if entry.written]


def load_format(name: str) -> Format:
    """The format called `name`, the ops of its dialect declared. Raises KeyError for an unknown name."""
    OWNERS[name].declare()
    return FORMATS[name].load()


def load_dialect(name: str) -> Dialect:
    """The dialect called `name`, its ops declared. Raises KeyError for an unknown name."""
    DIALECTS[name].declare()
    return DIALECTS[name]


for _dialect in (ptir.DIALECT, pto.DIALECT, mind.DIALECT, tiny.DIALECT):
    register(_dialect)
