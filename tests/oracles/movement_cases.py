"""Operands and attributes of the ops that move elements: shapes, joins, indices, windows. See `cases`."""

from __future__ import annotations

import numpy as np

from ptir_tools.dialects.ptir.ops.scalars import Scalar
from tests.oracles.cases import RANKED, SHAPES, Drawn, draws, indices, plain
from tests.ptir.oracle import COMPLEX, DTYPES, sample


@draws("reshape")
def reshaped(dtype: str) -> Drawn:
    for shape, new in (
        ((3, 1, 5), (5, -1)), ((2, 0, 3), (0, 7)), ((), (1, 1)), ((7,), (7, 1)), ((0, 3), (-1, 3)), ((2, 1, 3, 4), (4, 6)),
        ((2, 3, 1, 2, 3), (-1,)), ((1,), ()), ((3, 1031), (1031, 3)),
    ):  # fmt: skip
        yield (sample(dtype, shape),), {"new_shape": new}


@draws("transpose")
def transposed(dtype: str) -> Drawn:
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        perm = rng.permutation(len(shape)).tolist()
        yield (sample(dtype, shape),), {"perm": tuple(a - len(shape) if a % 2 else a for a in perm)}


@draws("broadcast_to")
def broadcast(dtype: str) -> Drawn:
    for shape, result in (
        ((3, 1), (2, 3, 5)), ((1, 0), (4, 0)), ((), ()), ((), (2, 3)), ((1,), (0,)), ((1,), (7,)), ((5,), (5,)),
        ((1, 1, 3), (2, 4, 3)), ((2, 1, 3, 1, 1), (2, 2, 3, 1, 5)), ((1, 1), (3, 1031)),
    ):  # fmt: skip
        yield (sample(dtype, shape),), {"result_shape": result}


