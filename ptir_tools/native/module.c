/* The only file that knows Python: checks buffers, releases the GIL, calls kernels. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#include "common.h"
#include "isa.h"
#include "kernels.h"
#include "placement.h"

enum { MAX_ARRAYS = PTIR_REGISTERS };

static int fail(const char *message)
{
    PyErr_SetString(PyExc_ValueError, message);
    return 0;
}

/* Let a signal's handler run while a kernel works; whether it raised. `saved` is the thread's state, put away meanwhile. */
static int is_interrupted(void *saved)
{
    PyThreadState **state = saved;
    PyEval_RestoreThread(*state);
    int raised = PyErr_CheckSignals() != 0;
    *state = PyEval_SaveThread();
    return raised;
}

/* Take the buffer of `object`: `rank` axes (0: any) of one of `formats` ('f' f32, '?' i1, 'e' f16, 'H' the
 * bits of bf16), strides that are multiples of the item. */
static int take(PyObject *object, Py_buffer *view, int rank, const char *formats, int writable)
{
    int flags = PyBUF_STRIDED_RO | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return 0;
    int fits = (!rank || view->ndim == rank) && view->format && view->format[1] == 0 && strchr(formats, view->format[0]);
    for (int i = 0; fits && i < view->ndim; i++)
        fits = view->strides[i] % view->itemsize == 0;
    if (!fits) {
        PyBuffer_Release(view);
        return fail("an array has the wrong dtype, rank or strides");
    }
    return 1;
}

/* What the elements of a buffer are. */
static uint8_t kind_of(const Py_buffer *view)
{
    static const char formats[] = {[PTIR_FLOAT] = 'f', [PTIR_BOOL] = '?', [PTIR_F16] = 'e', [PTIR_BF16] = 'H'};
    uint8_t kind = PTIR_FLOAT;
    while (formats[kind] != view->format[0])
        kind++;
    return kind;
}

static int is_dense(const Py_buffer *view)
{
    Py_ssize_t want = view->itemsize;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->shape[i] > 1 && view->strides[i] != want)
            return 0;
        want *= view->shape[i];
    }
    return 1;
}

static ptir_matrix matrix(const Py_buffer *view)
{
    Py_ssize_t size = view->itemsize;
    return (ptir_matrix){view->buf, view->strides[0] / size, view->strides[1] / size, view->strides[2] / size};
}

static int multiplies(const Py_buffer *out, const Py_buffer *a, const Py_buffer *b, const Py_buffer *scratch)
{
    int fits = a->shape[0] == out->shape[0] && a->shape[1] == out->shape[1];
    if (b->ndim == 1)
        fits = fits && (size_t)b->shape[0] == ptir_isa_in_use()->packed_floats((size_t)a->shape[2], (size_t)out->shape[2]) && is_dense(b);
    else
        fits = fits && b->ndim == 3 && b->shape[0] == out->shape[0] && b->shape[2] == out->shape[2] && a->shape[2] == b->shape[1];
    if (!fits)
        return fail("shapes do not multiply");
    size_t needed = b->ndim == 1 ? ptir_isa_in_use()->packed_scratch() : ptir_isa_in_use()->gemm_scratch();
    if (!is_dense(out) || !is_dense(scratch) || (size_t)scratch->len < needed * sizeof(float))
        return fail("the result is not dense, or scratch is too small");
    return 1;
}

PyDoc_STRVAR(gemm_doc, "gemm(out, a, b, scratch): out = a @ b for stacks [batch, m, k] and [batch, k, n] of f32, any strides.\n"
                       "b may be one operand for all of the stack, as pack makes it.");

