"""Walks over graphs, without recursion: a program may be deeper than Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from ptir_tools.core.typed import TypeVar

T = TypeVar("T", bound=Hashable)


def post_order(roots: Iterable[T], before: Callable[[T], Sequence[T]]) -> list[T]:
    """`roots` and everything before them, each once: after the items that `before` gives, in its order."""
    order, seen = list[T](), set[T]()
    todo = [(x, False) for x in reversed([*roots])]
    while todo:
        x, finished = todo.pop()
        if finished:
            order.append(x)
        elif x not in seen:
            seen.add(x)
            todo.append((x, True))
            todo += [(y, False) for y in reversed(before(x))]
    return order


X = TypeVar("X")


def holds(x: X, rule: Callable[[X], bool | Sequence[X]]) -> bool:
    """Whether `rule` holds for `x`. `rule` returns the answer, or the items for which it must also hold. It is called once for
    each item."""
    visited, todo = {id(x)}, [x]
    while todo:
        result = rule(todo.pop())
        if result is False:
            return False
        for y in () if result is True else result:
            if id(y) not in visited:
                visited.add(id(y))
                todo.append(y)
    return True
