"""The engines that `peers` compares: each has the functions of `_peer_work.Numpy` in its own best way.

`compiled(work, inputs)` gives a call without arguments; `array(result)` its result for NumPy. What an engine has no function for
raises `Skipped`.
"""

from __future__ import annotations

import numpy as np

from tests.bench._peer_work import CACHE, GELU, HEAD, HEADS, STEP, Numpy


class Skipped(Exception):
    """The engine has not what the workload needs."""


class Plain(Numpy):
    """NumPy, f32."""

    def __init__(self, threads):
        pass

    def compiled(self, work, inputs):
        if inputs[0].dtype.name == "bfloat16" and len(inputs) > 2:
            inputs = [x.astype(np.float32) for x in inputs]
        return lambda: work.run(self, *inputs)

    def array(self, result):
        return np.asarray(result)


class Ours:
    """This toolkit."""

    engine = "native"

    def __init__(self, threads):
        import ptir_tools

        self.ptir, self.options = ptir_tools, {"threads": threads} if self.engine == "native" else {}

    def program(self, work, inputs):
        self.graph = self.ptir.Graph()
        names = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "si8", "int32": "si32"}
        given = enumerate(inputs[: work.given])
        operands = [self.graph.input(f"x{i}", names[x.dtype.name], x.shape) for i, x in given]
        operands += [self.graph.constant(x) for x in inputs[work.given :]]
        return self.graph.returns(work.run(self, *operands).named("y"))

    def compiled(self, work, inputs):
        call = self.ptir.compile(self.program(work, inputs), reuse=True, engine=self.engine, **self.options)
        given = {f"x{i}": x for i, x in enumerate(inputs[: work.given])}
        return lambda: call(given)["y"]

    def array(self, result):
        return result

    def add(self, x, y):
        return x + (y.broadcast_like(x) if y.shape != x.shape else y)

    def mul(self, x, y):
        return x * (y.broadcast_like(x) if y.shape != x.shape else y)

    def matmul(self, x, y):
        return x @ y

    def linear(self, x, w, b=None):
        y = x.dot_general(w, contract_lhs=[x.rank - 1], contract_rhs=[0])
        return y if b is None else self.add(y, b)

    def gelu(self, x):
        return x * 0.5 * ((x + x * x * x * 0.044715) * GELU).tanh().add(1)

    def silu(self, x):
        return x / ((-x).exp() + 1)

    def layer_norm(self, x, g, b):
        return x.layer_norm(g, b, 1e-5)

    def rms_norm(self, x, g):
        mean = (x * x).reduce_sum([-1], keepdims=True) * (1 / x.shape[-1])
        return self.mul(x * (mean + 1e-5).rsqrt().broadcast_like(x), g)

    def softmax(self, x):
        e = (x - x.reduce_max([-1], keepdims=True).broadcast_like(x)).exp()
        return e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)

    def attention(self, q, k, v):
        many = q.shape[0] // k.shape[0]
        shape, lead = q.shape, len(q.shape) - 2
        if many > 1:
            q = q.reshape([k.shape[0], many, *shape[1:]])
        axes = {"batch_lhs": [0], "batch_rhs": [0]}
        s = q.dot_general(k, **axes, contract_lhs=[q.rank - 1], contract_rhs=[2]) * 0.125
        rows, columns = (s.block.iota(s.shape[-2:], "si32", a) for a in (0, 1))
        s = (columns <= rows).broadcast_like(s).select(s, -1e9)
        o = self.softmax(s).dot_general(v, **axes, contract_lhs=[s.rank - 1], contract_rhs=[1])
        return o.reshape(shape) if many > 1 or lead != 1 else o

    def heads(self, x, count):
        return x.reshape([x.shape[0], count, x.shape[1] // count]).transpose([1, 0, 2])

    def joined(self, x):
        return x.transpose([1, 0, 2]).reshape([x.shape[1], x.shape[0] * x.shape[2]])

    def columns(self, x, start, count):
        return x.slice([0] * (x.rank - 1) + [start], [*x.shape[:-1], count])

    def rotary(self, x, cos, sin):
        half = x.shape[-1] // 2
        turned = self.graph.concat([-self.columns(x, half, half), self.columns(x, 0, half)], axis=x.rank - 1)
        return self.add(self.mul(x, cos), self.mul(turned, sin))

    def cached(self, q, k, v, keys, values):
        axes = {"batch_lhs": [0], "batch_rhs": [0]}
        old = keys.dot_general(q, **axes, contract_lhs=[2], contract_rhs=[1])
        p = self.softmax(self.graph.concat([old, (q * k).reduce_sum([-1], keepdims=True)], axis=1) * 0.125)
        o = self.columns(p, 0, CACHE).dot_general(values, **axes, contract_lhs=[1], contract_rhs=[1])
        return o + self.mul(v, self.columns(p, CACHE, 1))

    def row(self, x, count):
        return x.reshape([count, x.shape[0] * x.shape[1] // count])

    def relu(self, x):
        return x.maximum(0)

    def conv(self, x, w, b=None, stride=1):
        kh, kw, channels, out = w.shape
        if kh > 1 or stride > 1:
            x = x.extract_patches([kh, kw], strides=[stride] * 2, padding=[[kh // 2] * 2, [kw // 2] * 2])
        return self.linear(x, w.reshape([kh * kw * channels, out]), b)

    def average(self, x):
        return x.reduce_sum([1, 2]) * (1 / (x.shape[1] * x.shape[2]))

    def depthwise(self, x, w, b, stride=1):
        t = x.extract_patches([3, 3], strides=[stride] * 2, padding=[[1, 1]] * 2)
        t = t.reshape([*t.shape[:3], 9, x.shape[3]])
        return self.add((t * w.reshape([9, x.shape[3]]).broadcast_like(t)).reduce_sum([3]), b)

    def clip6(self, x):
        return x.clamp(0, 6)

    def pool(self, x):
        ones, whole = [1] * 4, [[0, 0], [1, 1], [1, 1], [0, 0]]
        fields = {"base_dilation": ones, "window_dilation": ones, "reduce": "max"}
        return x.reduce_window(window_dims=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=whole, **fields)

    def take(self, x, i):
        return x.take(i)

    def sum(self, x, axis):
        return x.reduce_sum([axis])

    def transpose(self, x):
        return x.transpose([1, 0])

    def matmul8(self, x, y):
        return x.dot_general(y, contract_lhs=[1], contract_rhs=[0], accum_dtype="si32", out_dtype="si32")

    def steps(self, s, b):
        steps = {"scales": [STEP], "zero_points": [0], "output_scales": [1.0], "output_zero_points": [0]}
        return self.add(s, b).requantize("si8", **steps).maximum(0)

    def number(self, s, b):
        return self.add(s, b).dequantize(output_dtype="f32", scales=[STEP], zero_points=[0])

    def added(self, x, y, times):
        for _ in range(times):
            x = x + y
        return x


class OursByNumpy(Ours):
    """This toolkit's NumPy engine."""

    engine = "numpy"


class Jax(Numpy):
    """jax.jit."""

    def __init__(self, threads):
        import jax

        self.jax, self.np = jax, jax.numpy

    def compiled(self, work, inputs):
        operands = [self.jax.device_put(x) for x in inputs]
        call = self.jax.jit(lambda *a: work.run(self, *a))
        return lambda: call(*operands).block_until_ready()

    def array(self, result):
        return np.asarray(result)

    def matmul(self, x, y):
        return x @ y

    def gelu(self, x):
        return self.jax.nn.gelu(x, approximate=True)

    def silu(self, x):
        return self.jax.nn.silu(x)

    def layer_norm(self, x, g, b):
        d = x - x.mean(-1, keepdims=True)
        return d * self.jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + b

    def rms_norm(self, x, g):
        return x * self.jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g

    def softmax(self, x):
        return self.jax.nn.softmax(x, -1)

    def attention(self, q, k, v):
        many = len(q) // len(k)
        s = q.reshape(len(k), many, *q.shape[1:]) @ k.swapaxes(-1, -2)[:, None] * 0.125
        s = self.np.where(self.np.tri(s.shape[-1], dtype=bool), s, self.np.asarray(-1e9, s.dtype))
        return (self.softmax(s) @ v[:, None]).reshape(q.shape)

    def rotary(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + self.np.concatenate([-x[..., half:], x[..., :half]], -1) * sin

    def cached(self, q, k, v, keys, values):
        s = self.np.concatenate([(keys @ q[:, :, None])[:, :, 0], (q * k).sum(-1, keepdims=True)], -1) * 0.125
        p = self.softmax(s)
        return (p[:, None, :-1] @ values)[:, 0] + p[:, -1:] * v

    def relu(self, x):
        return self.np.maximum(x, 0)

    def clip6(self, x):
        return self.np.clip(x, 0, 6)

    def conv(self, x, w, b=None, stride=1):
        layout, around = ("NHWC", "HWIO", "NHWC"), [(n // 2, n // 2) for n in w.shape[:2]]
        y = self.jax.lax.conv_general_dilated(x, w, (stride, stride), around, dimension_numbers=layout)
        return y if b is None else y + b

    def depthwise(self, x, w, b, stride=1):
        p, (high, wide) = self.np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), x.shape[1:3]
        return sum(p[:, i : i + high : stride, j : j + wide : stride] * w[i, j] for i in range(3) for j in range(3)) + b

    def pool(self, x):
        around = ((0, 0), (1, 1), (1, 1), (0, 0))
        return self.jax.lax.reduce_window(x, -np.inf, self.jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), around)

    def transpose(self, x):
        return x.T

    def matmul8(self, x, y):
        return self.jax.lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=self.np.int32)

    def steps(self, s, b):
        return self.np.clip(self.np.rint((s + b) * np.float32(STEP)), 0, 127).astype(self.np.int8)

    def number(self, s, b):
        return (s + b) * np.float32(STEP)


class Torch(Numpy):
    """torch, eager, with its own functions where it has one; images are channels-last."""

    def __init__(self, threads):
        import torch

        self.torch, self.f = torch, torch.nn.functional
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def tensor(self, x):
        if x.dtype.name == "bfloat16":
            return self.torch.from_numpy(x.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(x)

    def compiled(self, work, inputs):
        operands = [self.tensor(x) for x in inputs]
        self.filters = {}
        return lambda: work.run(self, *operands)

    def array(self, result):
        return (result.float() if result.is_floating_point() else result).numpy()

    def filter(self, w):
        """The weights of a convolution as torch wants them, made once."""
        if id(w) not in self.filters:
            turned = w.permute(3, 2, 0, 1) if w.dim() == 4 else w.permute(2, 0, 1)[:, None]
            self.filters[id(w)] = turned.contiguous(memory_format=self.torch.channels_last)
        return self.filters[id(w)]

    def matmul(self, x, y):
        return x @ y

    def linear(self, x, w, b=None):
        return x @ w if b is None else self.torch.addmm(b, x, w)

    def gelu(self, x):
        return self.f.gelu(x, approximate="tanh")

    def silu(self, x):
        return self.f.silu(x)

    def layer_norm(self, x, g, b):
        return self.f.layer_norm(x, (x.shape[-1],), g, b, 1e-5)

    def rms_norm(self, x, g):
        return self.f.rms_norm(x, (x.shape[-1],), g, 1e-5)

    def softmax(self, x):
        return self.torch.softmax(x, -1)

    def attention(self, q, k, v):
        many = {"enable_gqa": True} if len(q) != len(k) else {}
        return self.f.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, **many)[0]

    def heads(self, x, count):
        return x.view(len(x), count, -1).transpose(0, 1)

    def joined(self, x):
        return x.transpose(0, 1).reshape(x.shape[1], -1)

    def rotary(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + self.torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def cached(self, q, k, v, keys, values):
        old = self.torch.bmm(keys, q[:, :, None])[:, :, 0]
        p = self.torch.softmax(self.torch.cat([old, (q * k).sum(-1, keepdim=True)], -1) * 0.125, -1)
        return self.torch.bmm(p[:, None, :-1], values)[:, 0] + p[:, -1:] * v

    def row(self, x, count):
        return x.reshape(count, -1)

    def relu(self, x):
        return x.relu_() if x._base is None else x.relu()

    def conv(self, x, w, b=None, stride=1, **more):
        padding = (w.shape[0] // 2, w.shape[1] // 2)
        return self.f.conv2d(x.permute(0, 3, 1, 2), self.filter(w), b, stride, padding, **more).permute(0, 2, 3, 1)

    def depthwise(self, x, w, b, stride=1):
        return self.conv(x, w, b, stride, groups=w.shape[-1])

    def average(self, x):
        return x.mean((1, 2))

    def clip6(self, x):
        return x.clamp_(0, 6)

    def pool(self, x):
        return self.f.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)

    def take(self, x, i):
        return self.f.embedding(i, x)

    def transpose(self, x):
        return x.t().contiguous()

    def matmul8(self, x, y):
        return self.torch._int_mm(x, y)

    def steps(self, s, b):
        return ((s + b) * STEP).round_().clamp_(0, 127).to(self.torch.int8)

    def number(self, s, b):
        return (s + b) * STEP


class Ort:
    """ONNX Runtime; weights are initializers, images NCHW."""

    def __init__(self, threads):
        import onnx
        import onnxruntime

        self.onnx, self.ort, self.threads = onnx, onnxruntime, threads

    def compiled(self, work, inputs):
        helper = self.onnx.helper
        self.nodes, self.weights, feeds, given = [], [], {}, []
        self.constants = {}
        self.is_image = inputs[0].ndim == 4
        operands = []
        for i, x in enumerate(inputs):
            if x.dtype.name == "bfloat16":
                raise Skipped
            if i >= work.given:
                operands.append(x)
                continue
            feeds[f"x{i}"] = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if self.is_image else x
            given.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), feeds[f"x{i}"].shape))
            operands.append(f"x{i}")
        self.kind = self.onnx.TensorProto.FLOAT16 if inputs[0].dtype == np.float16 else self.onnx.TensorProto.FLOAT
        if work.run.__name__ == "<lambda>" and inputs[0].dtype == np.int8:
            self.kind = self.onnx.TensorProto.INT32
        out = work.run(self, *operands)
        graph = helper.make_graph(self.nodes, "g", given, [helper.make_tensor_value_info(out, self.kind, None)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        options = self.ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = self.threads, 1, 4
        session = self.ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feeds)[0]

    def array(self, result):
        return result.transpose(0, 2, 3, 1) if result.ndim == 4 else result

    def op(self, name, *operands, outputs=1, **attributes):
        made = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        operands = [x if isinstance(x, str) else self.constant(x) for x in operands]
        self.nodes.append(self.onnx.helper.make_node(name, operands, made, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, x):
        x = np.ascontiguousarray(x)
        name = f"c{len(self.weights)}"
        self.weights.append(self.onnx.numpy_helper.from_array(x, name))
        return name

    def ints(self, *values):
        return np.array(values, np.int64)

    def add(self, x, y):
        return self.op("Add", x, y)

    def mul(self, x, y):
        return self.op("Mul", x, y)

    def matmul(self, x, y):
        return self.op("MatMul", x, y)

    def linear(self, x, w, b=None):
        y = self.op("MatMul", x, w)
        return y if b is None else self.op("Add", y, b)

    def gelu(self, x):
        return self.op("Gelu", x, approximate="tanh")

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def layer_norm(self, x, g, b):
        return self.op("LayerNormalization", x, g, b, axis=-1, epsilon=1e-5)

    def rms_norm(self, x, g):
        mean = self.op("ReduceMean", self.op("Mul", x, x), self.ints(-1), keepdims=1)
        return self.op("Mul", self.op("Div", x, self.op("Sqrt", self.op("Add", mean, np.float32(1e-5)))), g)

    def softmax(self, x):
        return self.op("Softmax", x, axis=-1)

    def attention(self, *operands):
        raise Skipped  # its fused operator takes other operands: these workloads are compared with torch and jax

    heads = joined = rotary = attention

    def columns(self, x, start, count):
        return self.op("Slice", x, self.ints(start), self.ints(start + count), self.ints(-1))

    def row(self, x, count):
        return self.op("Reshape", x, self.ints(count, -1))

    def cached(self, q, k, v, keys, values):
        turned = [self.op("Reshape", x, self.ints(HEADS, 1, HEAD)) for x in (q, k, v)]
        old = self.op("MatMul", turned[0], self.op("Transpose", keys, perm=[0, 2, 1]))
        own = self.op("ReduceSum", self.op("Mul", *turned[:2]), self.ints(-1), keepdims=1)
        p = self.softmax(self.op("Mul", self.op("Concat", old, own, axis=2), np.float32(0.125)))
        past, now = self.op("Split", p, self.ints(CACHE, 1), outputs=2, axis=2)
        return self.op(
            "Reshape", self.op("Add", self.op("MatMul", past, values), self.op("Mul", now, turned[2])), self.ints(1, -1)
        )

    def relu(self, x):
        return self.op("Relu", x)

    def conv(self, x, w, b=None, stride=1):
        pads = [w.shape[0] // 2, w.shape[1] // 2] * 2
        return self.op("Conv", x, w.transpose(3, 2, 0, 1), *(() if b is None else (b,)), pads=pads, strides=[stride] * 2)

    def depthwise(self, x, w, b, stride=1):
        return self.op("Conv", x, w.transpose(2, 0, 1)[:, None], b, pads=[1] * 4, group=w.shape[2], strides=[stride] * 2)

    def average(self, x):
        return self.op("ReduceMean", x, self.ints(2, 3), keepdims=0)

    def clip6(self, x):
        return self.op("Clip", x, np.float32(0), np.float32(6))

    def pool(self, x):
        return self.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def take(self, x, i):
        return self.op("Gather", x, i, axis=0)

    def sum(self, x, axis):
        return self.op("ReduceSum", x, self.ints(axis), keepdims=0)

    def transpose(self, x):
        return self.op("Transpose", x, perm=[1, 0])

    def matmul8(self, x, y):
        return self.op("MatMulInteger", x, y)

    def steps(self, s, b):
        wide = self.op("Cast", self.op("Add", s, b), to=self.onnx.TensorProto.FLOAT)
        near = self.op("Clip", self.op("Round", self.op("Mul", wide, np.float32(STEP))), np.float32(0), np.float32(127))
        return self.op("Cast", near, to=self.onnx.TensorProto.INT8)

    def number(self, s, b):
        return self.op("Mul", self.op("Cast", self.op("Add", s, b), to=self.onnx.TensorProto.FLOAT), np.float32(STEP))

    def added(self, x, y, times):
        for _ in range(times):
            x = self.op("Add", x, y)
        return x


class Openvino:
    """OpenVINO, told to compute in the dtype of the inputs (else f32 becomes bf16), or in f32 where it would take another one;
    weights are constants, images NCHW."""

    def __init__(self, threads):
        import openvino
        from openvino import opset15

        self.core, self.ov, self.threads = openvino.Core(), opset15, threads
        self.model, self.tensor, self.type = openvino.Model, openvino.Tensor, openvino.Type

    def compiled(self, work, inputs):
        kinds = {"float16": self.type.f16, "bfloat16": self.type.bf16, "int8": self.type.i8, "int32": self.type.i32}
        precision = {"float16": "f16", "bfloat16": "bf16"}.get(inputs[0].dtype.name, "f32")
        is_image, tensors, operands = inputs[0].ndim == 4, [], []
        for i, x in enumerate(inputs):
            if i >= work.given:
                operands.append(x)
                continue
            x = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if is_image else x
            kind = kinds.get(x.dtype.name, self.type.f32)
            operands.append(self.ov.parameter(x.shape, kind))
            tensors.append(self.tensor(x.view(np.int16) if precision == "bf16" else x, x.shape, kind))
        out = work.run(self, *operands)
        if inputs[-1].dtype == np.int8:
            out = self.mul(out, np.array(1 / STEP, np.float32))
        options = {"INFERENCE_NUM_THREADS": self.threads, "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": False}
        model = self.model([out], operands[: work.given])
        compiled = self.core.compile_model(model, "CPU", {**options, "INFERENCE_PRECISION_HINT": precision})
        if compiled.get_property("INFERENCE_PRECISION_HINT").to_string() != precision:
            # A machine without products of f16 is given bf16 for it, with an error of 3.6e-3 where f16 has 2.8e-4.
            compiled = self.core.compile_model(model, "CPU", {**options, "INFERENCE_PRECISION_HINT": "f32"})
        request = compiled.create_infer_request()
        for i, x in enumerate(tensors):
            request.set_input_tensor(i, x)
        keep = (tensors, inputs)
        return lambda: (request.infer(), request.get_output_tensor(0), keep)[1]

    def array(self, result):
        made = result.data.copy() if result.element_type != self.type.bf16 else result.data.view(np.uint16).astype(np.uint32)
        made = (made << 16).view(np.float32) if result.element_type == self.type.bf16 else made
        return made.transpose(0, 2, 3, 1) if made.ndim == 4 else made

    def node(self, x):
        """`x`, a constant if it is an array."""
        if not isinstance(x, np.ndarray):
            return x
        if x.dtype.name != "bfloat16":
            return self.ov.constant(np.ascontiguousarray(x))
        return self.ov.constant(self.tensor(np.ascontiguousarray(x).view(np.int16), x.shape, self.type.bf16))

    def like(self, number, x):
        """A number of the dtype of `x`."""
        return self.ov.convert_like(self.ov.constant(np.float32(number)), x)

    def ints(self, *values):
        return self.ov.constant(np.array(values, np.int64))

    def shape(self, x):
        return [int(n) for n in x.output(0).get_shape()]

    def add(self, x, y):
        return self.ov.add(x, self.node(y))

    def mul(self, x, y):
        return self.ov.multiply(x, self.node(y))

    def matmul(self, x, y):
        return self.ov.matmul(x, self.node(y), False, False)

    def linear(self, x, w, b=None):
        y = self.matmul(x, w)
        return y if b is None else self.add(y, b)

    def gelu(self, x):
        return self.ov.gelu(x, "tanh")

    def silu(self, x):
        return self.ov.swish(x)

    def layer_norm(self, x, g, b):
        return self.add(self.mul(self.ov.mvn(x, self.ints(-1), True, 1e-5, "inside_sqrt"), g), b)

    def rms_norm(self, x, g):
        mean = self.ov.reduce_mean(self.ov.multiply(x, x), self.ints(-1), True)
        return self.mul(self.ov.divide(x, self.ov.sqrt(self.ov.add(mean, self.like(1e-5, x)))), g)

    def softmax(self, x):
        return self.ov.softmax(x, -1)

    def attention(self, q, k, v):
        many, shape = self.shape(q)[0] // self.shape(k)[0], self.shape(q)
        if many > 1:
            k, v = (self.ov.unsqueeze(x, self.ints(1)) for x in (k, v))
            k, v = (self.ov.broadcast(x, self.ints(shape[0] // many, many, *shape[1:])) for x in (k, v))
            k, v = (self.ov.reshape(x, self.ints(*shape), False) for x in (k, v))
        q, k, v = (self.ov.unsqueeze(x, self.ints(0)) for x in (q, k, v))
        return self.ov.squeeze(self.ov.scaled_dot_product_attention(q, k, v, causal=True), self.ints(0))

    def heads(self, x, count):
        return self.ov.transpose(self.ov.reshape(x, self.ints(self.shape(x)[0], count, -1), False), self.ints(1, 0, 2))

    def joined(self, x):
        return self.ov.reshape(self.ov.transpose(x, self.ints(1, 0, 2)), self.ints(self.shape(x)[1], -1), False)

    def columns(self, x, start, count):
        return self.ov.slice(x, self.ints(start), self.ints(start + count), self.ints(1), self.ints(-1))

    def rotary(self, x, cos, sin):
        half = self.shape(x)[-1] // 2
        turned = self.ov.concat([self.ov.negative(self.columns(x, half, half)), self.columns(x, 0, half)], -1)
        return self.add(self.mul(x, cos), self.mul(turned, sin))

    def row(self, x, count):
        return self.ov.reshape(x, self.ints(count, -1), False)

    def cached(self, q, k, v, keys, values):
        turned = [self.ov.reshape(x, self.ints(HEADS, 1, HEAD), False) for x in (q, k, v)]
        old = self.ov.matmul(turned[0], keys, False, True)
        own = self.ov.reduce_sum(self.ov.multiply(*turned[:2]), self.ints(-1), True)
        p = self.softmax(self.ov.multiply(self.ov.concat([old, own], 2), self.like(0.125, q)))
        new = self.ov.multiply(self.columns(p, CACHE, 1), turned[2])
        return self.row(self.ov.add(self.ov.matmul(self.columns(p, 0, CACHE), values, False, False), new), HEADS)

    def relu(self, x):
        return self.ov.relu(x)

    def biased(self, x, b):
        return x if b is None else self.ov.add(x, self.node(b[:, None, None]))

    def conv(self, x, w, b=None, stride=1):
        around = [w.shape[0] // 2, w.shape[1] // 2]
        y = self.ov.convolution(x, self.node(w.transpose(3, 2, 0, 1)), [stride] * 2, around, around, [1, 1])
        return self.biased(y, b)

    def depthwise(self, x, w, b, stride=1):
        filters = self.node(w.transpose(2, 0, 1)[:, None, None])
        return self.biased(self.ov.group_convolution(x, filters, [stride] * 2, [1, 1], [1, 1], [1, 1]), b)

    def average(self, x):
        return self.ov.reduce_mean(x, self.ints(2, 3), False)

    def clip6(self, x):
        return self.ov.clamp(x, 0.0, 6.0)

    def pool(self, x):
        return self.ov.max_pool(x, [2, 2], [1, 1], [1, 1], [1, 1], [3, 3]).output(0)

    def take(self, x, i):
        return self.ov.gather(self.node(x), i, self.ints(0))

    def sum(self, x, axis):
        return self.ov.reduce_sum(x, self.ints(axis), False)

    def transpose(self, x):
        return self.ov.transpose(x, self.ints(1, 0))

    def fake(self, x, low, high):
        """`x` in bytes, of which low … high is -128 … 127: OpenVINO has a pattern of floats for it, here in units of 2^-6."""
        ends = [self.ov.constant(np.float32(a)) for a in (low, high, -128 / 64, 127 / 64)]
        return self.ov.fake_quantize(x, *ends, 256)

    def matmul8(self, x, y):
        """The exact sums, times STEP, in f32."""
        if isinstance(y, np.ndarray):
            y = self.mul(self.ov.convert(self.node(y), np.float32), np.array(1 / 64, np.float32))
        bytes_ = [a.get_element_type() == self.type.i8 for a in (x, y)]
        x, y = (self.fake(self.ov.convert(a, np.float32), -128, 127) if b else a for a, b in zip((x, y), bytes_, strict=True))
        return self.ov.matmul(x, y, False, False)

    def steps(self, s, b):
        return self.ov.relu(self.fake(self.number(s, b), -128, 127))

    def number(self, s, b):
        return self.add(s, b.astype(np.float32) * np.float32(STEP))

    def added(self, x, y, times):
        for _ in range(times):
            x = self.ov.add(x, y)
        return x


ENGINES = {"ptir": Ours, "ptir_numpy": OursByNumpy, "numpy": Plain, "torch": Torch, "jax": Jax, "ort": Ort, "openvino": Openvino}
