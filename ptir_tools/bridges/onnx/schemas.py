"""The schemas of operators: what they say of attributes and operands, and the functions that composites are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from ptir_tools.bridges.onnx.protocols import OF_NUMPY, POISON, Attribute, Datum, Items
from ptir_tools.bridges.onnx.table import HANDLERS, NUMBERS, refused
from ptir_tools.core.dtypes import SI64, DType, Kind
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.spelling import did_you_mean, proposed
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Violation, operand
from ptir_tools.dialects.ptir.builder.build import Tensor

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

# What other libraries call operators, in lower case.
_OTHERS = {
    "linear": "Gemm", "dense": "Gemm", "addmm": "Gemm", "fullyconnected": "Gemm", "multiply": "Mul", "subtract": "Sub",
    "divide": "Div", "power": "Pow", "minimum": "Min", "maximum": "Max", "permute": "Transpose", "view": "Reshape",
    "bmm": "MatMul", "mm": "MatMul",
    "dot": "MatMul", "upsample": "Resize", "interpolate": "Resize", "select": "Where", "convert": "Cast",
    "astype": "Cast", "negative": "Neg", "embedding": "Gather", "take": "Gather", "stack": "Concat", "cat": "Concat",
    "full": "ConstantOfShape", "arange": "Range", "conv2d": "Conv", "clamp": "Clip",
    "avgpool": "AveragePool", "globalavgpool": "GlobalAveragePool", "batchnorm": "BatchNormalization",
}  # fmt: skip


def find(op: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """The schema of an operator; the newest one where the operator set is older than it, as models of other tools have it."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return onnx.defs.get_schema(op, domain) if onnx.defs.has(op, domain) else None


def unknown(proto: onnx.NodeProto, opset: int, domain: str) -> Violation:
    """The Violation for an operator of which there is no schema."""
    similar = [name for place, name in HANDLERS if place == domain]
    similar += [s.name for s in onnx.defs.get_all_schemas() if s.domain == domain]
    op = f"{domain and domain + '.'}{proto.op_type}"
    begun = [name for name in similar if len(proto.op_type) > 3 and name.startswith(proto.op_type)]
    meant = [other] if (other := _OTHERS.get(proto.op_type.lower())) else begun
    help = did_you_mean(meant[:1]) if meant else proposed(proto.op_type, similar, "{}")[0]
    return refused(f"there is no operator {op} in operator set {opset}", help)


def check(schema: onnx.defs.OpSchema, proto: onnx.NodeProto, opset: int, attrs: Mapping[str, Attribute]) -> None:
    """Check the number of operands, and the names and types of attributes. Raises Violation."""
    what = f"{proto.op_type} of operator set {opset}"
    for a in proto.attribute:
        if a.name not in schema.attributes and a.name in [x.name for x in schema.inputs]:
            message = f"{what} has no attribute `{a.name}`"
            raise Violation("InvalidModel", message, help=f"`{a.name}` is an operand in this operator set")
    if not schema.min_input <= len(proto.input) <= schema.max_input:
        least, most = schema.min_input, schema.max_input
        wanted = f"{least}" if least == most else f"at least {least}" if len(proto.input) < least else f"at most {most}"
        many = operand(most) if len(proto.input) > most else None
        raise Violation("InvalidModel", f"{what} takes {wanted} operands, got {len(proto.input)}", at=many)
    if not schema.min_output <= len(proto.output) <= schema.max_output:
        raise Violation("InvalidModel", f"{what} has {len(proto.output)} outputs")
    for a in proto.attribute:
        declared = schema.attributes.get(a.name)
        if declared is None:
            near = proposed(a.name, schema.attributes, "{}")[0]
            raise Violation("InvalidModel", f"{what} has no attribute `{a.name}`", help=near)
        if int(a.type) != int(declared.type.value):
            given, wanted = (onnx.AttributeProto.AttributeType.Name(int(t)).lower() for t in (a.type, declared.type.value))
            raise Violation("InvalidModel", f"the attribute `{a.name}` of {what} is {wanted}, not {given}")
    if missing := [k for k, a in schema.attributes.items() if a.required and k not in attrs]:
        raise Violation("InvalidModel", f"{what} needs the attribute `{missing[0]}`")


