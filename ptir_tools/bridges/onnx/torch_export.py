"""From torch to ONNX, in memory."""

from __future__ import annotations

import contextlib
import io
import warnings

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import torch
else:
    torch = lazy("torch")

INSTALL = "this is PyTorch: pip install 'ptir-tools[torch]'"


def exported(module: torch.nn.Module, example_inputs: tuple[object, ...], dynamic: object) -> onnx.ModelProto:
    """The ModelProto of a module. Raises UsageError when torch or onnxscript is not installed, or torch cannot export it."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with torch.no_grad():
                result = torch.onnx.export(module.eval(), example_inputs, dynamo=True, dynamic_shapes=dynamic, verbose=False)
    except ModuleNotFoundError:
        raise UsageError(INSTALL) from None
    except torch.onnx.errors.OnnxExporterError as error:
        raise UsageError(f"torch does not export this module: {_reason(error)}") from error
    assert result is not None
    return result.model_proto


def _reason(error: BaseException) -> str:
    """The first error, without torch's trace."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0]
