"""What notebooks show, and arrays of torch."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, FP8_E4M3, FP8_E5M2
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.engines.compiled import Compiled
from ptir_tools.engines.options import RunOptions

if TYPE_CHECKING:
    import torch
else:
    torch = lazy("torch")

_SHOWN = 400  # characters of an array


def html_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts in HTML."""
    head = "".join(f"<th>{html.escape(t)}</th>" for t in titles)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Results(dict[str, Array]):
    """The outputs of a run by name."""

    def _repr_html_(self) -> str:
        """A table of the outputs, for a notebook."""
        rows = []
        for name, x in self.items():
            with np.printoptions(precision=4, threshold=20):
                text = str(arrays.widen(x))
            rows.append((name, str(x.dtype), "x".join(map(str, x.shape)), text if len(text) <= _SHOWN else text[:_SHOWN] + " …"))
        return html_table(("output", "dtype", "shape", "values"), rows)


def to_torch(program: Program, options: RunOptions) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """`program` as a function of tensors, see `ptir_tools.to_torch`."""
    try:
        torch.Tensor  # noqa: B018
    except ImportError as error:
        raise UsageError("to_torch needs PyTorch: pip install 'ptir-tools[torch]'") from error
    compiled = Compiled(program, options)

    def function(*tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        outputs = tuple(map(_tensor, compiled([_array(t) for t in tensors]).values()))
        return outputs[0] if len(outputs) == 1 else outputs

    function.__name__ = function.__qualname__ = program.entry
    return function


def _array(tensor: torch.Tensor) -> Array:
    """The tensor as an array, without a copy where it is contiguous and in main memory."""
    if tensor.requires_grad:
        raise UsageError("the function has no gradients; detach() the tensors")
    x = tensor.cpu().contiguous()
    name = str(x.dtype).removeprefix("torch.")
    if name in _NARROW:
        width = torch.uint16 if x.element_size() == 2 else torch.uint8
        result: Array = x.view(width).numpy().view(arrays.numpy_dtype(_NARROW[name]))
        return result
    plain: Array = x.numpy()
    return plain


def _tensor(x: Array) -> torch.Tensor:
    name = x.dtype.name
    if name in _NARROW:
        return torch.from_numpy(x.view(np.uint16 if x.dtype.itemsize == 2 else np.uint8)).view(getattr(torch, name))
    return torch.from_numpy(np.ascontiguousarray(x).reshape(x.shape))


_NARROW = {"bfloat16": BF16, "float8_e4m3fn": FP8_E4M3, "float8_e5m2": FP8_E5M2}  # torch shares no memory of these with NumPy
