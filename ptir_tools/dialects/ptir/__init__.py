"""PTIR, the portable tensor IR of gpt.rs (contract ptir.v0.4): ops on whole tensors, three serialisations."""

from ptir_tools.core.dialect import Dialect
from ptir_tools.dialects.ptir.ops import shape as _shape  # noqa: F401  (declares its ops)

DIALECT = Dialect(name="ptir", constant="ptir.constant", pipeline="canonicalize,cse,dce")
