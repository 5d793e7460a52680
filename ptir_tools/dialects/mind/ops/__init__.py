"""The operations of Core v1, declared. `Input` is not an operation here: inputs are the function's parameters."""

from ptir_tools.dialects.mind.ops import constants, elementwise, indexing, linear, reduce, shape

__all__ = ["constants", "elementwise", "indexing", "linear", "reduce", "shape"]
