"""Fusion hints of gpt.rs: which ops of a function a backend may run as one. The ops stay as they are."""

from __future__ import annotations

from typing import cast

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Annotation, Function
from ptir_tools.core.records import dataclass
from ptir_tools.dialects.ptir.ops.kinds import Attrs


@dataclass(slots=True, eq=False, kw_only=True)
class Hint(Annotation):
    """A fusion hint: its number, kind and policy as gpt.rs spells them, and its payload by name."""

    id: int
    kind: str
    policy: str
    attrs: Attrs = ()

    def dropped(self, diagnostics: Diagnostics, why: str) -> None:
        """Report "HintDropped": a warning for a required hint, a note for any other."""
        report = diagnostics.warning if self.policy == "Required" else diagnostics.note
        report("HintDropped", f"hint {self.id} is dropped: {why}", self.loc)


def hints(function: Function) -> list[Hint]:
    """The hints of a PTIR function, which has no other annotations."""
    return cast(list[Hint], function.annotations)
