"""Random tensors (contract: RngUniform, RngNormal): NumPy's Philox, keyed by seed, stream and the enclosing loops."""

from __future__ import annotations

from math import prod

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import PURE, RANDOM, InPlace, Op
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape, TensorType, tensor
from ptir_tools.dialects.ptir.ops.kinds import Context, Result
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, attribute, extents, rule, want

# Significant bits of the float dtypes: a uniform number is a multiple of 2 to minus this, so that none rounds to 1.


@rule
def random_type(*, shape: Shape, dtype: DType, stream: int | None) -> TensorType:
    """A float tensor of `shape`.

    DTypeNotSupported: `dtype` is not a float. InvalidAttributeValue: a negative stream.
    """
    want(dtype, FLOATS, "the dtype", at="dtype")
    attribute(stream is None or stream >= 0, f"stream {stream} is negative", "stream")
    return tensor(dtype, extents(shape, "shape"))


def random_stream(stream: int | None, drawing: Op | None, context: Context) -> np.random.Philox:
    """The random words of `stream`, another sequence for every iteration of the enclosing loops. Without a stream, the ordinal of
    the op `drawing` is used."""
    number = stream if stream is not None else context.streams.get(drawing, 0) if drawing is not None else 0
    key = (number, len(context.indices), *context.indices)
    return np.random.Philox(np.random.SeedSequence(context.seed % 2**64, spawn_key=key))


def random_words(count: int, stream: int | None, context: Context) -> Array:
    """`count` random 64-bit words for the op that is evaluated."""
    return random_stream(stream, context.op, context).random_raw(count)


def uniform_fractions(raw: Array, bits: int) -> Array:
    """Words as float64 in [0, 1), multiples of 2 to minus `bits`."""
    return (raw >> np.uint64(64 - bits)).astype(np.float64) * 2.0**-bits


@op("ptir.rng_uniform", infer=random_type, traits=PURE | RANDOM, error=errors.exact, inplace=InPlace("uniform"))
def rng_uniform(*, shape: Shape, dtype: DType, stream: int | None = None, context: Context, result: Result) -> Array:
    """Independent numbers, uniform in [0, 1). Contract: RngUniform.

    Element i is the top bits of word i of NumPy's Philox. The key is the run's seed, `stream` (absent: the op's ordinal among
    the random ops of the program) and the iteration numbers of the enclosing loops. It takes as many bits as the dtype has.
    """
    raw = random_words(prod(result.static_shape), stream, context)
    return arrays.narrow(uniform_fractions(raw, dtype.precision).reshape(result.static_shape), dtype)


@op("ptir.rng_normal", infer=random_type, traits=PURE | RANDOM, error=errors.pointwise(ulp=2), inplace=InPlace("normal"))
def rng_normal(*, shape: Shape, dtype: DType, stream: int | None = None, context: Context, result: Result) -> Array:
    """Independent numbers of the standard normal distribution. Contract: RngNormal.

    Words as in `rng_uniform`. For n elements, u is the first n words and v the next n, as numbers in [0, 1). The result is the
    Box–Muller transform `sqrt(-2 log(1 - u)) cos(2 pi v)` in float64, rounded to the dtype.
    """
    u, v = uniform_fractions(random_words(2 * prod(result.static_shape), stream, context), 53).reshape(2, *result.static_shape)
    return arrays.narrow(np.asarray(np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * np.pi * v)), dtype)
