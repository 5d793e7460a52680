"""The codes for errors in intervals and plans that are read from files."""

from ptir_tools.core.dialect import Code

EXPLAIN = (
    Code(
        "InvalidInterval",
        "A line of a CSV of intervals is malformed. The first line is `id,lower,upper,size`. The three numbers are integers, "
        "lower is below upper (the range is half-open), size is not negative, and an id occurs once.",
        wrong="id,lower,upper,size\na,4,4,64\n",
        right="id,lower,upper,size\na,4,5,64\n",
    ),
    Code(
        "InvalidSharding",
        "A `--shard` does not fit. No input, result or value has the name. Or it gives more axes than the value has, the mesh "
        "has no such axis, or an axis of the mesh is used twice. Or an extent is not divided into equal parts.",
        wrong="func @main(%x: tensor<f32, 6>) -> tensor<f32, 6> {\n  %y = neg(%x) -> tensor<f32, 6>\n  return %y\n}\n",
        right="func @main(%x: tensor<f32, 8>) -> tensor<f32, 8> {\n  %y = neg(%x) -> tensor<f32, 8>\n  return %y\n}\n",
    ),
    Code(
        "InvalidPlan",
        "A plan does not fit the program. A value is missing, has too few bytes, or ends before its last use. Or "
        "it shares storage that it may not share, is misaligned, reaches beyond the stated peak, or overlaps another live value.",
    ),
)
