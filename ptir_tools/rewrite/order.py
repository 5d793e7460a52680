"""The order of the ops of several blocks, under insertion, removal and comparison in constant time.

Each op has a slot number; slots are linked. On demand they get sparse labels, so that "before" is a comparison of two integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptir_tools.core.ir import Op, Region

_GAP = 1 << 32


class Order:
    """Doubly linked slots. Slot `heads[block]` is that block's sentinel: the one before its first and after its last op.

    `ops` has the op of each slot, None for a sentinel; an erased op has slot 0. `count`: the number of ops.
    """

    __slots__ = ("_labels", "blocks", "count", "heads", "next", "ops", "prev")

    def __init__(self) -> None:
        self.count = 0
        self.heads: dict[Region, int] = {}
        self.ops: list[Op | None] = []
        self.blocks: list[Region] = []
        self.next: list[int] = []
        self.prev: list[int] = []
        self._labels: list[int] | None = None

    def add_block(self, block: Region, body: Sequence[Op]) -> None:
        """Take in `block` with the ops of `body`."""
        head, n = len(self.ops), len(body)
        self.heads[block] = head
        self.ops.append(None)
        self.ops.extend(body)
        self.blocks.extend([block] * (n + 1))
        for slot, op in enumerate(body, head + 1):
            op.slot = slot
        self.count += n
        self.next.extend(range(head + 1, head + n + 1))
        self.next.append(head)
        self.prev.append(head + n)
        self.prev.extend(range(head, head + n))
        if self._labels is not None:
            self._labels.extend(range(0, (n + 1) * _GAP, _GAP))

    def current_ops(self) -> Iterator[Op]:
        """The current ops of all blocks; those that existed from the start are in order."""
        return (op for slot, op in enumerate(self.ops) if op is not None and op.slot == slot)

    def block_of(self, op: Op) -> Region:
        """The block in which `op` is."""
        return self.blocks[op.slot]

    def before(self, a: Op, b: Op) -> bool:
        """Whether `a` is before `b`; both are in one block."""
        return self.place(a) < self.place(b)

    def place(self, op: Op) -> int:
        """A number that grows along the block of `op`."""
        if (labels := self._labels) is None:
            labels = self._labels = [0] * len(self.ops)
            for head in self.heads.values():
                at, label = self.next[head], _GAP
                while at != head:
                    labels[at] = label
                    at, label = self.next[at], label + _GAP
        return labels[op.slot]

    def following(self, op: Op) -> Op | None:
        """The op after `op` in its block; None after the last."""
        return self.ops[self.next[op.slot]]

    def body(self, block: Region) -> list[Op]:
        """The ops of `block` in order."""
        collected: list[Op] = []
        ops, following = self.ops, self.next
        at = following[self.heads[block]]
        while (op := ops[at]) is not None:
            collected.append(op)
            at = following[at]
        return collected

    def backward(self, block: Region) -> Iterator[Op]:
        """The ops of `block`, last to first. The op just yielded may be removed."""
        at = self.prev[self.heads[block]]
        while (op := self.ops[at]) is not None:
            yield op
            at = self.prev[at]

    def insert(self, op: Op, block: Region, before: Op | None) -> None:
        """Put `op` before `before`, or at the end of `block`."""
        at = self.heads[block] if before is None else before.slot
        left = self.prev[at]
        slot = len(self.ops)
        self.ops.append(op)
        self.blocks.append(block)
        op.slot = slot
        self.count += 1
        self.next.append(at)
        self.prev.append(left)
        if self._labels is not None:
            self._labels.append(self._label_between(self._labels, left, at))
        self.next[left] = slot
        self.prev[at] = slot

    def remove(self, op: Op) -> None:
        """Take `op` out."""
        slot, op.slot = op.slot, 0
        self.count -= 1
        left, right = self.prev[slot], self.next[slot]
        self.next[left] = right
        self.prev[right] = left

    def _label_between(self, labels: list[int], left: int, right: int) -> int:
        if self.ops[right] is None:
            return labels[left] + _GAP
        if labels[right] - labels[left] < 2:
            self._spread(labels, left)
        return (labels[left] + labels[right]) // 2

    def _spread(self, labels: list[int], start: int) -> None:
        """Make room after `start`: relabel the shortest run that is sparse enough (Dietz and Sleator; amortized O(log n))."""
        at = self.next[start]
        run: list[int] = []
        low = labels[start]
        while self.ops[at] is not None and labels[at] - low <= (len(run) + 1) ** 2:
            run.append(at)
            at = self.next[at]
        room = (len(run) + 1) * _GAP if self.ops[at] is None else labels[at] - low
        for i, slot in enumerate(run, 1):
            labels[slot] = low + room * i // (len(run) + 1)