def check_kinds(schema: onnx.defs.OpSchema, proto: onnx.NodeProto, values: Mapping[str, Datum]) -> None:
    """Raise Violation for floats where the operator takes integers alone, such as indices, and the like for truth values."""
    wanted = _only(schema.name, schema.domain, schema.since_version)
    for i, name in enumerate(proto.input):
        x = values.get(name)
        dtype = x.dtype if isinstance(x, Tensor) else OF_NUMPY.get(x.dtype.name) if isinstance(x, np.ndarray) else None
        if dtype is not None and (only := wanted[min(i, len(wanted) - 1)]) and only != _kind(dtype):
            raise Violation("InvalidModel", f"`{name}` is {dtype}, and {proto.op_type} takes {only} there", at=operand(i))


def _kind(dtype: DType) -> str:
    return "integers" if dtype.is_integer else "truth values" if dtype.kind is Kind.BOOL else "other"


@cache
def _only(op: str, domain: str, version: int) -> list[str]:
    """For each operand of an operator "integers" or "truth values", if it takes these alone; else ""."""
    result = []
    for given in onnx.defs.get_schema(op, version, domain).inputs:
        integers = all(re.fullmatch(r"tensor\(u?int\d+\)", t) for t in given.types)
        result.append("integers" if integers else "truth values" if {*given.types} == {"tensor(bool)"} else "")
    return result


def defaults(schema: onnx.defs.OpSchema) -> dict[str, object]:
    """The defaults of attributes."""
    found = {}
    for name, a in schema.attributes.items():
        if a.default_value is not None and a.default_value.type:
            value = onnx.helper.get_attribute_value(a.default_value)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def body(
    schema: onnx.defs.OpSchema,
    proto: onnx.NodeProto,
    opset: int,
    operands: Sequence[Datum],
    outer: Mapping[str, Attribute],
) -> onnx.FunctionProto:
    """The FunctionProto of a composite. `outer` are the attributes of the function in
    which it is. Raises Violation when the schema has none for these operands."""
    if schema.has_function:
        older = [v for v in schema.function_opset_versions if v <= opset]
        if older:
            return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(older)))
    types = [b"" if x is None else _type_proto(x).SerializeToString() for x in operands]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        raise refused(f"{proto.op_type} has no function body for operator set {opset}")
    plain = onnx.NodeProto()
    plain.CopyFrom(proto)
    for k, x in enumerate(operands):
        if x is None:
            plain.input[k] = ""  # a parameter of a function that its call leaves out
    if any(a.ref_attr_name for a in proto.attribute):
        del plain.attribute[:]
        given = [(a, outer.get(a.ref_attr_name) if a.ref_attr_name else a) for a in proto.attribute]
        result = (x if x is a else onnx.helper.make_attribute(a.name, x) for a, x in given if x is not None)
        plain.attribute.extend(result)
    result = schema.get_context_dependent_function_with_opset_version(max(versions), plain.SerializeToString(), types)
    return onnx.FunctionProto.FromString(result)


def malformed(proto: onnx.NodeProto, values: Mapping[str, Datum], opsets: Mapping[str, int], version: int) -> str:
    """What ONNX's checker, or its inference of types, finds wrong with a node; "" if nothing. `version` is that of the
    format."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = version, dict(opsets)
    try:
        onnx.checker.check_node(proto, context)
    except onnx.checker.ValidationError as result:
        return _first_line(result, proto)
    known = {name: values.get(name) for name in proto.input if name}
    constant = [onnx.numpy_helper.from_array(x, n) for n, x in known.items() if isinstance(x, np.ndarray) and x.dtype != object]
    typed = [onnx.ValueInfoProto(name=n, type=_type_proto(x)) for n, x in known.items() if x is not None and x is not POISON]
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "one", typed, outputs, constant)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        whole = onnx.helper.make_model(graph, opset_imports=imports, ir_version=version)
        onnx.shape_inference.infer_shapes(whole, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as result:
        return _first_line(result, proto)
    return ""


def _first_line(error: Exception, proto: onnx.NodeProto) -> str:
    said = next(iter(str(error).strip().splitlines()), f"{proto.op_type} is malformed")
    return said.rpartition("InferenceError] ")[2]


def _type_proto(x: Datum) -> onnx.TypeProto:
    """The TypeProto of a datum; an empty sequence is one of f32."""
    if isinstance(x, Items):
        return onnx.helper.make_sequence_type_proto(_type_proto(x.items[0] if x.items else np.zeros(0, np.float32)))
    if isinstance(x, Tensor):
        dims = [d if isinstance(d, int) else d.name for d in x.shape]
        return onnx.helper.make_tensor_type_proto(NUMBERS[x.dtype], dims)
    assert x is not None
    dtype = SI64 if x.dtype == object else OF_NUMPY[x.dtype.name]
    return onnx.helper.make_tensor_type_proto(NUMBERS[dtype], list(x.shape))