@draws("slice")
def sliced(dtype: str) -> Drawn:
    for shape in SHAPES:
        starts = tuple(n // 3 for n in shape)
        yield (sample(dtype, shape),), {"starts": starts, "sizes": tuple(n - s for n, s in zip(shape, starts, strict=True))}
        yield (sample(dtype, shape),), {"starts": shape, "sizes": (0,) * len(shape)}


@draws("concat")
def joined(dtype: str) -> Drawn:
    for k, shape in enumerate(RANKED):
        axis = k % len(shape)
        parts = [(*shape[:axis], n, *shape[axis + 1 :]) for n in (shape[axis], 0, 2, 1)]
        yield ([sample(dtype, s, i) for i, s in enumerate(parts)],), {"axis": axis - len(shape) * (k % 2)}
    yield ([sample(dtype, (2, 3))],), {"axis": 0}


@draws("pad")
def padded(dtype: str) -> Drawn:
    value = Scalar("I1", True) if dtype == "i1" else Scalar("Complex", 1 - 2j) if dtype in COMPLEX else Scalar("Signed", 3)
    for shape in SHAPES:
        ones, more = (1,) * len(shape), tuple(range(len(shape)))
        yield (sample(dtype, shape),), {"low": ones, "high": more}
        yield (sample(dtype, shape),), {"low": more, "high": ones, "interior": tuple(k % 3 for k in more), "pad_value": value}


@draws("tile")
def tiled(dtype: str) -> Drawn:
    for shape in SHAPES:
        yield (sample(dtype, shape),), {"repeats": tuple((2, 1, 3, 0)[k % 3] for k in range(len(shape)))}
    yield (sample(dtype, (2, 3)),), {"repeats": (0, 2)}


@draws("constant")
def constants(dtype: str) -> Drawn:
    for shape in SHAPES:
        yield (), {"value": sample(dtype, shape)}
        yield (), {"value": np.broadcast_to(sample(dtype, ()), shape)}


@draws("iota")
def counted(dtype: str) -> Drawn:
    for k, shape in enumerate((*RANKED, (300, 2))):
        yield (), {"shape": shape, "dtype": DTYPES[dtype], "axis": k % len(shape) - len(shape) * (k % 2)}


@draws("take")
def taken(dtype: str) -> Drawn:
    for k, shape in enumerate(RANKED):
        for places in ((), (4,), (2, 0), (3, 2)):
            if shape[0] or 0 in places:
                yield (sample(dtype, shape), indices(places, shape[0], ("si32", "si64")[k % 2])), {}


@draws("gather")
def gathered(dtype: str) -> Drawn:
    for k, shape in enumerate(RANKED):
        axis = k % len(shape)
        for count in (shape[axis] + 2, 1, 0):
            if shape[axis] or not count or 0 in shape[:axis] + shape[axis + 1 :]:
                places = (*shape[:axis], count, *shape[axis + 1 :])
                found = indices(places, shape[axis], ("si32", "si64")[k % 2])
                yield (sample(dtype, shape), found), {"axis": axis - len(shape) * (k % 2)}


@draws("dynamic_slice")
def dynamically_sliced(dtype: str) -> Drawn:
    for k, shape in enumerate(SHAPES):
        sizes = tuple(n // 2 + n % 2 for n in shape)
        for low, high in ((0, 3), (-9, 9)):  # starts are clamped
            start = np.random.default_rng(k).integers(low, high, len(shape)).astype((np.int32, np.int64)[k % 2])
            yield (sample(dtype, shape), start), {"sizes": sizes}


@draws("dynamic_update_slice")
def dynamically_updated(dtype: str) -> Drawn:
    for (x, start), attrs in dynamically_sliced(dtype):
        yield (x, sample(dtype, attrs["sizes"], 1), start), attrs


@draws("scatter_reduce")
def scattered(dtype: str) -> Drawn:
    for k, shape in enumerate(RANKED):
        axis = k % len(shape)
        for count in (shape[axis] + 3, 1, 0):
            if shape[axis] or not count or 0 in shape[:axis] + shape[axis + 1 :]:
                places = (*shape[:axis], count, *shape[axis + 1 :])
                found = indices(places, shape[axis], ("si32", "si64")[k % 2], k)
                yield (plain(dtype, shape), found, plain(dtype, places, 1)), {"axis": axis - len(shape) * (k % 2)}
                if k == 0:
                    yield (sample(dtype, shape), found, sample(dtype, places, 1)), {"axis": axis}


SCATTERS = (  # x, indices, updates; window axes of updates, inserted and scattered axes of x, the index vector's axis
    ((5, 4, 6), (3, 2), (3, 2, 3), (1, 2), (1,), (2, 1), 1),
    ((5, 3), (4, 1), (4, 3), (1,), (0,), (0,), 1),
    ((5, 3), (4,), (4, 3), (1,), (0,), (0,), None),
    ((7,), (0, 1), (0,), (), (0,), (0,), -1),
    ((5, 4, 6), (2, 3), (2, 3, 3), (0, 2), (0,), (2, 0), 0),
    ((5, 4), (), (2, 3), (0, 1), (), (1,), None),
    ((4, 5, 2), (3, 2, 2), (3, 1, 2, 2), (1, 3), (1,), (0, 1), 1),
    ((), (0,), (), (), (), (), 0),
)


@draws("scatter_add")
def added(dtype: str) -> Drawn:
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "index_vector_dim")
    for k, (x, i, u, *numbers) in enumerate(SCATTERS):
        window = [u[a] for a in sorted(a % len(u) for a in numbers[0])]
        kept = [a for a in range(len(x)) if a not in numbers[1]]
        extent = dict(zip(kept, window, strict=True))
        room = min((x[a] - extent.get(a, 1) + 1 for a in numbers[2]), default=1)
        found = indices(i, room, ("si32", "si64")[k % 2])
        yield (plain(dtype, x), found, plain(dtype, u, 1)), dict(zip(names, numbers, strict=True))


WINDOWS = (  # shape, window, strides, padding, base dilation, window dilation
    ((4, 5), (2, 2), (2, 1), ((1, 0), (0, 2)), (1, 1), (1, 1)),
    ((4, 5), (2, 3), (1, 2), ((0, 1), (2, 2)), (2, 1), (1, 2)),
    ((5,), (3,), (1,), ((0, 0),), (1,), (1,)),
    ((), (), (), (), (), ()),
    ((0, 3), (1, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    ((3,), (2,), (1,), ((4, 0),), (3,), (1,)),
    ((0,), (3,), (3,), ((1, 2),), (2,), (1,)),
    ((1, 3, 3, 2), (1, 2, 2, 1), (1, 1, 1, 1), ((0, 0), (2, 2), (1, 1), (0, 0)), (1, 1, 1, 1), (1, 2, 1, 1)),
    ((2, 2, 3, 1, 3), (1, 2, 1, 1, 2), (1, 1, 2, 1, 1), ((0, 0), (0, 1), (0, 0), (1, 1), (0, 2)), (1, 2, 1, 3, 2),
     (2, 1, 1, 1, 2)),
    ((3, 203), (1, 7), (1, 3), ((0, 0), (3, 3)), (1, 1), (1, 2)),
)  # fmt: skip


@draws("reduce_window")
def windowed(dtype: str) -> Drawn:
    names = ("window_dims", "strides", "padding", "base_dilation", "window_dilation")
    for shape, *lists in WINDOWS:
        yield (plain(dtype, shape),), dict(zip(names, lists, strict=True))
    yield (sample(dtype, (4, 5)),), dict(zip(names, WINDOWS[0][1:], strict=True))


@draws("extract_patches")
def patched(dtype: str) -> Drawn:
    value = Scalar("I1", True) if dtype == "i1" else Scalar("Complex", 2j) if dtype in COMPLEX else Scalar("Signed", 1)
    yield (sample(dtype, (2, 4, 5, 3)),), {"window": (2, 3), "strides": (2, 1), "dilation": (1, 2), "padding": ((1, 0), (0, 2))}
    yield (sample(dtype, (2, 5, 2)),), {"window": (2,), "padding": ((3, 3),), "pad_value": value}
    yield (sample(dtype, (1, 2, 3, 2, 1)),), {"window": (2, 2, 1), "strides": (1, 1, 2)}
    yield (sample(dtype, (0, 3, 1)),), {"window": (2,)}
    yield (sample(dtype, (1, 3, 0)),), {"window": (2,)}


@draws("segment_reduce")
def segmented(dtype: str) -> Drawn:
    for k, shape in enumerate(RANKED):
        for segments in (1, 4):
            ids = indices(shape[:1], segments, ("si32", "si64")[k % 2], k)
            yield (plain(dtype, shape), ids), {"num_segments": segments}
            yield (plain(dtype, shape), np.sort(ids)), {"num_segments": segments + 1, "indices_are_sorted": True}
    yield (sample(dtype, (9, 2)), indices((9,), 3)), {"num_segments": 3}
    yield (sample(dtype, (0, 2)), indices((0,), 1)), {"num_segments": 0}
