"""Functions of jax.numpy, jax.nn, jax.lax and jax.random, and gradients: lowered, read, run, and held to JAX itself."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ptir_tools as ptir
from ptir_tools.core import arrays
from tests.suites.report import ENGINES, Report

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def _normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _positive(*shape: int) -> Any:
    return np.abs(_normal(*shape)) + np.float32(0.1)


def _numbers(low: int, high: int, *shape: int, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


X, Y, Z = _normal(4, 6), _normal(6, 5, seed=1), _normal(4, 6, seed=2)
KEY = np.array([0, 42], np.uint32)


def _attention(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]).astype(np.float32)
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v)


def _rope(x: Any) -> Any:
    angle = jnp.arange(x.shape[0])[:, None] * (1.0 / 10000 ** (jnp.arange(0, x.shape[1], 2) / x.shape[1]))
    a, b = x[:, 0::2], x[:, 1::2]
    return jnp.stack([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1).reshape(x.shape)


def _layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _rnn(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w + h)
        return h, h.sum()

    return lax.scan(step, jnp.zeros(w.shape[1]), xs)


def _pool(x: Any, kind: Any, start: Any) -> Any:
    return lax.reduce_window(x, start, kind, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


def _conv(x: Any, w: Any, **options: Any) -> Any:
    options = {"padding": "SAME", **options}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), window_strides=(1, 1), **options)


def _gradient(f: Callable[..., Any], *where: int) -> Callable[..., Any]:
    return jax.grad(lambda *xs: jnp.sum(jnp.square(f(*xs))), argnums=where or (0,))


IMAGE, KERNEL = _normal(2, 7, 8, 4), _normal(3, 3, 4, 6, seed=1)
HEADS = tuple(_normal(2, 5, 3, 4, seed=s) for s in range(3))
SYMMETRIC = (X @ X.T + 4 * np.eye(4)).astype(np.float32)
WHOLE = _numbers(-50, 50, 4, 6)

CASES: dict[str, Case] = {
    "matmul": (jnp.matmul, (X, Y)),
    "einsum": (lambda a, b: jnp.einsum("ij,jk->ki", a, b), (X, Y)),
    "softmax": (jax.nn.softmax, (X,)),
    "log_softmax_grad": (_gradient(jax.nn.log_softmax), (X,)),
    "gelu": (jax.nn.gelu, (X,)),
    "gelu_exact_grad": (_gradient(lambda x: jax.nn.gelu(x, approximate=False)), (X,)),
    "silu_relu_elu_softplus": (lambda x: (jax.nn.silu(x), jax.nn.relu(x), jax.nn.elu(x), jax.nn.softplus(x)), (X,)),
    "layer_norm": (_layer_norm, (X,)),
    "layer_norm_grad": (_gradient(_layer_norm), (X,)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=1), (X,)),
    "attention": (_attention, HEADS),
    "attention_grad": (_gradient(_attention, 0, 1, 2), HEADS),
    "dot_product_attention": (jax.nn.dot_product_attention, HEADS),
    "rope": (_rope, (X,)),
    "one_hot_embedding": (lambda t, i: (jax.nn.one_hot(i, 7), t[i]), (X, _numbers(0, 4, 5))),
    "embedding_grad": (jax.grad(lambda t, i: jnp.sum(t[i] ** 2)), (X, _numbers(0, 4, 5))),
    "cumulative": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1), lax.cumlogsumexp(x, 0)), (X,)),
    "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), -jnp.sort(-x)), (X,)),
    "sort_keys": (lambda a, b: lax.sort((a, b, b + 1), num_keys=2), (_numbers(0, 3, 20), _numbers(0, 9, 20))),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(x)), (X,)),
    "top_k": (lambda x: lax.top_k(x, 3), (X,)),
    "where_clip": (lambda x: jnp.where(x > 0, jnp.clip(x, 0.1, 1), -x), (X,)),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 1), (X, _numbers(0, 6, 4, 2))),
    "take_out_of_bounds": (lambda x, i: jnp.take(x, i, axis=1), (X, _numbers(-9, 9, 5))),
    "at_set_add": (lambda x, i: (x.at[i].set(1.0), x.at[:, i].add(2.0), x.at[i, i].max(0.5)), (X, _numbers(0, 6, 3) % 4)),
    "at_multiply": (lambda x, i: (x.at[i].multiply(2.0), x.at[i].min(0.0)), (X, np.array([0, 2, 2, 9], np.int32))),
    "dynamic_slice": (
        lambda x, i: (lax.dynamic_slice(x, (i, 1), (2, 3)), lax.dynamic_update_slice(x, x[:2] * 0, (i, 0))),
        (X, np.int32(3)),
    ),
    "pad_modes": (lambda x: tuple(jnp.pad(x, ((1, 2), (2, 1)), m) for m in ("constant", "edge", "reflect", "wrap")), (X,)),
    "roll_flip_tile": (lambda x: (jnp.roll(x, 2, 1), jnp.flip(x), jnp.tile(x, (2, 1)), jnp.repeat(x, 2, 0)), (X,)),
    "strides": (lambda x: (x[::2, ::-1], x[1:, 1::3]), (X,)),
    "integers": (lambda a: (a // 7, a % 7, a // -7, jnp.abs(a), a**2, jnp.sign(a), lax.rem(a, 7)), (WHOLE,)),
    "float_mod": (lambda x: (x % 0.7, jnp.fmod(x, 0.7), jnp.floor_divide(x, 0.7)), (X,)),
    "power": (lambda x, y: (x**y, jnp.sqrt(x), lax.rsqrt(x), jnp.cbrt(x), jnp.log1p(x), jnp.expm1(x)), (_positive(4, 6), Z)),
    "trigonometry": (
        lambda x, y: (jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan2(x, y), jnp.arctan(x), jnp.hypot(x, y)),
        (X, Z),
    ),
    "inverse_functions": (
        lambda x: (jnp.arcsin(x), jnp.arccos(x), jnp.arctanh(x), jnp.arcsinh(x), jnp.arccosh(1 + x * x)),
        (np.tanh(X),),
    ),
    "hyperbolic_grad": (_gradient(lambda x: jnp.sinh(x) + jnp.cosh(x) * jnp.tanh(x)), (X,)),
    "special": (lambda x: (jax.scipy.special.erf(x), jax.scipy.special.erfc(x), jax.scipy.special.erfinv(jnp.tanh(x))), (X,)),
    "gamma": (lambda x: (jax.scipy.special.gammaln(x), jax.scipy.special.digamma(x)), (_positive(4, 6),)),
    "rounding": (lambda x: (jnp.round(x), jnp.floor(x), jnp.ceil(x), jnp.trunc(x), jnp.sign(x)), (4 * X,)),
    "bits": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 3, a >> 2, lax.population_count(a), lax.clz(a)), (WHOLE, WHOLE[::-1])),
    "casts": (
        lambda a: (a.astype(jnp.int8), a.astype(jnp.uint32), a.astype(jnp.bfloat16), a.astype(bool)),
        (_numbers(-500, 500, 4, 6),),
    ),
    "half_precision": (lambda x: (x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16), jnp.exp(x.astype(jnp.float16))), (X,)),
    "bitcast": (lambda x: (lax.bitcast_convert_type(x, jnp.int32), lax.bitcast_convert_type(x, jnp.uint8)), (X,)),
    "fft": (lambda x: (jnp.fft.fft(x), jnp.fft.ifft(x), jnp.fft.rfft(x), jnp.fft.fft2(x)), (X,)),
    "irfft": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), (_normal(3, 96),)),
    "complex": (
        lambda x, y: (jnp.abs(x + 1j * y), jnp.angle(x + 1j * y), ((x + 1j * y) * (y - 1j * x)).real, jnp.conj(x + 1j)),
        (X, Z),
    ),
    "cholesky": (jnp.linalg.cholesky, (SYMMETRIC,)),
    "solve_triangular": (lambda a, b: jax.scipy.linalg.solve_triangular(jnp.tril(a), b, lower=True), (SYMMETRIC, X)),
    "norm_var_median": (lambda x: (jnp.linalg.norm(x), jnp.var(x, 0), jnp.std(x), jnp.median(x, 1), jnp.percentile(x, 30)), (X,)),
    "diagonals": (lambda x: (jnp.trace(x), jnp.diag(x), jnp.tril(x), jnp.kron(x[:2, :2], x[:2]), jnp.outer(x[0], x[1])), (X,)),
    "convolution": (_conv, (IMAGE, KERNEL)),
    "convolution_grad": (_gradient(_conv, 0, 1), (IMAGE, KERNEL)),
    "depthwise": (lambda x, w: _conv(x, w, feature_group_count=4), (IMAGE, _normal(3, 3, 1, 8))),
    "dilated": (lambda x, w: _conv(x, w, rhs_dilation=(2, 1), lhs_dilation=(1, 2), padding=((2, 1), (-1, 2))), (IMAGE, KERNEL)),
    "conv_transpose": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (IMAGE, KERNEL)),
    "max_pool": (lambda x: _pool(x, lax.max, -jnp.inf), (IMAGE,)),
    "max_pool_grad": (_gradient(lambda x: _pool(x, lax.max, -jnp.inf)), (IMAGE,)),
    "average_pool_grad": (_gradient(lambda x: _pool(x, lax.add, 0.0)), (IMAGE,)),
    "scan": (_rnn, (_normal(5, 5), _normal(3, 5))),
    "scan_grad": (_gradient(lambda w, xs: _rnn(w, xs)[1]), (_normal(5, 5), _normal(3, 5))),
    "while_loop": (
        lambda x: lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * 2 + 1, c[1] + 1), (x, 0)),
        (np.float32(1.5),),
    ),
    "fori_cond_switch": (
        lambda x, i: lax.fori_loop(
            0, 4, lambda k, v: lax.switch(i + k, [jnp.sin, lambda u: u * lax.cond(k > 2, lambda: 2.0, lambda: 3.0)], v), x
        ),
        (X, np.int32(0)),
    ),
    "map_vmap": (lambda x: (lax.map(lambda r: r @ r, x), jax.vmap(jnp.dot)(x, x)), (X,)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.maximum, x, axis=1), (X,)),
    "jvp": (lambda x, y: jax.jvp(lambda v: jnp.sin(v) * v, (x,), (y,)), (X, Z)),
    "hessian": (jax.hessian(lambda v: jnp.sum(jnp.sin(v) ** 3)), (X[0],)),
    "uniform": (lambda k: jax.random.uniform(k, (5, 3)), (KEY,)),
    "normal": (lambda k: jax.random.normal(k, (7,)), (KEY,)),
    "randint_bernoulli": (lambda k: (jax.random.randint(k, (9,), 0, 100), jax.random.bernoulli(k, 0.3, (9,))), (KEY,)),
    "permutation": (lambda k: (jax.random.permutation(k, 10), jax.random.split(k, 3), jax.random.fold_in(k, 7)), (KEY,)),
    "categorical_gumbel": (lambda k, x: (jax.random.categorical(k, x), jax.random.gumbel(k, (4,))), (KEY, X)),
    "truncated_exponential": (lambda k: (jax.random.truncated_normal(k, -1, 1, (6,)), jax.random.exponential(k, (6,))), (KEY,)),
    "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i, 5), (X, np.array([0, 2, 2, 4], np.int32))),
    "bincount_searchsorted": (
        lambda i, x: (jnp.bincount(i, length=5), jnp.searchsorted(jnp.sort(x), x)),
        (_numbers(0, 5, 9), X[0]),
    ),
    "interp_convolve": (lambda x, y: (jnp.interp(x, jnp.arange(6.0), y), jnp.convolve(x, y)), (X[0], X[1])),
    "nan_functions": (
        lambda x: (jnp.nanmean(jnp.where(x > 1, jnp.nan, x)), jnp.isfinite(1 / x), jnp.nan_to_num(x / 0 * 0)),
        (X,),
    ),
    "batch_matmul_grad": (_gradient(jnp.matmul, 0, 1), (_normal(3, 4, 5), _normal(3, 5, 2))),
    "complex_exponential": (lambda x, y: (jnp.exp(1j * x) * y).imag, (X, Z)),
    "logaddexp_sinc": (lambda x, y: (jnp.logaddexp(x, y), jnp.logaddexp2(x, y), jnp.sinc(x), jnp.exp2(x)), (X, Z)),
    "logs": (lambda x: (jnp.log2(x), jnp.log10(x), jnp.square(x), jnp.reciprocal(x)), (_positive(4, 6),)),
    "angles": (lambda x: (jnp.deg2rad(x), jnp.rad2deg(x), jnp.unwrap(x, axis=1)), (X,)),
    "signs": (lambda x, y: (jnp.copysign(x, y), jnp.signbit(x), jnp.heaviside(x, 0.5), jnp.fmax(x, y), jnp.fmin(x, y)), (X, Z)),
    "nextafter": (lambda x, y: jnp.nextafter(x, y), (X, Z)),
    "frexp_ldexp": (lambda x: jnp.ldexp(x, 3), (X,)),
    "mish_swish": (
        lambda x: (jax.nn.mish(x), jax.nn.swish(x), jax.nn.hard_swish(x), jax.nn.hard_tanh(x), jax.nn.hard_sigmoid(x)),
        (X,),
    ),
    "selu_celu_glu": (lambda x: (jax.nn.selu(x), jax.nn.celu(x), jax.nn.glu(x), jax.nn.relu6(x), jax.nn.leaky_relu(x)), (X,)),
    "soft_sign_sparse": (
        lambda x: (jax.nn.soft_sign(x), jax.nn.sparse_plus(x), jax.nn.squareplus(x), jax.nn.log_sigmoid(x)),
        (X,),
    ),
    "standardize": (lambda x: (jax.nn.standardize(x), jax.nn.logmeanexp(x, axis=1)), (X,)),
    "softmax_where": (lambda x: jax.nn.softmax(x, where=jnp.arange(6) < 4), (X,)),
    "gelu_hessian": (jax.hessian(lambda v: jnp.sum(jax.nn.gelu(v))), (X[0],)),
    "jacobians": (lambda v: (jax.jacfwd(jnp.tanh)(v), jax.jacrev(lambda u: jnp.cumsum(u) ** 2)(v)), (X[0],)),
    "checkpoint_grad": (_gradient(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))), (X,)),
    "custom_jvp_grad": (_gradient(lambda x: jax.nn.relu(x) + jax.numpy.logaddexp(x, 0.0)), (X,)),
    "vmap_conv": (jax.vmap(lambda x, w: _conv(x[None], w)[0], (0, None)), (IMAGE, KERNEL)),
    "group_convolution": (lambda x, w: _conv(x, w, feature_group_count=2), (IMAGE, _normal(3, 3, 2, 6))),
    "batch_group_convolution": (lambda x, w: _conv(x, w, batch_group_count=2), (IMAGE, KERNEL)),
    "convolution_1d": (
        lambda x, w: lax.conv_general_dilated(x, w, (2,), [(1, 2)], dimension_numbers=("NWC", "WIO", "NWC")),
        (_normal(2, 9, 4), _normal(3, 4, 5)),
    ),
    "convolution_3d": (lambda x, w: lax.conv(x, w, (1, 2, 1), "SAME"), (_normal(1, 2, 4, 5, 6), _normal(3, 2, 2, 3, 2))),
    "min_pool": (lambda x: _pool(x, lax.min, jnp.inf), (IMAGE,)),
    "cumulative_windows": (lambda x: (lax.cumsum(x, 0, reverse=True), lax.cummin(x, 1, reverse=True)), (X,)),
    "reductions": (lambda x: (x.sum(), x.prod(0), x.max(1), x.min(), jnp.ptp(x, 0), jnp.average(x, 1, X[0])), (X,)),
    "logical_reductions": (lambda x: (jnp.any(x > 1, 0), jnp.all(x > -2, 1), jnp.count_nonzero(x > 0), jnp.allclose(x, x)), (X,)),
    "nan_reductions": (
        lambda x: (jnp.nansum(x), jnp.nanmax(x, 0), jnp.nanmin(x, 1), jnp.nanstd(x)),
        (np.where(X > 1, np.nan, X),),
    ),
    "quantiles": (lambda x: (jnp.quantile(x, 0.25, axis=1), jnp.nanmedian(x, 0)), (X,)),
    "covariance": (lambda x: (jnp.cov(x), jnp.corrcoef(x)), (X,)),
    "histogram": (lambda x: jnp.histogram(x, bins=5, range=(-2, 2))[0], (X,)),
    "digitize": (lambda x: jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0])), (X,)),
    "stacking": (lambda x, y: (jnp.stack([x, y], 1), jnp.vstack([x, y]), jnp.hstack([x, y]), jnp.dstack([x, y])), (X, Z)),
    "splitting": (lambda x: (*jnp.split(x, 3, 1), *jnp.array_split(x, 3, 0)), (X,)),
    "moving_axes": (lambda x: (jnp.moveaxis(x, 0, 2), jnp.swapaxes(x, 1, 3), jnp.rollaxis(x, 2), jnp.rot90(x)), (IMAGE,)),
    "squeezing": (lambda x: (x[None].squeeze(0), jnp.expand_dims(x, (0, 3)), jnp.atleast_3d(x), x.ravel()), (X,)),
    "choices": (lambda x, y: (jnp.select([x > 1, y > 0], [x, y], 7.0), jnp.piecewise(x, [x < 0], [jnp.abs, jnp.sin])), (X, Z)),
    "triangles": (lambda x: (jnp.triu(x, 1), jnp.tril(x, -1), jnp.vander(x[0], 4), jnp.eye(4, 6, 1) + x), (X,)),
    "meshgrid": (lambda x, y: jnp.meshgrid(x, y), (X[0], X[1])),
    "tensordot": (lambda a, b: (jnp.tensordot(a, b, 1), jnp.inner(a, a), jnp.vdot(a, a)), (X, Y)),
    "einsum_batched": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), (_normal(3, 4, 5), _normal(3, 6, 5))),
    "einsum_trace": (lambda a: (jnp.einsum("ii->i", a), jnp.einsum("ii", a)), (SYMMETRIC,)),
    "matrix_power": (lambda a: jnp.linalg.matrix_power(a / 8, 5), (SYMMETRIC,)),
    "cross": (jnp.cross, (X[:, :3], Z[:, :3])),
    "polynomials": (lambda x: (jnp.polyval(jnp.array([1.0, -2.0, 0.5]), x), jnp.gradient(x, axis=1), jnp.diff(x, 2)), (X,)),
    "trapezoid": (lambda x: jnp.trapezoid(x, axis=1), (X,)),
    "integer_bits": (lambda a: (jnp.left_shift(a, 2), jnp.bitwise_count(a), jnp.invert(a)), (WHOLE,)),
    "division": (lambda a: (jnp.divmod(a, 7), jnp.remainder(a, -7), jnp.floor_divide(a, 4)), (WHOLE,)),
    "packing_bits": (lambda a: jnp.packbits(a > 0, axis=1), (WHOLE,)),
    "unsigned": (lambda a: (a // 3, a % 5, a >> 1, a * a), (_numbers(0, 1 << 30, 4, 6, dtype=np.uint32),)),
    "gather_nd": (lambda x, i: x[i, i + 1], (X, _numbers(0, 4, 5))),
    "lexsort": (lambda a, b: jnp.lexsort((a, b)), (_numbers(0, 3, 20), _numbers(0, 3, 20))),
    "partition": (lambda x: jnp.sort(jnp.partition(x, 2)[:, :2]), (X,)),
    "segment_max": (
        lambda x, i: (jax.ops.segment_max(x, i, 4), jax.ops.segment_prod(x, i, 4)),
        (X, np.array([0, 1, 1, 3], np.int32)),
    ),
    "scatter_add_grad": (_gradient(lambda x, u: x.at[jnp.array([0, 2, 2])].add(u), 0, 1), (X, Z[:3])),
    "sort_grad": (_gradient(lambda x: jnp.sort(x, 1) * jnp.arange(6)), (X,)),
    "cumprod_grad": (_gradient(lambda x: jnp.cumprod(x, 1)), (X,)),
    "top_k_grad": (_gradient(lambda x: lax.top_k(x, 2)[0]), (X,)),
    "solve_grad": (_gradient(lambda a, b: jax.scipy.linalg.solve_triangular(jnp.tril(a), b, lower=True), 0, 1), (SYMMETRIC, X)),
    "nested_scan": (
        lambda x: lax.scan(lambda c, r: lax.scan(lambda d, v: (d + v, d * v), c, r), np.float32(0), x),
        (X,),
    ),
    "while_in_cond": (
        lambda x, k: lax.cond(k > 0, lambda v: lax.fori_loop(0, k, lambda _, u: u * 1.5, v), lambda v: -v, x),
        (X, np.int32(3)),
    ),
    "xlogy_entropies": (
        lambda x, y: (jax.scipy.special.xlogy(x, y), jax.scipy.special.xlog1py(x, y), jax.scipy.special.entr(x)),
        (_positive(4, 6), _positive(4, 6) + 1),
    ),
    "logit_expit": (
        lambda x: (jax.scipy.special.expit(x), jax.scipy.special.logit(jax.nn.sigmoid(x)), jax.scipy.special.ndtr(x)),
        (X,),
    ),
    "normal_density": (lambda x: (jax.scipy.stats.norm.logpdf(x), jax.scipy.stats.norm.cdf(x)), (X,)),
    "laplace_cauchy": (lambda k: (jax.random.laplace(k, (5,)), jax.random.cauchy(k, (5,)), jax.random.logistic(k, (5,))), (KEY,)),
    "choice": (lambda k: (jax.random.choice(k, 9, (4,)), jax.random.rademacher(k, (8,))), (KEY,)),
    "ragged_dot": (lax.ragged_dot, (_normal(7, 4), _normal(3, 4, 5), np.array([2, 4, 1], np.int32))),
}  # fmt: skip


def run(part: str = "", every: int = 1) -> Report:
    """The counts for the cases whose names have `part`, every so many of them."""
    return judge("jax.jit lowerings", CASES, part, every)


def judge(title: str, cases: dict[str, Case], part: str, every: int) -> Report:
    """The counts for cases."""
    report = Report(title)
    for name, case in [(n, c) for n, c in cases.items() if part in n][::every]:
        _one(name, case, report)
    return report


def _one(name: str, case: Case, report: Report) -> None:
    function, examples = case
    try:
        wanted = [np.asarray(x) for x in jax.tree_util.tree_leaves(jax.jit(function)(*examples))]
        program = ptir.from_jax(function, *examples)
        for engine in ENGINES:
            found = list(ptir.run(program, [np.asarray(x) for x in examples], engine=engine).values())
            problem = next((p for x, y in zip(found, wanted, strict=True) if (p := difference(x, y))), None)
            if problem:
                report.wrong[name] = f"{engine}: {problem}"
                return
        report.right.append(name)
    except ptir.Rejected as error:
        report.refused[name] = f"{error.diagnostics[0].code}: {error.diagnostics[0].message}"
    except Exception as error:
        report.errors[name] = f"{type(error).__name__}: {error} " + " ".join(traceback.format_exc().strip().splitlines()[-4:-1])


def difference(x: Any, y: Any) -> str | None:
    """How two arrays differ, beyond some units in the last place of the largest value; None when they do not."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return f"{x.dtype}{list(x.shape)} is no {y.dtype}{list(y.shape)}"
    if x.dtype.kind in "biu":
        return None if np.array_equal(x, y) else f"{np.count_nonzero(x != y)} of {x.size} elements differ"
    a, b = arrays.widen(x), arrays.widen(y)
    finite = np.abs(b[np.isfinite(b)])
    largest = max(1.0, float(finite.max())) if finite.size else 1.0
    with np.errstate(all="ignore"):
        wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= 32 * float(jnp.finfo(x.dtype).eps) * largest))
    return (
        f"{np.count_nonzero(wrong)} of {x.size} elements differ by up to {np.nanmax(np.abs(a - b)):g}" if np.any(wrong) else None
    )
