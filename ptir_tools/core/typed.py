"""The names of `typing` that annotations need.

A type checker sees those of `typing`. At run time no annotation is evaluated, so these placeholders are enough. Importing
`typing` takes longer than any other module that a command would import.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO as IO
    from typing import Any as Any
    from typing import ClassVar as ClassVar
    from typing import Generic as Generic
    from typing import Literal as Literal
    from typing import NoReturn as NoReturn
    from typing import Protocol as Protocol
    from typing import Self as Self
    from typing import SupportsFloat as SupportsFloat
    from typing import SupportsIndex as SupportsIndex
    from typing import TextIO as TextIO
    from typing import TypeAlias as TypeAlias
    from typing import TypeGuard as TypeGuard
    from typing import TypeVar as TypeVar
    from typing import cast as cast
else:
    Any = ClassVar = NoReturn = Self = SupportsFloat = SupportsIndex = TextIO = TypeAlias = object
    _Alias = type(list[int])

    class Generic:
        """A class with parameters: `Generic[T]` is one, and so is a class that inherits from it."""

        __slots__ = ()

        def __class_getitem__(cls, parameters):
            return _Alias(cls, parameters)

    class Protocol(Generic):
        """A class that is only for type checkers."""

        __slots__ = ()

    class IO(Generic):
        """A file of bytes or text."""

    class TypeGuard(Generic):
        """Whether something is of a type."""

    class Literal(Generic):
        """One of some values."""

    def TypeVar(name, *constraints, **bounds):
        """A parameter of a class or function."""
        return object

    def cast(kind, value):
        """`value`; a type checker assumes that it has type `kind`."""
        return value
