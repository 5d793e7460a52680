"""Fusion hints of gpt.rs: groups of ops that a backend may fuse. The ops are not changed."""

from __future__ import annotations

from ptir_tools.core.ir import Annotation, Function
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import cast
from ptir_tools.dialects.ptir.ops.kinds import Attrs


@dataclass(slots=True, eq=False, kw_only=True)
class Hint(Annotation):
    """A fusion hint: its number, kind and policy in gpt.rs's spelling, and its payload by name."""

    id: int
    kind: str
    policy: str
    attrs: Attrs = ()

    @property
    def code(self) -> str:
        """Of the finding that it is gone."""
        return "HintDropped"

    @property
    def title(self) -> str:
        """Its number."""
        return f"hint {self.id}"

    @property
    def required(self) -> bool:
        """Whether the policy requires the fusion."""
        return self.policy == "Required"


def hints(function: Function) -> list[Hint]:
    """The hints of a PTIR function, which has no other annotations."""
    return cast(list[Hint], function.annotations)
