"""The arrays that a model has: initializers, those of attributes, and data in files next to it."""

from __future__ import annotations

import math
import os

from ptir_tools.bridges.onnx.table import NAMES, WIDER, dtype_of
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import DType
from ptir_tools.core.files import is_below, open_data
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import require_memory
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Violation

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")


class Stored:
    """Reads the arrays of the model in the file `source`."""

    def __init__(self, source: Source) -> None:
        self._source, self._folder = source, os.path.dirname(source.name)
        self._bytes = 0  # of data in other files that were read
        self._widened: dict[int, tuple[Array, str]] = {}  # arrays of dtypes that PTIR lacks, by identity

    def outside(self, datum: object) -> str:
        """The name of the dtype of a constant that PTIR lacks and that is stored in a wider one; else ""."""
        return self._widened[id(datum)][1] if id(datum) in self._widened else ""

    def array(self, t: onnx.TensorProto) -> Array:
        """The array of a TensorProto. A dtype that PTIR lacks becomes a wider one, which has all its numbers. Raises
        Violation."""
        if t.data_location == 1:
            return self._external(t, dtype_of(t.data_type))
        wider = WIDER.get(t.data_type)
        dtype = arrays.numpy_dtype(wider or dtype_of(t.data_type))
        try:
            stored: Array = onnx.numpy_helper.to_array(t)
            result: Array = stored.view(dtype) if wider is None else stored.astype(dtype)
        except (ValueError, TypeError, IndexError) as error:
            raise Violation("InvalidModel", f"initializer `{t.name}` does not have the bytes of its type: {error}") from None
        if wider is not None:
            self._widened[id(result)] = result, NAMES[t.data_type]
        return result

    def _external(self, t: onnx.TensorProto, dtype: DType) -> Array:
        where = {e.key: e.value for e in t.external_data}
        path = os.path.join(self._folder, where.get("location", ""))
        if not is_below(path, self._folder) and os.path.realpath(path) != os.path.realpath(self._source.name):
            raise Violation("InvalidModel", f"initializer `{t.name}` is kept in {path}, outside of the model's folder")
        count = math.prod(t.dims)
        size = dtype.packed_bytes(count)
        self._bytes += size
        require_memory(self._bytes)
        try:
            with open_data(path) as file:  # its bytes become those of the constant: they are in memory once
                file.seek(int(where.get("offset", 0)))
                data = file.read(size) if size <= os.fstat(file.fileno()).st_size else b""
            if len(data) != size or int(where.get("length", size)) != size:
                raise ValueError(f"its type has {size} bytes")
        except (OSError, ValueError) as error:
            raise Violation("InvalidModel", f"initializer `{t.name}` cannot be read from {path}: {error}") from None
        if dtype.bits == 4:
            return arrays.unpack(data, dtype, count).reshape(tuple(t.dims))
        return np.frombuffer(data, arrays.numpy_dtype(dtype)).reshape(tuple(t.dims))

    def dense(self, s: onnx.SparseTensorProto) -> Array:
        """The array of a SparseTensorProto."""
        values, indices, shape = self.array(s.values), self.array(s.indices), np.array(s.dims, np.int64)
        bounds = shape if indices.ndim == 2 else np.array([math.prod(s.dims)])
        fits = indices.dtype == np.int64 and values.ndim == 1 and len(indices) == len(values) and (shape >= 0).all()
        if not fits or indices.shape[1:] not in ((), shape.shape) or not ((indices >= 0) & (indices < bounds)).all():
            raise Violation(
                "InvalidModel", f"the indices of the sparse tensor `{s.values.name}` do not fit its shape {list(s.dims)}"
            )
        out = np.zeros(tuple(s.dims), values.dtype)
        out[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, out.shape)] = values
        return out
