"""Sources of text, and locations in them."""

from bisect import bisect_right
from collections.abc import Callable, Mapping

from ptir_tools.core.records import NamedTuple, dataclass, field

# A location is one integer, because a program of a million ops has a million of them: 0 is unknown. A positive one packs
# (start, length) of the text; a negative one packs (container, index) of a JSON array, resolved by `Source.json_span`.
Loc = int
LENGTH_BITS = 24
LENGTH_MASK = (1 << LENGTH_BITS) - 1
INDEX_BITS = 32
INDEX_MASK = (1 << INDEX_BITS) - 1  # as an index: the array itself


class Span(NamedTuple):
    """A half-open range of code points of one source."""

    start: int
    end: int


def pack(start: int, end: int) -> Loc:
    """The location of text[start:end]. `start` is stored plus one, so that no location is 0."""
    length = end - start
    return (start + 1) << LENGTH_BITS | (length if length < LENGTH_MASK else LENGTH_MASK)


def join(first: Loc, last: Loc) -> Loc:
    """The location of the text from that of `first` to that of `last`."""
    return pack((first >> LENGTH_BITS) - 1, (last >> LENGTH_BITS) - 1 + (last & LENGTH_MASK))


def pack_json(container: int, index: int) -> Loc:
    """The location of element `index` of the JSON array `Source.containers[container]`."""
    return -1 - (container << INDEX_BITS | index)


JsonPath = tuple[str | int, ...]


@dataclass(slots=True, eq=False, repr=False)
class Source:
    """A text with its name. Lines and columns are 1-based; a column counts code points.

    A part of a text begins at `start` of the whole text, and its positions are those in the whole.
    """

    name: str
    text: str
    containers: list[JsonPath] = field(default_factory=list)
    json_span: Callable[[JsonPath], Span | None] | None = None
    keys: Mapping[str, str] = field(default_factory=dict)  # of a node in JSON: those of its `op`, its `operand`s
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of an op: other names of attributes in text
    inserts: bool = False  # a statement `%name = op(…)` may be inserted before each statement
    whole: "Source | None" = None
    start: int = 0
    form: str = ""  # the format that was read
    data: bytes | None = None  # of a binary format, whose reader makes a text for spans
    raw: str | None = None  # the file's text where it differs: with a byte-order mark, with `\r\n`
    _lines: list[int] | None = None

    def __repr__(self) -> str:
        return f"<source {self.name!r}, {len(self.text)} characters>"  # without the text, which may be megabytes

    def part(self, start: int, end: int) -> "Source":
        """text[start:end] as a source of its own."""
        return Source(self.name, self.text[start:end], whole=self, start=start)

    @property
    def written(self) -> str:
        """The text as it is in the file."""
        return self.text if self.raw is None else self.raw

    @property
    def lines(self) -> list[int]:
        """Start offset of every line."""
        if self._lines is None:
            starts, at = [0], self.text.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.text.find("\n", at + 1)
            self._lines = starts
        return self._lines

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column) of a code point."""
        if self.whole is not None:
            return self.whole.position(self.start + offset)
        line = bisect_right(self.lines, offset)
        return line, offset - self.lines[line - 1] + 1

    def line_text(self, line: int) -> str:
        """The text of a line without its end."""
        if self.whole is not None:
            return self.whole.line_text(line)
        start = self.lines[line - 1]
        end = self.lines[line] - 1 if line < len(self.lines) else len(self.text)
        return self.text[start:end].removesuffix("\r")

    def add_container(self, path: JsonPath) -> int:
        """Name a JSON array whose elements will be located by `pack_json`."""
        self.containers.append(path)
        return len(self.containers) - 1

    def json_loc(self, path: JsonPath) -> Loc:
        """The location of the JSON array at `path` as a whole."""
        return pack_json(self.add_container(path), INDEX_MASK)

    def span(self, loc: Loc) -> Span | None:
        """The span of a location, or None when it is unknown."""
        if loc > 0:
            start = (loc >> LENGTH_BITS) - 1
            return Span(start, start + (loc & LENGTH_MASK))
        if loc < 0 and self.json_span is not None:
            packed = -1 - loc
            path, index = self.containers[packed >> INDEX_BITS], packed & INDEX_MASK
            return self.json_span(path if index == INDEX_MASK else (*path, index))
        return None
