"""PTIR, the portable tensor IR of gpt.rs (contract ptir.v0.4): ops on whole tensors, three serializations."""

from ptir_tools.core.dialect import Dialect
from ptir_tools.dialects.ptir import ops as ops
from ptir_tools.dialects.ptir.check import check
from ptir_tools.dialects.ptir.codes import EXPLAIN

DIALECT = Dialect(name="ptir", constant="ptir.constant", pipeline="canonicalize,cse,dce", check=check, explain=EXPLAIN)