static PyObject *py_gemm(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const int ranks[] = {3, 3, 0, 1};
    Py_buffer view[4];
    int held = 0, good = count == 4 || fail("gemm takes 4 arguments");
    while (good && held < 4 && (good = take(args[held], &view[held], ranks[held], "f", held == 0 || held == 3)))
        held++;
    if (good && (good = multiplies(&view[0], &view[1], &view[2], &view[3]))) {
        const Py_ssize_t *m = view[1].shape, *out = view[0].shape;
        const float *packed = view[2].ndim == 1 ? view[2].buf : NULL;
        ptir_matrix right = packed ? (ptir_matrix){NULL, 0, 0, 0} : matrix(&view[2]);
        PyThreadState *saved = PyEval_SaveThread();
        ptir_watch watch = {is_interrupted, &saved, 0, 0};
        ptir_isa_in_use()->gemm(view[0].buf, matrix(&view[1]), right, packed, m[0], m[1], out[2], m[2], view[3].buf, &watch);
        PyEval_RestoreThread(saved);
        good = !watch.stopped;
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    (void)self;
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(conv_doc,
             "conv(out, x, packed, geometry, first, scratch): places [first, first + m) of a convolution. out is [m, groups, n], x is\n"
             "[batch, height, width, channels], both of f32 with the last axis in order; packed has a right operand as pack makes it\n"
             "for each group. geometry: places, window, strides, dilation, low padding (two each), groups.");

/* The windows over `image` that `geometry` says, where all that places [first, first + m) see is there. */
static int patches_of(ptir_patches *x, const Py_buffer *image, PyObject *geometry, Py_ssize_t first, Py_ssize_t m)
{
    Py_ssize_t n[11], size = image->itemsize;
    if (!PyArg_ParseTuple(geometry, "nnnnnnnnnnn", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8], &n[9], &n[10]))
        return 0;
    int fits = image->shape[3] == 1 || image->strides[3] == size;
    for (int i = 0; i < 11; i++)
        fits = fits && n[i] >= (i < 8 || i == 10) && n[i] < 1 << 28;
    fits = fits && image->shape[3] % n[10] == 0 && first >= 0 && first <= image->shape[0] * n[0] * n[1] - m;
    if (!fits)
        return fail("the windows do not fit the image");
    *x = (ptir_patches){image->buf, image->strides[0] / size, image->strides[1] / size, image->strides[2] / size,
                        {image->shape[1], image->shape[2]}, {n[0], n[1]}, {n[2], n[3]}, {n[4], n[5]}, {n[6], n[7]}, {n[8], n[9]},
                        n[10], image->shape[3] / n[10]};
    return 1;
}

static PyObject *py_conv(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const int ranks[] = {3, 4, 1, 1}, at[] = {0, 1, 2, 5};
    Py_buffer view[4];
    int held = 0, good = count == 6 || fail("conv takes 6 arguments");
    (void)self;
    while (good && held < 4 && (good = take(args[at[held]], &view[held], ranks[held], "f", held == 0 || held == 3)))
        held++;
    if (good) {
        const ptir_isa *isa = ptir_isa_in_use();
        const Py_ssize_t *out = view[0].shape, size = sizeof(float), first = PyLong_AsSsize_t(args[4]);
        ptir_patches x;
        good = !PyErr_Occurred() && patches_of(&x, &view[1], args[3], first, out[0]);
        if (good) {
            size_t packed = isa->packed_floats(x.window[0] * x.window[1] * x.channels, (size_t)out[2]);
            good = ((size_t)out[1] == x.groups && is_dense(&view[2]) && (size_t)view[2].shape[0] == packed * x.groups &&
                    (out[2] == 1 || view[0].strides[2] == size) && is_dense(&view[3]) &&
                    (size_t)view[3].len >= isa->packed_scratch() * sizeof(float)) ||
                   fail("shapes do not multiply, or scratch is too small");
        }
        if (good) {
            PyThreadState *saved = PyEval_SaveThread();
            ptir_watch watch = {is_interrupted, &saved, 0, 0};
            isa->conv(view[0].buf, view[0].strides[0] / size, view[0].strides[1] / size, &x, view[2].buf, (size_t)first, out[0],
                      out[2], view[3].buf, &watch);
            PyEval_RestoreThread(saved);
            good = !watch.stopped;
        }
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(windows_doc,
             "windows(out, x, weights, geometry, first, kind): places [first, first + m) of what windows see of each channel for itself.\n"
             "out is [m, channels]; weights is [taps, channels], and any array where the kind is not WEIGHTED; else as conv.");

static PyObject *py_windows(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const int ranks[] = {2, 4, 2};
    Py_buffer view[3];
    int held = 0, good = count == 6 || fail("windows takes 6 arguments");
    (void)self;
    while (good && held < 3 && (good = take(args[held], &view[held], ranks[held], "f", held == 0)))
        held++;
    if (good) {
        const Py_ssize_t *out = view[0].shape, size = sizeof(float), first = PyLong_AsSsize_t(args[4]);
        long kind = PyLong_AsLong(args[5]);
        ptir_patches x;
        good = !PyErr_Occurred() && patches_of(&x, &view[1], args[3], first, out[0]);
        good = good && ((x.channels == 1 && (size_t)out[1] == x.groups && (out[1] == 1 || view[0].strides[1] == size) && kind >= 0 &&
                         kind <= PTIR_MIN &&
                         (kind != PTIR_WEIGHTED || ((size_t)view[2].shape[0] == x.window[0] * x.window[1] &&
                                                    view[2].shape[1] == out[1] && is_dense(&view[2])))) ||
                        fail("an array does not have the shape that the windows give"));
        if (good) {
            PyThreadState *saved = PyEval_SaveThread();
            ptir_watch watch = {is_interrupted, &saved, 0, 0};
            ptir_isa_in_use()->windows(view[0].buf, view[0].strides[0] / size, &x, (int)kind, view[2].buf, (size_t)first, out[0], out[1],
                                       &watch);
            PyEval_RestoreThread(saved);
            good = !watch.stopped;
        }
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(layer_norm_doc, "layer_norm(out, x, gamma, beta, epsilon): of the rows of x, [rows, n]; all arrays are dense, of f32.");

static PyObject *py_layer_norm(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const int ranks[] = {2, 2, 1, 1};
    Py_buffer view[4];
    int held = 0, good = count == 5 || fail("layer_norm takes 5 arguments");
    double epsilon = good ? PyFloat_AsDouble(args[4]) : 0.0;
    (void)self;
    good = good && !PyErr_Occurred();
    while (good && held < 4 && (good = take(args[held], &view[held], ranks[held], "f", held == 0)))
        held++;
    if (good) {
        const Py_ssize_t *out = view[0].shape;
        for (int i = 0; i < 4; i++)
            good = good && is_dense(&view[i]) && view[i].shape[view[i].ndim - 1] == out[1] && (i > 1 || view[i].shape[0] == out[0]);
        good = good || fail("the arrays are not dense rows of one length");
    }
    if (good) {
        PyThreadState *saved = PyEval_SaveThread();
        ptir_watch watch = {is_interrupted, &saved, 0, 0};
        ptir_isa_in_use()->layer_norm(view[0].buf, view[1].buf, view[2].buf, view[3].buf, view[0].shape[0], view[0].shape[1], epsilon,
                                      &watch);
        PyEval_RestoreThread(saved);
        good = !watch.stopped;
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(fold_doc, "fold(out, x, kind): the SUM, MAX or MIN over the middle axis of x, [batch, m, n] of f32 in order along the last\n"
                       "axis; out is [batch, n], its rows in order.");

static PyObject *py_fold(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const int ranks[] = {2, 3};
    Py_buffer view[2];
    int held = 0, good = count == 3 || fail("fold takes 3 arguments");
    long kind = good ? PyLong_AsLong(args[2]) : 0;
    (void)self;
    good = good && !PyErr_Occurred();
    while (good && held < 2 && (good = take(args[held], &view[held], ranks[held], "f", held == 0)))
        held++;
    if (good) {
        const Py_ssize_t *out = view[0].shape, *x = view[1].shape;
        good = out[0] == x[0] && out[1] == x[2] && (kind == PTIR_SUM || kind == PTIR_MAX || kind == PTIR_MIN) && is_dense(&view[0]) &&
               (x[2] == 1 || view[1].strides[2] == view[1].itemsize);
        good = good || fail("the arrays do not fit each other, or do not lie in order");
    }
    if (good) {
        const Py_ssize_t *x = view[1].shape;
        PyThreadState *saved = PyEval_SaveThread();
        ptir_watch watch = {is_interrupted, &saved, 0, 0};
        ptir_isa_in_use()->fold(view[0].buf, matrix(&view[1]), (int)kind, x[0], x[1], x[2], &watch);
        PyEval_RestoreThread(saved);
        good = !watch.stopped;
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(take_doc, "take(out, x, numbers): the rows of x, [rows, bytes], with these numbers; out is [count, bytes], all are dense.");

/* Number i of a buffer of integers; what is negative becomes too large. */
static uint64_t number_at(const Py_buffer *numbers, Py_ssize_t i)
{
    const void *at = numbers->buf;
    switch (numbers->format[0]) {
    case 'b': return (uint64_t)((const int8_t *)at)[i];
    case 'B': return ((const uint8_t *)at)[i];
    case 'h': return (uint64_t)((const int16_t *)at)[i];
    case 'H': return ((const uint16_t *)at)[i];
    }
    if (numbers->itemsize == 8)
        return ((const uint64_t *)at)[i];
    return numbers->format[0] == 'i' || numbers->format[0] == 'l' ? (uint64_t)((const int32_t *)at)[i] : ((const uint32_t *)at)[i];
}

static PyObject *py_take(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const char *const formats[] = {"B", "B", "bBhHiIlLqQ"};
    enum { ROWS_AHEAD = 2, LINES_AHEAD = 8, LINE = 64 };
    Py_buffer view[3];
    int held = 0, good = count == 3 || fail("take takes 3 arguments");
    (void)self;
    while (good && held < 3 && (good = take(args[held], &view[held], held < 2 ? 2 : 1, formats[held], held == 0)))
        held++;
    if (good) {
        Py_ssize_t n = view[2].shape[0], width = view[1].shape[1];
        uint64_t rows = (uint64_t)view[1].shape[0];
        good = is_dense(&view[0]) && is_dense(&view[1]) && is_dense(&view[2]) && view[0].shape[0] == n && view[0].shape[1] == width;
        good = good || fail("the arrays are not dense, or do not fit each other");
        for (Py_ssize_t i = 0; good && i < n; i++)
            good = number_at(&view[2], i) < rows || fail("there is no such row");
        if (good) {
            char *out = view[0].buf;
            const char *x = view[1].buf;
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t i = 0; i < n; i++, out += width) {
                const char *next = x + (Py_ssize_t)number_at(&view[2], i + ROWS_AHEAD < n ? i + ROWS_AHEAD : i) * width;
                for (Py_ssize_t at = 0; at < width && at < LINES_AHEAD * LINE; at += LINE)
                    ptir_fetch(next + at);
                memcpy(out, x + (Py_ssize_t)number_at(&view[2], i) * width, (size_t)width);
            }
            Py_END_ALLOW_THREADS
        }
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(rescaled_doc,
             "rescaled(out, x, scaling, along): (x - zero) * scale of [rows, n] integers or f32 as f32, or as integers: divided by the\n"
             "output's scale, rounded, its zero point added, saturated. scaling, of f64, has the rows scale, zero, output's scale and\n"
             "output's zero, and a column for each row in turn, or with along for each column.");

static PyObject *py_rescaled(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const char *const formats[] = {"bBhHiIf", "bBhHiIf", "d"};
    Py_buffer view[3];
    int held = 0, good = count == 4 || fail("rescaled takes 4 arguments");
    long along = good ? PyLong_AsLong(args[3]) : 0;
    (void)self;
    good = good && !PyErr_Occurred();
    while (good && held < 3 && (good = take(args[held], &view[held], 2, formats[held], held == 0)))
        held++;
    if (good) {
        const Py_ssize_t *out = view[0].shape, *x = view[1].shape, *s = view[2].shape;
        for (int i = 0; i < 3; i++)
            good = good && is_dense(&view[i]);
        good = good && out[0] == x[0] && out[1] == x[1] && s[0] == 4 && s[1] > 0 && (along == 0 || (along == 1 && s[1] == x[1]));
        good = good || fail("the arrays are not dense, or do not fit each other");
    }
    if (good) {
        const double *s = view[2].buf;
        const Py_ssize_t channels = view[2].shape[1];
        ptir_scaling scaling = {s, s + channels, s + 2 * channels, s + 3 * channels};
        PyThreadState *saved = PyEval_SaveThread();
        ptir_watch watch = {is_interrupted, &saved, 0, 0};
        ptir_isa_in_use()->rescaled(view[0].buf, view[0].format[0], view[1].buf, view[1].format[0], view[0].shape[0], view[0].shape[1],
                                    (size_t)channels, (int)along, scaling, &watch);
        PyEval_RestoreThread(saved);
        good = !watch.stopped;
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(igemm_doc, "igemm(out, a, b, scratch): out = a @ b for stacks [batch, m, k] and [batch, k, n] of 8-bit integers, any\n"
                        "strides, in 32 bits that wrap; out is dense. b may be one operand for all of the stack as packed makes it, as\n"
                        "int32 if its numbers are signed, else as uint32.");

static ptir_bytes bytes_of(const Py_buffer *view)
{
    return (ptir_bytes){view->buf, view->strides[0], view->strides[1], view->strides[2], view->format[0] == 'b'};
}

static ptir_halves halves_of(const Py_buffer *view)
{
    Py_ssize_t size = view->itemsize;
    return (ptir_halves){view->buf, view->strides[0] / size, view->strides[1] / size, view->strides[2] / size};
}

/* Products of the operands that `formats` say, by `run`; the right one may be packed, in `words` words of four bytes. */
static PyObject *multiply(PyObject *const *args, Py_ssize_t count, const char *const *formats, size_t scratch,
                          size_t (*words)(size_t, size_t), void (*run)(const Py_buffer *view, int is_packed, ptir_watch *watch))
{
    static const int ranks[] = {3, 3, 0, 1};
    Py_buffer view[4], *b = &view[2];
    int held = 0, good = count == 4 || fail("a product takes 4 arguments");
    while (good && held < 4 && (good = take(args[held], &view[held], ranks[held], formats[held], held == 0 || held == 3)))
        held++;
    if (good) {
        const Py_ssize_t *out = view[0].shape, *a = view[1].shape;
        int is_packed = b->ndim == 1 && b->itemsize == 4;
        if (is_packed)
            good = is_dense(b) && (size_t)b->shape[0] == words((size_t)a[2], (size_t)out[2]);
        else
            good = b->ndim == 3 && b->itemsize < 4 && b->shape[0] == out[0] && b->shape[1] == a[2] && b->shape[2] == out[2];
        good = (good && a[0] == out[0] && a[1] == out[1] && is_dense(&view[0])) || fail("shapes do not multiply, or the result is not dense");
        good = good && ((is_dense(&view[3]) && (size_t)view[3].len >= scratch * sizeof(float)) || fail("scratch is too small"));
        if (good) {
            PyThreadState *saved = PyEval_SaveThread();
            ptir_watch watch = {is_interrupted, &saved, 0, 0};
            run(view, is_packed, &watch);
            PyEval_RestoreThread(saved);
            good = !watch.stopped;
        }
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

static void run_igemm(const Py_buffer *view, int is_packed, ptir_watch *watch)
{
    const Py_ssize_t *a = view[1].shape;
    ptir_bytes right = {NULL, 0, 0, 0, view[2].format[0] == 'i'};
    ptir_isa_in_use()->igemm(view[0].buf, bytes_of(&view[1]), is_packed ? right : bytes_of(&view[2]), is_packed ? view[2].buf : NULL, a[0],
                             a[1], view[0].shape[2], a[2], view[3].buf, watch);
}

static PyObject *py_igemm(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const char *const formats[] = {"iI", "bB", "bBiI", "f"};
    const ptir_isa *isa = ptir_isa_in_use();
    (void)self;
    return multiply(args, count, formats, isa->igemm_scratch(), isa->packed_words, run_igemm);
}

PyDoc_STRVAR(bgemm_doc, "bgemm(out, a, b, scratch): as gemm, of the bits of bf16, where BGEMM_SCRATCH is not 0; b may be packed.");

static void run_bgemm(const Py_buffer *view, int is_packed, ptir_watch *watch)
{
    const Py_ssize_t *a = view[1].shape;
    ptir_halves none = {NULL, 0, 0, 0};
    ptir_isa_in_use()->bgemm(view[0].buf, halves_of(&view[1]), is_packed ? none : halves_of(&view[2]), is_packed ? view[2].buf : NULL, a[0],
                             a[1], view[0].shape[2], a[2], view[3].buf, watch);
}

static PyObject *py_bgemm(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const char *const formats[] = {"f", "H", "HI", "f"};
    const ptir_isa *isa = ptir_isa_in_use();
    (void)self;
    if (!isa->bgemm)
        return fail("this machine has no products of bf16"), NULL;
    return multiply(args, count, formats, isa->bgemm_scratch(), isa->paired_words, run_bgemm);
}

PyDoc_STRVAR(packed_doc, "packed(b): a right operand [1, k, n] of 8-bit integers or the bits of bf16, any strides, in the order in which\n"
                         "igemm or bgemm reads it, as bytes.");

static PyObject *py_packed(PyObject *self, PyObject *b)
{
    const ptir_isa *isa = ptir_isa_in_use();
    Py_buffer view;
    (void)self;
    if (!take(b, &view, 3, isa->bgemm ? "bBH" : "bB", 0))
        return NULL;
    size_t k = (size_t)view.shape[1], n = (size_t)view.shape[2];
    size_t words = view.itemsize == 1 ? isa->packed_words(k, n) : isa->paired_words(k, n);
    PyObject *made = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(words * sizeof(uint32_t)));
    if (made && view.itemsize == 1)
        isa->pack_bytes((uint32_t *)PyByteArray_AsString(made), bytes_of(&view), k, n);
    else if (made)
        isa->pack_pairs((uint32_t *)PyByteArray_AsString(made), halves_of(&view), k, n);
    PyBuffer_Release(&view);
    return made;
}

PyDoc_STRVAR(gemv_doc, "gemv(out, x, b): rows by matrices, [batch, k] and [batch, k, n] to [batch, n]; out and x are dense, b is of f32,\n"
                       "f16 or the bits of bf16, and in order along one of its last two axes.");

static PyObject *py_gemv(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const char *const formats[] = {"f", "f", "feH"};
    Py_buffer view[3], *b = &view[2];
    int held = 0, good = count == 3 || fail("gemv takes 3 arguments");
    (void)self;
    while (good && held < 3 && (good = take(args[held], &view[held], held < 2 ? 2 : 3, formats[held], held == 0)))
        held++;
    if (good) {
        const Py_ssize_t *out = view[0].shape, *x = view[1].shape, *m = b->shape;
        Py_ssize_t size = b->itemsize, down = b->strides[1] / size, right = b->strides[2] / size;
        good = (out[0] == m[0] && x[0] == m[0] && x[1] == m[1] && out[1] == m[2]) || fail("shapes do not multiply");
        good = good && ((is_dense(&view[0]) && is_dense(&view[1]) && (down == 1 || right == 1)) || fail("an array does not lie in order"));
        if (good) {
            PyThreadState *saved = PyEval_SaveThread();
            ptir_watch watch = {is_interrupted, &saved, 0, 0};
            ptir_narrow matrices = {b->buf, b->strides[0] / size, down, right, kind_of(b)};
            ptir_isa_in_use()->gemv(view[0].buf, view[1].buf, matrices, m[0], m[2], m[1], &watch);
            PyEval_RestoreThread(saved);
            good = !watch.stopped;
        }
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(pack_doc, "pack(out, b): a right operand [k, n] of f32, any strides, in the order in which gemm reads it.");

static PyObject *py_pack(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer out, b;
    (void)self;
    if (count != 2)
        return fail("pack takes 2 arguments"), NULL;
    if (!take(args[0], &out, 1, "f", 1))
        return NULL;
    if (!take(args[1], &b, 2, "f", 0)) {
        PyBuffer_Release(&out);
        return NULL;
    }
    size_t k = (size_t)b.shape[0], n = (size_t)b.shape[1];
    Py_ssize_t size = b.itemsize;
    int good = (is_dense(&out) && (size_t)out.shape[0] == ptir_isa_in_use()->packed_floats(k, n)) || fail("the result is not as long as needed");
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        ptir_isa_in_use()->pack(out.buf, (ptir_matrix){b.buf, 0, b.strides[0] / size, b.strides[1] / size}, k, n);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&b);
    PyBuffer_Release(&out);
    return good ? Py_NewRef(Py_None) : NULL;
}

static int checks_array(const Py_buffer *view, const ptir_program *p, uint8_t kind)
{
    size_t rows = (size_t)view->shape[0], columns = (size_t)view->shape[1];
    if (rows != p->rows || columns != (kind == PTIR_ROWS ? 1 : p->columns))
        return fail("an array does not have the shape of the domain");
    return 1;
}

static ptir_array array(const Py_buffer *view, uint8_t held, int is_output)
{
    Py_ssize_t size = view->itemsize;
    return (ptir_array){view->buf, view->strides[0] / size, held == PTIR_ROWS ? 0 : view->strides[1] / size, kind_of(view),
                        (uint8_t)is_output, held == PTIR_ROWS, 0, 0};
}

static int run_tiles(ptir_program *p, Py_buffer *scratch)
{
    if (!is_dense(scratch) || (size_t)scratch->len < ptir_scratch(p) * sizeof(float))
        return fail("scratch is too small");
    PyThreadState *saved = PyEval_SaveThread();
    ptir_watch watch = {is_interrupted, &saved, 0, 0};
    ptir_run(p, 0, p->rows, scratch->buf, &watch);
    PyEval_RestoreThread(saved);
    return !watch.stopped;
}

PyDoc_STRVAR(turn_doc, "turn(out, x, is_large): copy x, [batch, m, n] in order along m, to out, in order along n; past the cache\n"
                       "if the whole is large. Items of four bytes.");

static PyObject *py_turn(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer out, x;
    (void)self;
    int is_large = count == 3 ? PyObject_IsTrue(args[2]) : -1;
    if (is_large < 0)
        return PyErr_Occurred() ? NULL : (fail("turn takes 3 arguments"), NULL);
    if (!take(args[0], &out, 3, "fiI", 1))
        return NULL;
    if (!take(args[1], &x, 3, "fiI", 0)) {
        PyBuffer_Release(&out);
        return NULL;
    }
    Py_ssize_t size = x.itemsize;
    int good = memcmp(out.shape, x.shape, 3 * sizeof *out.shape) == 0 && size == 4 && out.itemsize == 4 &&
               (x.strides[1] == size || x.shape[1] == 1) && (out.strides[2] == size || out.shape[2] == 1);
    if (!good)
        fail("shapes differ, or the strides are not those of stacked turned matrices");
    else {
        Py_BEGIN_ALLOW_THREADS
        ptir_turned to = {out.buf, out.strides[0] / size, out.strides[1] / size};
        ptir_turned from = {x.buf, x.strides[0] / size, x.strides[2] / size};
        ptir_isa_in_use()->turn(to, from, x.shape[0], x.shape[1], x.shape[2], is_large);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&x);
    PyBuffer_Release(&out);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(tiles_doc, "tiles(code, kinds, arrays, inputs, rows, columns, whole_rows, scratch, is_large=False): run a tile program. `arrays`, the\n"
                        "first registers, are [rows, columns], or [rows, 1] where their kind is ROWS, of f32, bool, f16 or the\n"
                        "bits of bf16; the first `inputs` are read, the rest written, past the cache if the whole is large.");

static PyObject *py_tiles(PyObject *self, PyObject *args)
{
    Py_buffer code, kinds, scratch, view[MAX_ARRAYS];
    PyObject *arrays, *room;
    Py_ssize_t inputs, rows, columns, held = 0;
    int whole_rows, is_large = 0;
    ptir_array made[MAX_ARRAYS];
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*O!nnnpO|p", &code, &kinds, &PyTuple_Type, &arrays, &inputs, &rows, &columns, &whole_rows, &room,
                          &is_large))
        return NULL;
    Py_ssize_t count = PyTuple_Size(arrays);
    ptir_program p = {code.buf, (size_t)code.len / sizeof(ptir_instruction), kinds.buf, made, (size_t)count, (size_t)kinds.len,
                      (size_t)rows, (size_t)columns, whole_rows, is_large};
    int good = (count <= MAX_ARRAYS && count <= kinds.len && inputs >= 0 && rows >= 0 && columns >= 0 && ptir_checks_kinds(&p)) ||
               fail("too many arrays or registers");
    good = good && (ptir_checks_code(&p, (size_t)inputs) || fail("an instruction is out of range"));
    for (; good && held < count; held++) {
        if (!(good = take(PyTuple_GetItem(arrays, held), &view[held], 2, "f?eH", held >= inputs)))
            break;
        made[held] = array(&view[held], p.kinds[held], held >= inputs);
        good = checks_array(&view[held], &p, p.kinds[held]) &&
               (held < inputs || is_dense(&view[held]) || fail("an output is not dense"));
    }
    if (good)
        ptir_find_direct(&p, made);
    if (good && (good = take(room, &scratch, 1, "f", 1))) {
        good = run_tiles(&p, &scratch);
        PyBuffer_Release(&scratch);
    }
    while (held)
        PyBuffer_Release(&view[--held]);
    PyBuffer_Release(&kinds);
    PyBuffer_Release(&code);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(tile_floats_doc, "tile_floats(kinds, rows, columns, whole_rows): the floats of scratch that registers of these kinds take.");

static PyObject *py_tile_floats(PyObject *self, PyObject *args)
{
    Py_buffer kinds;
    Py_ssize_t rows, columns;
    int whole_rows;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnp", &kinds, &rows, &columns, &whole_rows))
        return NULL;
    ptir_program p = {.kinds = kinds.buf, .register_count = (size_t)kinds.len, .rows = (size_t)rows, .columns = (size_t)columns,
                      .whole_rows = whole_rows};
    size_t floats = ptir_scratch(&p);
    PyBuffer_Release(&kinds);
    return PyLong_FromSize_t(floats);
}

PyDoc_STRVAR(place_doc, "place(lower, upper, size, rank, capacity, steps, offsets): search offsets for buffers; all arrays are of\n"
                        "int64. Returns (1 placed, 0 impossible or -1 gave up, steps taken).");

static int checks_buffers(const ptir_buffers *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->lower[i] < 0 || b->upper[i] <= b->lower[i] || b->size[i] < 0 || (i && b->lower[i] < b->lower[i - 1]))
            return fail("a buffer has an empty range or a negative size, or they are not sorted");
    return 1;
}

static PyObject *py_place(PyObject *self, PyObject *args)
{
    Py_buffer lower, upper, size, rank, offsets;
    long long capacity, steps;
    int64_t used = 0;
    int status = PTIR_NO_MEMORY;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*LLw*", &lower, &upper, &size, &rank, &capacity, &steps, &offsets))
        return NULL;
    Py_buffer *views[] = {&lower, &upper, &size, &rank, &offsets};
    ptir_buffers b = {(size_t)lower.len / sizeof(int64_t), lower.buf, upper.buf, size.buf, rank.buf, capacity};
    int good = 1;
    for (int i = 0; i < 5; i++)
        good = good && (views[i]->len == lower.len || fail("the arrays differ in length"));
    if (good && (good = checks_buffers(&b))) {
        Py_BEGIN_ALLOW_THREADS
        status = ptir_place(&b, steps, offsets.buf, &used);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < 5; i++)
        PyBuffer_Release(views[i]);
    if (good && status == PTIR_NO_MEMORY)
        return PyErr_NoMemory();
    return good ? Py_BuildValue("iL", status, (long long)used) : NULL;
}

PyDoc_STRVAR(fit_doc, "fit(lower, upper, size, order, done, until, tightest, offsets): order[done:until] into gaps, those before have\n"
                      "offsets. Without an order all as they begin.");

static PyObject *py_fit(PyObject *self, PyObject *args)
{
    Py_buffer lower, upper, size, order, offsets;
    Py_ssize_t done, until;
    int tightest, status = PTIR_NO_MEMORY;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*nnpw*", &lower, &upper, &size, &order, &done, &until, &tightest, &offsets))
        return NULL;
    Py_buffer *views[] = {&lower, &upper, &size, &order, &offsets};
    ptir_buffers b = {(size_t)lower.len / sizeof(int64_t), lower.buf, upper.buf, size.buf, order.buf, 0};
    int good = (done >= 0 && done <= until && (size_t)until <= b.count) || fail("a range of no buffers");
    for (int i = 0; i < 5; i++)
        good = good && (views[i]->len == lower.len || (i == 3 && !order.len) || fail("the arrays differ in length"));
    for (size_t i = 0; good && order.len && i < b.count; i++)
        good = (b.rank[i] >= 0 && (size_t)b.rank[i] < b.count) || fail("the order names no buffer");
    if (good && (good = checks_buffers(&b))) {
        Py_BEGIN_ALLOW_THREADS
        status = order.len ? ptir_fit(&b, order.buf, (size_t)done, (size_t)until, tightest, offsets.buf)
                           : ptir_fit_births(&b, offsets.buf);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < 5; i++)
        PyBuffer_Release(views[i]);
    if (good && status == PTIR_NO_MEMORY)
        return PyErr_NoMemory();
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef methods[] = {
    {"fit", py_fit, METH_VARARGS, fit_doc},
    {"place", py_place, METH_VARARGS, place_doc},
    {"gemm", (PyCFunction)(void (*)(void))py_gemm, METH_FASTCALL, gemm_doc},
    {"conv", (PyCFunction)(void (*)(void))py_conv, METH_FASTCALL, conv_doc},
    {"windows", (PyCFunction)(void (*)(void))py_windows, METH_FASTCALL, windows_doc},
    {"igemm", (PyCFunction)(void (*)(void))py_igemm, METH_FASTCALL, igemm_doc},
    {"bgemm", (PyCFunction)(void (*)(void))py_bgemm, METH_FASTCALL, bgemm_doc},
    {"packed", py_packed, METH_O, packed_doc},
    {"gemv", (PyCFunction)(void (*)(void))py_gemv, METH_FASTCALL, gemv_doc},
    {"pack", (PyCFunction)(void (*)(void))py_pack, METH_FASTCALL, pack_doc},
    {"layer_norm", (PyCFunction)(void (*)(void))py_layer_norm, METH_FASTCALL, layer_norm_doc},
    {"fold", (PyCFunction)(void (*)(void))py_fold, METH_FASTCALL, fold_doc},
    {"take", (PyCFunction)(void (*)(void))py_take, METH_FASTCALL, take_doc},
    {"rescaled", (PyCFunction)(void (*)(void))py_rescaled, METH_FASTCALL, rescaled_doc},
    {"turn", (PyCFunction)(void (*)(void))py_turn, METH_FASTCALL, turn_doc},
    {"tiles", py_tiles, METH_VARARGS, tiles_doc},
    {"tile_floats", py_tile_floats, METH_VARARGS, tile_floats_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Tile kernels.", -1, methods, NULL, NULL, NULL, NULL};

/* The names of the instructions, in order. */
static PyObject *op_names(void)
{
#define PTIR_NAME(name) #name,
    static const char *const names[] = {PTIR_OPS(PTIR_NAME)};
    PyObject *tuple = PyTuple_New(PTIR_OP_COUNT);
    for (int i = 0; tuple && i < PTIR_OP_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyTuple_SetItem(tuple, i, name) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

/* ISA: the instruction set in use; ISAS: all that this machine can run, the fastest first. */
static int add_isas(PyObject *made)
{
    PyObject *all = PyList_New(0);
    for (const ptir_isa *const *isa = ptir_isas(); all && *isa; isa++) {
        PyObject *name = PyUnicode_FromString((*isa)->name);
        if (!name || PyList_Append(all, name) < 0)
            Py_CLEAR(all);
        Py_XDECREF(name);
    }
    PyObject *tuple = all ? PyList_AsTuple(all) : NULL;
    int status = tuple ? PyModule_AddObjectRef(made, "ISAS", tuple) : -1;
    Py_XDECREF(all);
    Py_XDECREF(tuple);
    return status < 0 ? status : PyModule_AddStringConstant(made, "ISA", ptir_isa_in_use()->name);
}

PyMODINIT_FUNC PyInit__native(void)
{
    const char *wanted = getenv("PTIR_ISA");
    if (wanted && *wanted && !ptir_use_isa(wanted))
        return PyErr_Format(PyExc_ValueError, "PTIR_ISA=%s: this machine has no kernels for that", wanted);
    PyObject *made = PyModule_Create(&module), *names = made ? op_names() : NULL;
    if (!names || PyModule_AddObjectRef(made, "OPS", names) < 0 ||
        add_isas(made) < 0 || PyModule_AddIntConstant(made, "GEMM_SCRATCH", (long)ptir_isa_in_use()->gemm_scratch()) < 0 ||
        PyModule_AddIntConstant(made, "PACKED_SCRATCH", (long)ptir_isa_in_use()->packed_scratch()) < 0 ||
        PyModule_AddIntConstant(made, "IGEMM_SCRATCH", (long)ptir_isa_in_use()->igemm_scratch()) < 0 ||
        PyModule_AddIntConstant(made, "BGEMM_SCRATCH", ptir_isa_in_use()->bgemm ? (long)ptir_isa_in_use()->bgemm_scratch() : 0) < 0 ||
        PyModule_AddIntConstant(made, "GEMM_PANEL", (long)ptir_isa_in_use()->packed_floats(1, 1)) < 0 ||
        PyModule_AddIntConstant(made, "FULL", PTIR_FULL) < 0 || PyModule_AddIntConstant(made, "ROWS", PTIR_ROWS) < 0 ||
        PyModule_AddIntConstant(made, "LOCAL", PTIR_LOCAL) < 0 || PyModule_AddIntConstant(made, "WEIGHTED", PTIR_WEIGHTED) < 0 ||
        PyModule_AddIntConstant(made, "SUM", PTIR_SUM) < 0 || PyModule_AddIntConstant(made, "MAX", PTIR_MAX) < 0 ||
        PyModule_AddIntConstant(made, "MIN", PTIR_MIN) < 0) {
        Py_XDECREF(names);
        Py_XDECREF(made);
        return NULL;
    }
    Py_DECREF(names);
    return made;
}
