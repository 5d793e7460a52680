"""One function per ONNX operator, in files by topic. Importing the package fills the table."""

from ptir_tools.bridges.onnx.ops import attention as attention
from ptir_tools.bridges.onnx.ops import blockwise as blockwise
from ptir_tools.bridges.onnx.ops import classical as classical
from ptir_tools.bridges.onnx.ops import contrib as contrib
from ptir_tools.bridges.onnx.ops import control as control
from ptir_tools.bridges.onnx.ops import elementwise as elementwise
from ptir_tools.bridges.onnx.ops import experts as experts
from ptir_tools.bridges.onnx.ops import grouped as grouped
from ptir_tools.bridges.onnx.ops import index as index
from ptir_tools.bridges.onnx.ops import matrix as matrix
from ptir_tools.bridges.onnx.ops import normalize as normalize
from ptir_tools.bridges.onnx.ops import quantize as quantize
from ptir_tools.bridges.onnx.ops import recurrent as recurrent
from ptir_tools.bridges.onnx.ops import reduce as reduce
from ptir_tools.bridges.onnx.ops import resize as resize
from ptir_tools.bridges.onnx.ops import sequence as sequence
from ptir_tools.bridges.onnx.ops import shape as shape
from ptir_tools.bridges.onnx.ops import signal as signal
from ptir_tools.bridges.onnx.ops import training as training
from ptir_tools.bridges.onnx.ops import trees as trees
from ptir_tools.bridges.onnx.ops import window as window
