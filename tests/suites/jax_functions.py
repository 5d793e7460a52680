"""Functions of jax by their names, each in one call, and gradients and batches of them: a suite of breadth next to `jax`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.suites.jax import IMAGE, KEY, SYMMETRIC, WHOLE, Case, X, Z, _gradient, _normal, _numbers, _positive, judge
from tests.suites.report import Report

scipy = jax.scipy
SMALL, POSITIVE, UNIT = np.tanh(X), _positive(4, 6), (np.tanh(_positive(4, 6)) * 0.9).astype(np.float32)
COUNTS, SQUARE, STACK = _numbers(1, 20, 4, 6), _normal(4, 4, seed=3), _normal(3, 4, 4, seed=4)
ROWS, PLACES = _numbers(0, 4, 3), _numbers(-9, 9, 5)

ONE = (
    "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arctanh exp exp2 expm1 floor ceil trunc rint round sign abs "
    "fabs negative positive square cbrt sinc deg2rad rad2deg isnan isinf isfinite isneginf isposinf signbit nan_to_num "
    "ravel sort argsort argmax argmin cumsum cumprod nancumsum nancumprod sum prod mean std var median ptp amax amin "
    "nansum nanprod nanmean nanstd nanvar nanmedian nanmax nanmin nanargmax nanargmin all any count_nonzero diff ediff1d "
    "fliplr flipud transpose matrix_transpose trace tril triu diagonal atleast_1d atleast_2d real imag conj angle i0 "
    "spacing zeros_like ones_like iscomplex isreal unwrap logical_not frexp modf"
)
TWO = (
    "add subtract multiply divide floor_divide mod remainder fmod maximum minimum fmax fmin arctan2 hypot logaddexp "
    "logaddexp2 copysign nextafter heaviside greater greater_equal less less_equal equal not_equal logical_and "
    "logical_or logical_xor isclose allclose array_equal divmod inner outer kron append vdot"
)
WHOLE_NUMBERS = (
    "gcd lcm bitwise_and bitwise_or bitwise_xor left_shift right_shift floor_divide mod remainder fmod divmod power "
    "maximum minimum add multiply subtract"
)
ACTIVATIONS = (
    "relu relu6 sigmoid softplus sparse_plus sparse_sigmoid soft_sign silu log_sigmoid leaky_relu hard_sigmoid hard_silu "
    "hard_tanh tanh elu celu selu gelu glu squareplus mish identity log_softmax softmax standardize logsumexp"
)
SPECIAL = (
    "erf erfc erfinv gammaln digamma expit ndtr log_ndtr entr i0 i0e i1 i1e exp1 expi sici spence factorial gamma ndtri "
    "logit logsumexp softmax log_softmax"
)
SPECIAL_TWO = "gammainc gammaincc betaln beta xlogy xlog1py rel_entr kl_div poch"
GRADIENTS = "cumsum cumprod sort prod max min var std median abs ravel trace diff logaddexp"
DISTRIBUTIONS = "norm laplace logistic cauchy expon uniform gumbel_r"


def _named() -> dict[str, Case]:
    made: dict[str, Case] = {f"jnp.{n}": (getattr(jnp, n), (SMALL,)) for n in ONE.split()}
    made |= {
        f"jnp.{n}": (getattr(jnp, n), (POSITIVE + 1,)) for n in ("log", "log2", "log10", "log1p", "sqrt", "reciprocal", "arccosh")
    }
    made |= {f"jnp.{n}": (getattr(jnp, n), (X, Z)) for n in TWO.split()}
    made |= {f"whole.{n}": (getattr(jnp, n), (COUNTS, COUNTS[::-1] % 5)) for n in WHOLE_NUMBERS.split()}
    for n in ACTIVATIONS.split():
        f = getattr(jax.nn, n)
        made |= {f"nn.{n}": (f, (X,)), f"nn.{n}.grad": (_gradient(f), (X,)), f"nn.{n}.vmap": (jax.vmap(f), (X,))}
    made |= {f"special.{n}": (getattr(scipy.special, n), (UNIT,)) for n in SPECIAL.split()}
    made |= {f"special.{n}": (getattr(scipy.special, n), (UNIT + 0.5, UNIT[::-1] + 0.2)) for n in SPECIAL_TWO.split()}
    for d in DISTRIBUTIONS.split():
        functions = {n: getattr(getattr(scipy.stats, d), n, None) for n in ("pdf", "logpdf", "cdf")}
        made |= {f"stats.{d}.{n}": (f, (UNIT,)) for n, f in functions.items() if f is not None}
    made |= {f"grad.{n}": (_gradient(getattr(jnp, n)), (X, Z) if n == "logaddexp" else (X,)) for n in GRADIENTS.split()}
    made["random.beta"] = (lambda k: jax.random.beta(k, 2.0, 3.0, (4,))), (KEY,)
    made["random.gamma"] = (lambda k: jax.random.gamma(k, 2.0, (4,))), (KEY,)
    made["random.t"] = (lambda k: jax.random.t(k, 2.0, (4,))), (KEY,)
    return made


def _svd(a: jax.Array, whole: bool = False) -> tuple[jax.Array, ...]:
    """Singular values, what the factors give, and that their vectors are orthonormal: signs are free."""
    u, s, v = jnp.linalg.svd(a, full_matrices=whole)
    k = s.shape[-1]
    back = u[..., :k] * s[..., None, :] @ v[..., :k, :]
    return s, back, jnp.swapaxes(u, -1, -2) @ u, v @ jnp.swapaxes(v, -1, -2)


def _eigh(a: jax.Array) -> tuple[jax.Array, ...]:
    """Eigenvalues, the magnitudes of eigenvectors, and what they give."""
    w, v = jnp.linalg.eigh(a)
    return w, jnp.abs(v), v * w[..., None, :] @ jnp.swapaxes(v, -1, -2)


def _linear() -> dict[str, Case]:
    definite = STACK @ STACK.transpose(0, 2, 1) + np.eye(4, dtype=np.float32)
    return {
        "det": (jnp.linalg.det, (SQUARE,)),
        "slogdet": (jnp.linalg.slogdet, (SQUARE,)),
        "inv": (jnp.linalg.inv, (SYMMETRIC,)),
        "solve": (jnp.linalg.solve, (SYMMETRIC, X)),
        "expm": (scipy.linalg.expm, (SQUARE / 4,)),
        "lu": (scipy.linalg.lu, (SQUARE,)),
        "qr": (jnp.linalg.qr, (SQUARE,)),
        "qr_tall": (lambda a: jnp.linalg.qr(a.T, mode="complete"), (X,)),
        "qr_batch": (jnp.linalg.qr, (STACK,)),
        "qr_grad": (_gradient(lambda a: jnp.linalg.qr(a.T)[1]), (X,)),
        "inv_batch": (jnp.linalg.inv, (definite,)),
        "cholesky_batch": (jnp.linalg.cholesky, (definite,)),
        "inv_grad": (_gradient(jnp.linalg.inv), (SYMMETRIC,)),
        "det_grad": (_gradient(jnp.linalg.det), (SYMMETRIC,)),
        "cholesky_solve": (lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b), (SYMMETRIC, X)),
        "svd": (_svd, (X,)),
        "svd_tall": (_svd, (X.T,)),
        "svd_whole": (lambda a: _svd(a, whole=True), (X,)),
        "svd_deficient": (lambda a: _svd(a @ a.T @ a), (SQUARE[:, :2] @ SQUARE[:2],)),
        "svd_batch": (_svd, (STACK[..., :3],)),
        "singular_values": (lambda a: jnp.linalg.svd(a, compute_uv=False), (X,)),
        "eigh": (_eigh, (SYMMETRIC,)),
        "eigh_batch": (_eigh, (STACK + STACK.transpose(0, 2, 1),)),
        "eigh_odd": (_eigh, (SYMMETRIC[:3, :3],)),
        "eigvalsh_upper": (lambda a: jnp.linalg.eigvalsh(a, UPLO="U"), (SQUARE,)),
        "eigvalsh_grad": (_gradient(lambda a: jnp.linalg.eigvalsh(a)), (SYMMETRIC,)),
        "pinv": (jnp.linalg.pinv, (X,)),
        "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (X.T, Z[0])),
        "matrix_rank": (jnp.linalg.matrix_rank, (SQUARE[:, :2] @ SQUARE[:2],)),
        "norms": (lambda a: (jnp.linalg.norm(a, 2), jnp.linalg.norm(a, "nuc"), jnp.linalg.cond(a)), (SQUARE,)),
        "approx_max_k": (lambda a: lax.approx_max_k(a, 3), (X,)),
        "approx_min_k": (lambda a: lax.approx_min_k(a, 2, reduction_dimension=0), (X,)),
        "householder": (lambda a: lax.linalg.householder_product(a, a[0]), (SQUARE,)),
        "orthogonal": (lambda k: jax.random.orthogonal(k, 3), (KEY,)),
        "conjugate_gradients": (lambda a, b: scipy.sparse.linalg.cg(lambda v: a @ v, b)[0], (SYMMETRIC, X[:, 0])),
    }


def _others() -> dict[str, Case]:
    f32 = np.float32
    return {
        "zeta": (scipy.special.zeta, (UNIT + f32(1.5), UNIT)),
        "polygamma": (lambda x: scipy.special.polygamma(2, x), (UNIT,)),
        "betainc": (scipy.special.betainc, (UNIT + 1, UNIT[::-1] + 2, UNIT)),
        "bessel": (lax.bessel_i1e, (9 * X,)),
        "take": (lambda x, i: tuple(jnp.take(x, i, 1, mode=m) for m in ("wrap", "clip", "fill")), (X, PLACES)),
        "at": (lambda x, i: (x.at[i].get(mode="fill", fill_value=7), x.at[i].set(5.0, mode="drop")), (X, PLACES)),
        "at_apply": (lambda x, i: (x.at[i].apply(jnp.sin), x.at[i].power(2.0), x.at[i].divide(2.0)), (POSITIVE, ROWS)),
        "nonzero": (lambda x: jnp.nonzero(x > 0, size=10, fill_value=-1), (X,)),
        "unique": (lambda x: jnp.unique(x, size=8, return_counts=True, return_inverse=True), (_numbers(0, 9, 20),)),
        "sets": (lambda x, y: (jnp.union1d(x, y, size=9), jnp.isin(x, y)), (_numbers(0, 9, 5), _numbers(0, 9, 4))),
        "insert_delete": (lambda x: (jnp.insert(x, 2, 7.0, axis=1), jnp.delete(x, 2, axis=1), jnp.resize(x, (3, 5))), (X,)),
        "pads": (lambda x: tuple(jnp.pad(x, 2, m) for m in ("symmetric", "linear_ramp", "maximum", "mean")), (X,)),
        "windows": (lambda: (jnp.hanning(8), jnp.hamming(8), jnp.blackman(8), jnp.bartlett(8), jnp.kaiser(8, 2.0)), ()),
        "complex": (lambda x, y: tuple(f(x + 1j * y) for f in (jnp.sin, jnp.tanh, jnp.exp, jnp.log, jnp.sqrt, jnp.sinh)), (X, Z)),
        "complex_power": (lambda x, y: ((x + 1j * y) ** (y + 2j), (x + 1j * y) @ (y - 1j * x).T), (X, Z)),
        "fourier": (lambda x: (jnp.fft.fftn(x), jnp.fft.rfftn(x), jnp.fft.hfft(x), scipy.fft.dct(x), scipy.fft.idct(x)), (X,)),
        "reduce_pair": (
            lambda x: lax.reduce(
                (x, lax.iota(np.int32, 24).reshape(4, 6)),
                (f32(-np.inf), np.int32(-1)),
                lambda a, b: (lax.select(a[0] > b[0], a[0], b[0]), lax.select(a[0] > b[0], a[1], b[1])),
                (1,),
            ),
            (X,),
        ),
        "reduce_bits": (lambda x: (lax.reduce_xor(x, (0,)), lax.reduce(x > 3, False, lax.bitwise_or, (1,))), (COUNTS,)),
        "shift_far": (
            lambda a: (lax.shift_left(a, 40), lax.shift_right_logical(a, 40), lax.shift_right_arithmetic(a, 40)),
            (WHOLE,),
        ),
        "pad_negative": (lambda x: lax.pad(x, f32(1), ((1, 2, 1), (-1, 0, 2))), (X,)),
        "window_dilated": (
            lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 1), ((1, 0), (0, 1)), (1, 2), (2, 1)),
            (X,),
        ),
        "switch_outside": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), (np.int32(7), X)),
        "scan_reverse": (lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(6), x, reverse=True, unroll=2), (X,)),
        "while_vmap": (jax.vmap(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2 + 1, x)), (_positive(4),)),
        "fori_grad": (jax.grad(lambda x: lax.fori_loop(0, 4, lambda _, c: jnp.sin(c) * 1.1, x).sum()), (X,)),
        "integers_8": (
            lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32),
            (_numbers(-99, 99, 4, 6, dtype=np.int8), _numbers(-99, 99, 5, 6, dtype=np.int8)),
        ),
        "attention_grouped": (jax.nn.dot_product_attention, (_normal(2, 5, 4, 4), _normal(2, 5, 2, 4), _normal(2, 5, 2, 4))),
        "resize": (
            lambda x: tuple(jax.image.resize(x, (2, 10, 5, 4), m) for m in ("nearest", "linear", "cubic", "lanczos3")),
            (IMAGE,),
        ),
        "map_coordinates": (lambda x: scipy.ndimage.map_coordinates(x, [x[0], x[1]], 1), (X,)),
        "signals": (lambda a, b: (scipy.signal.convolve2d(a, b, "valid"), scipy.signal.correlate(a[0], b[0])), (X, Z[:2, :3])),
        "poisson": (lambda k: jax.random.poisson(k, 3.0, (4,)), (KEY,)),
        "ball": (lambda k: jax.random.ball(k, 3, shape=(2,)), (KEY,)),
        "binomial": (lambda k: jax.random.binomial(k, 5, 0.3, (4,)), (KEY,)),
        "vmap_gather": (jax.vmap(lambda x, i: x[i]), (X, _numbers(0, 6, 4, 2))),
        "vmap_scatter": (jax.vmap(lambda x, i: x.at[i].add(1.0)), (X, _numbers(0, 6, 4, 2))),
        "vmap_slice": (jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,))), (X, _numbers(0, 6, 4))),
        "products_of_derivatives": (lambda x, y: jax.jvp(jax.grad(lambda v: jnp.sum(jnp.sin(v) ** 3)), (x,), (y,))[1], (X, Z)),
        "narrow": (
            lambda x: (
                jax.nn.softmax(x.astype(jnp.bfloat16)),
                x.astype(jnp.float8_e4m3fn).astype(f32),
                x.astype(jnp.float16).sum(),
            ),
            (X,),
        ),
        "empty": (lambda x: (x[:0].sum(), jnp.concatenate([x[:0], x]), x[:0] @ x.T), (X,)),
        "unused": (lambda x, y: x + 1, (X, Z)),
    }


CASES: dict[str, Case] = {**_named(), **{f"linalg.{n}": case for n, case in _linear().items()}, **_others()}


def run(part: str = "", every: int = 1) -> Report:
    """The counts for the cases whose names have `part`, every so many of them."""
    return judge("functions of jax", CASES, part, every)
