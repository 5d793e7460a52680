/* The only file that calls Python: it checks arguments and buffers, releases the GIL, and calls kernels. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include "byte_patches.h"
#include "common.h"
#include "isa.h"
#include "kernels.h"
#include "placement.h"
#include "pool.h"
#include "trees.h"
#if defined(__unix__)
#include <unistd.h>
#endif

/* A kernel takes arrays, operands of an epilogue, and a few other buffers. */
enum { MAX_ARRAYS = PTIR_REGISTERS, MORE_BUFFERS = 6 + PTIR_LONGEST_SUM, MOST_BUFFERS = MAX_ARRAYS + MORE_BUFFERS, MAX_RANK = 8 };

static int fail(const char *message)
{
    PyErr_SetString(PyExc_ValueError, message);
    return 0;
}

/* The interrupt check: let signal handlers run while a kernel works. Returns whether one raised. `saved` is the thread state. */
static int is_interrupted(void *saved)
{
    PyThreadState **state = saved;
    PyEval_RestoreThread(*state);
    int raised = PyErr_CheckSignals() != 0;
    *state = PyEval_SaveThread();
    return raised;
}

/* A checked call of a kernel: its buffers and other arguments. It can be run any number of times, without Python. */
typedef struct call call;
struct call {
    void (*run)(const call *c, ptir_watch *watch);
    Py_buffer *view;
    int held;
    PyObject *kept; /* a tuple: the tasks that the call runs (`count` of them), and the function that raises if it is refused */
    const call **calls;
    size_t count;
    ptir_epilogue epilogue;
    ptir_prepared *prepared; /* resolved operands of a tile program that fits in one tile and runs repeatedly */
    union {
        int number;
        double epsilon;
        ptir_forest forest;
        struct {
            int number; /* as above */
            ptir_quantizing to;
            ptir_patches x; /* of a convolution, with the byte in its padding, and its first place */
            int padding;
            size_t first;
        } bytes;
        struct {
            size_t channels;
            int along;
        } scaling;
        struct {
            ptir_patches x;
            size_t first;
            int kind;
        } windows;
        ptir_program program; /* owns its array records */
        struct {
            ptir_program scores; /* likewise */
            ptir_attention x;
        } attention;
        size_t helpers;
        uint64_t limit; /* of iterations, or of numbers */
        struct {
            size_t inputs, count;
        } walk;
        struct {
            size_t first, last;
        } columns;
    } with;
};

static void release(call *c)
{
    while (c->held)
        PyBuffer_Release(&c->view[--c->held]);
}

/* Get the buffer of `object`, with `rank` axes (0: any), one of `formats` ('f' f32, '?' i1, 'e' f16, 'H' the bits of bf16), and
 * strides that are multiples of the item size. */
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

/* Add a buffer to a call. */
static int takes(call *c, PyObject *object, int rank, const char *formats, int writable)
{
    int good = take(object, &c->view[c->held], rank, formats, writable);
    c->held += good;
    return good;
}

/* The kind of a buffer's elements. */
static uint8_t kind_of(const Py_buffer *view)
{
    static const char formats[] = {[PTIR_FLOAT] = 'f', [PTIR_BOOL] = '?', [PTIR_F16] = 'e', [PTIR_BF16] = 'H',
                                   [PTIR_SI8] = 'b',   [PTIR_UI8] = 'B',  [PTIR_SI32] = 'i'};
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

static ptir_bytes bytes_of(const Py_buffer *view)
{
    return (ptir_bytes){view->buf, view->strides[0], view->strides[1], view->strides[2], view->format[0] == 'b', 0};
}

static ptir_halves halves_of(const Py_buffer *view)
{
    Py_ssize_t size = view->itemsize;
    return (ptir_halves){view->buf, view->strides[0] / size, view->strides[1] / size, view->strides[2] / size};
}

static int has_room(const Py_buffer *scratch, size_t floats)
{
    return (is_dense(scratch) && (size_t)scratch->len >= floats * sizeof(float)) || fail("scratch is too small");
}

/* Whether a right operand of f32 is packed in the layout for few rows. */
static int is_for_few(const Py_buffer *packed, size_t k, size_t n)
{
    const ptir_isa *few = ptir_isa_in_use()->few;
    return few && (size_t)packed->shape[0] == few->packed_floats(k, n);
}

/* The operands of a product, with these `formats`. The right one may be packed, in `packed` items. */
static int multiplies(call *c, PyObject *const *args, const char *const *formats, size_t (*packed)(size_t, size_t))
{
    static const int ranks[] = {3, 3, 0, 1};
    for (int i = 0; i < 4; i++)
        if (!takes(c, args[i], ranks[i], formats[i], i == 0 || i == 3))
            return 0;
    const Py_buffer *b = &c->view[2];
    const Py_ssize_t *out = c->view[0].shape, *a = c->view[1].shape;
    int fits = a[0] == out[0] && a[1] == out[1];
    c->with.number = b->ndim == 1 && b->itemsize == 4;
    if (c->with.number)
        fits = fits && is_dense(b) &&
               ((size_t)b->shape[0] == packed((size_t)a[2], (size_t)out[2]) || (b->format[0] == 'f' && is_for_few(b, (size_t)a[2], (size_t)out[2])));
    else
        fits = fits && b->ndim == 3 && strchr(formats[1], b->format[0]) && b->shape[0] == out[0] && b->shape[2] == out[2] &&
               a[2] == b->shape[1];
    if (!fits)
        return fail("shapes do not multiply");
    return is_dense(&c->view[0]) || fail("the result is not dense");
}

/* The memory range of a nonempty buffer: from its first byte to the byte after its last. */
static void find_ends(const Py_buffer *view, const char **first, const char **last)
{
    *first = view->buf, *last = *first + view->itemsize;
    for (int i = 0; i < view->ndim; i++)
        *(view->strides[i] < 0 ? first : last) += (view->shape[i] - 1) * view->strides[i];
}

static int overlap(const Py_buffer *a, const Py_buffer *b)
{
    const char *first[2], *last[2];
    find_ends(a, &first[0], &last[0]), find_ends(b, &first[1], &last[1]);
    return a->len && b->len && first[0] < last[1] && first[1] < last[0];
}

/* Read an epilogue: `steps` is a tuple of pairs, the number of an instruction and an operand, or None without an epilogue. The
 * result is [rows, columns], with rows `stride` bytes apart, and each operand has its shape. An operand may be the memory of the
 * result if its elements are sums of at most as many products as the kernel sums at once. */
static int ends(call *c, PyObject *steps, Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t stride, size_t products)
{
    if (steps == Py_None)
        return 1;
    if (!PyTuple_Check(steps) || PyTuple_Size(steps) > PTIR_LONGEST_EPILOGUE)
        return fail("the epilogue is not a tuple, or it is too long");
    for (Py_ssize_t i = 0; i < PyTuple_Size(steps); i++) {
        PyObject *step = PyTuple_GetItem(steps, i), *operand;
        int op;
        if (!PyTuple_Check(step))
            return fail("a step of an epilogue is not a tuple");
        if (!PyArg_ParseTuple(step, "iO", &op, &operand) || !takes(c, operand, 2, "f", 0))
            return 0;
        const Py_buffer *view = &c->view[c->held - 1];
        Py_ssize_t size = view->itemsize, along = view->shape[1] == 1 ? 0 : view->strides[1] / size;
        if (!ptir_is_epilogue(op) || view->shape[0] != rows || view->shape[1] != columns || along < 0 || along > 1)
            return fail("an epilogue has another shape or order than the result, or an instruction that cannot be in one");
        if (overlap(view, c->view)) {
            c->epilogue.takes_result = 1;
            if (view->buf != c->view->buf || (rows > 1 && view->strides[0] != stride) || along != 1 || products > ptir_isa_in_use()->depth)
                return fail("the result cannot be written over the operand of an epilogue");
        }
        c->epilogue.steps[c->epilogue.count].data = view->buf, c->epilogue.steps[c->epilogue.count].op = (uint8_t)op;
        c->epilogue.steps[c->epilogue.count].rows = view->strides[0] / size, c->epilogue.steps[c->epilogue.count++].columns = along;
    }
    return 1;
}

PyDoc_STRVAR(gemm_doc, "gemm(out, a, b, scratch, epilogue=None): out = a @ b for stacks [batch, m, k] and [batch, k, n] of f32, any\n"
                       "strides. b may be one operand for all of the stack, as pack makes it. The epilogue is done to each matrix: a tuple of\n"
                       "steps, each the number of an instruction and its operand, [m, n] with any step from row to row.");

static void run_gemm(const call *c, ptir_watch *watch)
{
    const Py_buffer *v = c->view;
    ptir_matrix none = {NULL, 0, 0, 0};
    const ptir_isa *isa = ptir_isa_in_use();
    if (c->with.number && is_for_few(&v[2], (size_t)v[1].shape[2], (size_t)v[0].shape[2]))
        isa = isa->few;
    isa->gemm(v[0].buf, matrix(&v[1]), c->with.number ? none : matrix(&v[2]), c->with.number ? v[2].buf : NULL,
                            v[1].shape[0], v[1].shape[1], v[0].shape[2], v[1].shape[2], &c->epilogue, v[3].buf, watch);
}

static int gemm(call *c, PyObject *const *args)
{
    static const char *const formats[] = {"f", "f", "f", "f"};
    const ptir_isa *isa = ptir_isa_in_use();
    c->run = run_gemm;
    return multiplies(c, args, formats, isa->packed_floats) &&
           has_room(&c->view[3], c->with.number ? isa->packed_scratch() : isa->gemm_scratch()) &&
           ends(c, args[4], c->view[0].shape[1], c->view[0].shape[2], c->view[0].strides[1],
                c->view[0].shape[0] == 1 ? (size_t)c->view[1].shape[2] : SIZE_MAX);
}

PyDoc_STRVAR(igemm_doc, "igemm(out, a, b, scratch, epilogue=None): out = a @ b for stacks [batch, m, k] and [batch, k, n] of 8-bit integers,\n"
                        "any strides, in 32 bits that wrap; out is dense. b may be one operand for all of the stack as packed makes it, as\n"
                        "int32 if its numbers are signed, else as uint32. With an epilogue, of a stack of one and k > 0, out is of f32 or\n"
                        "bytes: (added, scaling, along, factor, is_near, low, high). added is None or [m, n] of int32, any step from row to\n"
                        "row. scaling and along are as for rescaled. What is made of it is between low and high. factor, f32, is scale over\n"
                        "output scale; is_near says whether it is normal, and all zeros of the input are 0. Or (added, steps): the sums in\n"
                        "f32, then a step each: the number of an instruction and its operand, [m, n]; of bytes with their zero and scale.");

static void run_igemm(const call *c, ptir_watch *watch)
{
    const Py_buffer *v = c->view;
    const Py_ssize_t *a = v[1].shape;
    ptir_bytes right = {.is_signed = v[2].format[0] == 'i'};
    ptir_isa_in_use()->igemm(v[0].buf, c->with.bytes.to.to ? &c->with.bytes.to : NULL, bytes_of(&v[1]),
                             c->with.number ? right : bytes_of(&v[2]), c->with.number ? v[2].buf : NULL, a[0], a[1], v[0].shape[2], a[2],
                             v[3].buf, watch);
}

/* Read the steps in f32 of an epilogue: (added, steps). The result is [rows, columns]. */
static int steps_in_f32(call *c, PyObject *epilogue, Py_ssize_t rows, Py_ssize_t columns)
{
    ptir_quantizing *to = &c->with.bytes.to;
    const char format = c->view[0].format[0];
    PyObject *added, *steps;
    *to = (ptir_quantizing){.in_f32 = 1, .to = format, .low = format == 'b' ? -128 : 0, .high = format == 'b' ? 127 : 255};
    if (!PyArg_ParseTuple(epilogue, "OO", &added, &steps))
        return 0;
    if (!PyTuple_Check(steps) || PyTuple_Size(steps) > PTIR_LONGEST_SUM || !strchr("bBf", format))
        return fail("an epilogue does not fit its product");
    if (added != Py_None) {
        if (!takes(c, added, 2, "i", 0))
            return 0;
        const Py_buffer *more = &c->view[c->held - 1];
        if (more->shape[0] != rows || more->shape[1] != columns || (columns > 1 && more->strides[1] != more->itemsize) || overlap(more, c->view))
            return fail("an epilogue does not fit its product");
        to->added = more->buf, to->rows = more->strides[0] / more->itemsize;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(steps); i++) {
        ptir_sum_step *made = &to->steps[to->count++];
        PyObject *step = PyTuple_GetItem(steps, i), *operand;
        int op;
        *made = (ptir_sum_step){.scale = 1};
        if (!PyTuple_Check(step) || !PyArg_ParseTuple(step, "iO|ff", &op, &operand, &made->zero, &made->scale))
            return PyErr_Occurred() ? 0 : fail("a step of an epilogue is not a tuple");
        made->op = (uint8_t)op;
        if (ptir_is_unary_step(op))
            continue;
        if (!takes(c, operand, 2, "fbB", 0))
            return 0;
        const Py_buffer *view = &c->view[c->held - 1];
        made->data = view->buf, made->kind = kind_of(view), made->rows = view->strides[0] / view->itemsize;
        made->columns = view->shape[1] == 1 ? made->kind != PTIR_FLOAT : view->strides[1] / view->itemsize;
        if (!ptir_is_epilogue(op) || view->shape[0] != rows || view->shape[1] != columns || made->columns < 0 || made->columns > 1 ||
            (made->kind != PTIR_FLOAT && !made->columns && columns > 1))
            return fail("an epilogue has another shape or order than the result, or an instruction that cannot be in one");
        if (overlap(view, c->view) && (view->buf != c->view->buf || view->itemsize != c->view->itemsize || made->rows != columns || made->columns != 1))
            return fail("the result cannot be written over the operand of an epilogue"); /* only element by element */
    }
    return 1;
}

/* Read the epilogue of a product of bytes. */
static int quantizes(call *c, PyObject *epilogue)
{
    ptir_quantizing *to = &c->with.bytes.to;
    const Py_ssize_t *out = c->view[0].shape, *a = c->view[1].shape;
    char format = c->view[0].format[0];
    PyObject *added, *scaling, *factor;
    *to = (ptir_quantizing){0};
    if (epilogue == Py_None)
        return format == 'i' || format == 'I' || fail("sums without an epilogue are of 32 bits");
    if (!PyTuple_Check(epilogue))
        return fail("the epilogue is not a tuple");
    if (PyTuple_Size(epilogue) == 2)
        return (a[0] == 1 && a[2] > 0 && steps_in_f32(c, epilogue, out[1], out[2])) || (!PyErr_Occurred() && fail("an epilogue does not fit its product"));
    if (!PyArg_ParseTuple(epilogue, "OOiOiff", &added, &scaling, &to->along, &factor, &to->is_near, &to->low, &to->high) ||
        !takes(c, scaling, 2, "d", 0) || !takes(c, factor, 1, "f", 0) || (added != Py_None && !takes(c, added, 2, "i", 0)))
        return 0;
    const Py_buffer *s = &c->view[4], *f = &c->view[5], *more = added != Py_None ? &c->view[6] : NULL;
    Py_ssize_t channels = s->shape[1];
    const double *first = s->buf;
    const float lowest = format == 'b' ? -128 : 0, highest = format == 'b' ? 127 : 255;
    int fits = strchr("bBf", format) && is_dense(s) && is_dense(f) && s->shape[0] == 4 && f->shape[0] == channels && a[0] == 1 && a[2] > 0 &&
               (to->along == 0 || to->along == 1) && channels == (to->along ? out[2] : 1);
    if (more)
        fits = fits && more->shape[0] == out[1] && more->shape[1] == out[2] && (out[2] == 1 || more->strides[1] == more->itemsize) &&
               !overlap(more, c->view);
    if (format != 'f')
        fits = fits && to->low >= lowest && to->low <= to->high && to->high <= highest;
    for (Py_ssize_t k = 1; fits && format != 'f' && k < channels; k++) /* one zero point for all columns */
        fits = first[3 * channels + k] == first[3 * channels];
    if (!fits)
        return fail("an epilogue does not fit its product");
    to->added = more ? more->buf : NULL, to->rows = more ? more->strides[0] / more->itemsize : 0;
    to->scaling = (ptir_scaling){first, first + channels, first + 2 * channels, first + 3 * channels};
    to->factor = f->buf, to->to = format;
    return 1;
}

static int igemm(call *c, PyObject *const *args)
{
    static const char *const formats[] = {"iIbBf", "bB", "bBiI", "f"};
    const ptir_isa *isa = ptir_isa_in_use();
    c->run = run_igemm;
    return multiplies(c, args, formats, isa->packed_words) && has_room(&c->view[3], isa->igemm_scratch()) && quantizes(c, args[4]);
}

PyDoc_STRVAR(bgemm_doc, "bgemm(out, a, b, scratch): as gemm, of the bits of bf16, where BGEMM_SCRATCH is not 0; b may be packed. out may be\n"
                        "the bits of bf16, too, with BGEMM_ROUNDS.");

static void run_bgemm(const call *c, ptir_watch *watch)
{
    const Py_buffer *v = c->view;
    const Py_ssize_t *a = v[1].shape;
    ptir_halves none = {NULL, 0, 0, 0};
    ptir_isa_in_use()->bgemm(v[0].buf, v[0].itemsize == 2, halves_of(&v[1]), c->with.number ? none : halves_of(&v[2]), c->with.number ? v[2].buf : NULL, a[0],
                             a[1], v[0].shape[2], a[2], v[3].buf, watch);
}

static int bgemm(call *c, PyObject *const *args)
{
    static const char *const formats[] = {"fH", "H", "HI", "f"};
    const ptir_isa *isa = ptir_isa_in_use();
    c->run = run_bgemm;
    if (!isa->bgemm)
        return fail("this machine has no products of bf16");
    if (!multiplies(c, args, formats, isa->paired_words) || !has_room(&c->view[3], isa->bgemm_scratch()))
        return 0;
    return c->view[0].itemsize == 4 || isa->bgemm_rounds || fail("the sums of this machine are not rounded to bf16");
}

PyDoc_STRVAR(pack_doc, "pack(out, b, columns=None): a right operand [k, n], any strides, in the order in which gemm reads it (f32, to\n"
                       "floats), igemm (8-bit integers) or bgemm (the bits of bf16; both to words). columns: (first, last) of those with\n"
                       "which a panel begins that is to be packed; None is all.");

/* The number of items of the packed right operand `b`; 0 if there is no product of its format. */
static size_t packed_size(const Py_buffer *b)
{
    const ptir_isa *isa = ptir_isa_in_use();
    size_t k = (size_t)b->shape[0], n = (size_t)b->shape[1];
    if (b->itemsize == 4)
        return isa->packed_floats(k, n);
    return b->itemsize == 1 ? isa->packed_words(k, n) : isa->bgemm ? isa->paired_words(k, n) : 0;
}

static void run_pack(const call *c, ptir_watch *watch)
{
    const ptir_isa *isa = ptir_isa_in_use();
    const Py_buffer *out = c->view, *b = &c->view[1];
    size_t k = (size_t)b->shape[0], n = (size_t)b->shape[1], first = c->with.columns.first, last = c->with.columns.last;
    Py_ssize_t size = b->itemsize, rows = b->strides[0] / size, columns = b->strides[1] / size;
    (void)watch;
    if (size == 4)
        (is_for_few(out, k, n) ? isa->few : isa)->pack(out->buf, (ptir_matrix){b->buf, 0, rows, columns}, k, n, first, last);
    else if (size == 1)
        isa->pack_bytes(out->buf, (ptir_bytes){b->buf, 0, rows, columns, b->format[0] == 'b', 0}, k, n, first, last);
    else
        isa->pack_pairs(out->buf, (ptir_halves){b->buf, 0, rows, columns}, k, n, first, last);
}

static int pack(call *c, PyObject *const *args)
{
    Py_ssize_t first = 0, last = PY_SSIZE_T_MAX;
    c->run = run_pack;
    if (args[2] != Py_None && (!PyTuple_Check(args[2]) || !PyArg_ParseTuple(args[2], "nn", &first, &last)))
        return PyErr_Occurred() ? 0 : fail("the columns are not a pair");
    if (!takes(c, args[0], 1, "fiI", 1) || !takes(c, args[1], 2, "fbBH", 0))
        return 0;
    const Py_buffer *out = c->view, *b = &c->view[1];
    c->with.columns.first = (size_t)first, c->with.columns.last = (size_t)last;
    return (first >= 0 && last >= 0 && out->itemsize == 4 && (out->format[0] == 'f') == (b->itemsize == 4) && is_dense(out) &&
            (b->itemsize != 2 || ptir_isa_in_use()->bgemm) && ((size_t)out->shape[0] == packed_size(b) ||
                                             (b->itemsize == 4 && is_for_few(out, (size_t)b->shape[0], (size_t)b->shape[1])))) ||
           fail("the result is not as long as needed");
}

PyDoc_STRVAR(unpack_doc, "unpack(out, packed): what pack made of all of a right operand, as dense rows [k, n] of what it was, bit for bit.");

static void run_unpack(const call *c, ptir_watch *watch)
{
    const ptir_isa *isa = ptir_isa_in_use();
    const Py_buffer *out = c->view, *packed = &c->view[1];
    size_t k = (size_t)out->shape[0], n = (size_t)out->shape[1];
    (void)watch;
    if (out->itemsize == 4)
        (is_for_few(packed, k, n) ? isa->few : isa)->unpack(out->buf, packed->buf, k, n);
    else if (out->itemsize == 1)
        isa->unpack_bytes(out->buf, packed->buf, k, n, out->format[0] == 'b');
    else
        isa->unpack_pairs(out->buf, packed->buf, k, n);
}

static int unpack(call *c, PyObject *const *args)
{
    c->run = run_unpack;
    if (!takes(c, args[0], 2, "fbBH", 1) || !takes(c, args[1], 1, "fiI", 0))
        return 0;
    const Py_buffer *out = c->view, *packed = &c->view[1];
    return (packed->itemsize == 4 && (packed->format[0] == 'f') == (out->itemsize == 4) && is_dense(out) && is_dense(packed) &&
            (out->itemsize != 2 || ptir_isa_in_use()->bgemm) &&
            ((size_t)packed->shape[0] == packed_size(out) ||
             (out->itemsize == 4 && is_for_few(packed, (size_t)out->shape[0], (size_t)out->shape[1])))) ||
           fail("what is packed is not of such a matrix");
}

PyDoc_STRVAR(trim_doc, "trim(): let the system have the pages of the heap that nothing uses, where the C library can do that.");

static PyObject *py_trim(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    Py_RETURN_NONE;
}

PyDoc_STRVAR(packed_size_doc, "packed_size(b, few=False): the items that pack makes of b, [k, n]; of f32 in the order that is best for a few\n"
                              "rows, which is that of a result so long.");

static PyObject *py_packed_size(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    (void)self;
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "packed_size takes an array, and whether there are few rows");
        return NULL;
    }
    int few = count == 2 ? PyObject_IsTrue(args[1]) : 0;
    if (few < 0 || !take(args[0], &view, 2, "fbBH", 0))
        return NULL;
    const ptir_isa *other = ptir_isa_in_use()->few;
    size_t size = few && other && view.itemsize == 4 ? other->packed_floats((size_t)view.shape[0], (size_t)view.shape[1]) : packed_size(&view);
    PyBuffer_Release(&view);
    return PyLong_FromSize_t(size);
}

PyDoc_STRVAR(gemv_doc, "gemv(out, x, b): rows by matrices, [batch, k] and [batch, k, n] to [batch, n]; out and x are dense, b is of f32,\n"
                       "f16 or the bits of bf16, and in order along one of its last two axes.");

static void run_gemv(const call *c, ptir_watch *watch)
{
    const Py_buffer *b = &c->view[2];
    const Py_ssize_t *m = b->shape, size = b->itemsize;
    Py_ssize_t rows = m[1] == 1 ? 1 : b->strides[1] / size, columns = m[2] == 1 ? 1 : b->strides[2] / size;
    ptir_narrow matrices = {b->buf, b->strides[0] / size, rows, columns, kind_of(b)};
    ptir_isa_in_use()->gemv(c->view[0].buf, c->view[1].buf, matrices, m[0], m[2], m[1], watch);
}

static int gemv(call *c, PyObject *const *args)
{
    c->run = run_gemv;
    if (!(takes(c, args[0], 2, "f", 1) && takes(c, args[1], 2, "f", 0) && takes(c, args[2], 3, "feH", 0)))
        return 0;
    const Py_buffer *b = &c->view[2];
    const Py_ssize_t *out = c->view[0].shape, *x = c->view[1].shape, *m = b->shape;
    if (!(out[0] == m[0] && x[0] == m[0] && x[1] == m[1] && out[1] == m[2]))
        return fail("shapes do not multiply");
    int in_order = m[1] == 1 || b->strides[1] == b->itemsize || m[2] == 1 || b->strides[2] == b->itemsize;
    return (is_dense(&c->view[0]) && is_dense(&c->view[1]) && in_order) ||
           fail("an array does not lie in order");
}

/* Read the windows over `image` from `geometry`. All memory that places [first, first + m) read must be inside the buffer. */
static int patches_of(ptir_patches *x, const Py_buffer *image, PyObject *geometry, Py_ssize_t first, Py_ssize_t m)
{
    Py_ssize_t n[11], size = image->itemsize;
    int is_finite = 0;
    if (!PyArg_ParseTuple(geometry, "nnnnnnnnnnn|p", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8], &n[9], &n[10], &is_finite))
        return 0;
    int fits = image->shape[3] == 1 || image->strides[3] == size;
    for (int i = 0; i < 11; i++)
        fits = fits && n[i] >= (i < 8 || i == 10) && n[i] < 1 << 28;
    fits = fits && image->shape[3] % n[10] == 0 && first >= 0 && first <= image->shape[0] * n[0] * n[1] - m;
    if (!fits)
        return fail("the windows do not fit the image");
    *x = (ptir_patches){image->buf, image->strides[0] / size, image->strides[1] / size, image->strides[2] / size,
                        {image->shape[1], image->shape[2]}, {n[0], n[1]}, {n[2], n[3]}, {n[4], n[5]}, {n[6], n[7]}, {n[8], n[9]},
                        n[10], image->shape[3] / n[10], is_finite};
    return 1;
}


PyDoc_STRVAR(conv_doc,
             "conv(out, x, packed, geometry, first, scratch, epilogue=None): places [first, first + m) of a convolution. out is [m, groups, n], x is\n"
             "[batch, height, width, channels], both of f32 with the last axis in order; packed has a right operand as pack makes it\n"
             "for each group. geometry: places, window, strides, dilation, low padding (two each), groups; and True if all weights\n"
             "are known to be finite. epilogue: as of gemm, on [m, groups * n].");

static void run_conv(const call *c, ptir_watch *watch)
{
    const Py_buffer *out = c->view;
    Py_ssize_t size = out->itemsize;
    ptir_isa_in_use()->conv(out->buf, out->strides[0] / size, out->strides[1] / size, &c->with.windows.x, c->view[2].buf,
                            c->with.windows.first, out->shape[0], out->shape[2], &c->epilogue, c->view[3].buf, watch);
}

static int conv(call *c, PyObject *const *args)
{
    const ptir_isa *isa = ptir_isa_in_use();
    c->run = run_conv;
    if (!(takes(c, args[0], 3, "f", 1) && takes(c, args[1], 4, "f", 0) && takes(c, args[2], 1, "f", 0) && takes(c, args[5], 1, "f", 1)))
        return 0;
    const Py_buffer *out = c->view, *packed = &c->view[2];
    ptir_patches *x = &c->with.windows.x;
    Py_ssize_t first = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred() || !patches_of(x, &c->view[1], args[3], first, out->shape[0]))
        return 0;
    c->with.windows.first = (size_t)first;
    size_t floats = isa->packed_floats(x->window[0] * x->window[1] * x->channels, (size_t)out->shape[2]);
    return (((size_t)out->shape[1] == x->groups && is_dense(packed) && (size_t)packed->shape[0] == floats * x->groups &&
             (out->shape[2] == 1 || out->strides[2] == out->itemsize)) ||
            fail("shapes do not multiply")) &&
           has_room(&c->view[3], isa->packed_scratch()) &&
           ends(c, args[6], out->shape[0], out->shape[1] * out->shape[2], out->strides[0],
                out->shape[1] == 1 ? x->window[0] * x->window[1] * x->channels : SIZE_MAX);
}

PyDoc_STRVAR(iconv_doc,
             "iconv(out, x, packed, geometry, first, padding, scratch, epilogue): as conv, of 8-bit integers, in one group. out is [m, n], x is\n"
             "[batch, height, width, channels], where the padding is the byte `padding`. packed is as for igemm, the epilogue (added,\n"
             "steps) as well; scratch has iconv_scratch floats.");

static void run_iconv(const call *c, ptir_watch *watch)
{
    const Py_buffer *out = c->view, *x = &c->view[1];
    ptir_convolve_bytes(out->buf, out->itemsize, &c->with.bytes.to, &c->with.bytes.x, x->format[0] == 'b', (uint8_t)c->with.bytes.padding,
                        c->view[2].buf, c->view[2].format[0] == 'i', c->with.bytes.first, out->shape[0], out->shape[1], c->view[3].buf, watch);
}

static int iconv(call *c, PyObject *const *args)
{
    const ptir_isa *isa = ptir_isa_in_use();
    c->run = run_iconv;
    if (!(takes(c, args[0], 2, "bBf", 1) && takes(c, args[1], 4, "bB", 0) && takes(c, args[2], 1, "iI", 0) && takes(c, args[6], 1, "f", 1)))
        return 0;
    const Py_buffer *out = c->view, *packed = &c->view[2];
    ptir_patches *x = &c->with.bytes.x;
    const Py_ssize_t first = PyLong_AsSsize_t(args[4]);
    const long padding = PyLong_AsLong(args[5]);
    if (PyErr_Occurred() || !patches_of(x, &c->view[1], args[3], first, out->shape[0]))
        return 0;
    const size_t depth = x->window[0] * x->window[1] * x->channels;
    c->with.bytes.first = (size_t)first, c->with.bytes.padding = (int)padding;
    return ((is_dense(out) && x->groups == 1 && depth > 0 && is_dense(packed) && PyTuple_Check(args[7]) &&
             (size_t)packed->shape[0] == isa->packed_words(depth, (size_t)out->shape[1])) ||
            fail("shapes do not multiply")) &&
           has_room(&c->view[3], isa->igemm_scratch() + ptir_patch_floats(depth)) &&
           steps_in_f32(c, args[7], out->shape[0], out->shape[1]);
}

PyDoc_STRVAR(iconv_scratch_doc, "iconv_scratch(products): the floats of scratch for iconv, where an element of the result is a sum of so many.");

static PyObject *py_iconv_scratch(PyObject *self, PyObject *products)
{
    (void)self;
    const size_t depth = PyLong_AsSize_t(products);
    return PyErr_Occurred() ? NULL : PyLong_FromSize_t(ptir_isa_in_use()->igemm_scratch() + ptir_patch_floats(depth));
}

PyDoc_STRVAR(windows_doc,
             "windows(out, x, weights, geometry, first, kind, epilogue=None): places [first, first + m) of what windows see of each channel for itself.\n"
             "out is [m, channels]; weights is [taps, channels], and any array where the kind is not WEIGHTED; else as conv.");

static void run_windows(const call *c, ptir_watch *watch)
{
    const Py_buffer *out = c->view;
    ptir_isa_in_use()->windows(out->buf, out->strides[0] / out->itemsize, &c->with.windows.x, c->with.windows.kind, c->view[2].buf,
                               c->with.windows.first, out->shape[0], out->shape[1], &c->epilogue, watch);
}

static int windows(call *c, PyObject *const *args)
{
    c->run = run_windows;
    if (!(takes(c, args[0], 2, "f", 1) && takes(c, args[1], 4, "f", 0) && takes(c, args[2], 2, "f", 0)))
        return 0;
    const Py_buffer *out = c->view, *weights = &c->view[2];
    ptir_patches *x = &c->with.windows.x;
    Py_ssize_t first = PyLong_AsSsize_t(args[4]);
    long kind = PyLong_AsLong(args[5]);
    if (PyErr_Occurred() || !patches_of(x, &c->view[1], args[3], first, out->shape[0]))
        return 0;
    c->with.windows.first = (size_t)first, c->with.windows.kind = (int)kind;
    int has_weights = (size_t)weights->shape[0] == x->window[0] * x->window[1] && weights->shape[1] == out->shape[1] && is_dense(weights);
    return ((x->channels == 1 && (size_t)out->shape[1] == x->groups && (out->shape[1] == 1 || out->strides[1] == out->itemsize) &&
             kind >= 0 && kind <= PTIR_MIN && (kind != PTIR_WEIGHTED || has_weights)) ||
            fail("an array does not have the shape that the windows give")) &&
           ends(c, args[6], out->shape[0], out->shape[1], out->strides[0], SIZE_MAX);
}

PyDoc_STRVAR(layer_norm_doc, "layer_norm(out, x, gamma, beta, epsilon): of the rows of x, [rows, n]; all arrays are dense, of f32.");

static void run_layer_norm(const call *c, ptir_watch *watch)
{
    const Py_buffer *v = c->view;
    ptir_isa_in_use()->layer_norm(v[0].buf, v[1].buf, v[2].buf, v[3].buf, v[0].shape[0], v[0].shape[1], c->with.epsilon, watch);
}

static int layer_norm(call *c, PyObject *const *args)
{
    int good = 1;
    c->run = run_layer_norm;
    c->with.epsilon = PyFloat_AsDouble(args[4]);
    if (PyErr_Occurred())
        return 0;
    for (int i = 0; i < 4; i++)
        if (!takes(c, args[i], i < 2 ? 2 : 1, "f", i == 0))
            return 0;
    const Py_buffer *v = c->view;
    for (int i = 0; i < 4; i++)
        good = good && is_dense(&v[i]) && v[i].shape[v[i].ndim - 1] == v[0].shape[1] && (i > 1 || v[i].shape[0] == v[0].shape[0]);
    return good || fail("the arrays are not dense rows of one length");
}

PyDoc_STRVAR(fold_doc, "fold(out, x, kind): the SUM, MAX or MIN over the middle axis of x, [batch, m, n] of f32 in order along the last\n"
                       "axis; out is [batch, n], its rows in order.");

static void run_fold(const call *c, ptir_watch *watch)
{
    const Py_ssize_t *x = c->view[1].shape;
    ptir_isa_in_use()->fold(c->view[0].buf, matrix(&c->view[1]), c->with.number, x[0], x[1], x[2], watch);
}

static int fold(call *c, PyObject *const *args)
{
    long kind = PyLong_AsLong(args[2]);
    c->run = run_fold, c->with.number = (int)kind;
    if (PyErr_Occurred() || !takes(c, args[0], 2, "f", 1) || !takes(c, args[1], 3, "f", 0))
        return 0;
    const Py_buffer *view = c->view;
    const Py_ssize_t *out = view[0].shape, *x = view[1].shape;
    return (out[0] == x[0] && out[1] == x[2] && (kind == PTIR_SUM || kind == PTIR_MAX || kind == PTIR_MIN) && is_dense(&view[0]) &&
            (x[2] == 1 || view[1].strides[2] == view[1].itemsize)) ||
           fail("the arrays do not fit each other, or do not lie in order");
}

PyDoc_STRVAR(largest_doc, "largest(out, x): the first place of a largest element of each row of x, [rows, n] of f32, n > 0, in order along the\n"
                          "rows; that of a NaN if there is one. out is [rows] of 32 or 64 bits.");

static void run_largest(const call *c, ptir_watch *watch)
{
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    ptir_isa_in_use()->largest(out->buf, out->itemsize == 8, x->buf, x->strides[0] / x->itemsize, x->shape[0], x->shape[1], watch);
}

static int largest(call *c, PyObject *const *args)
{
    c->run = run_largest;
    if (!takes(c, args[0], 1, "ilq", 1) || !takes(c, args[1], 2, "f", 0))
        return 0;
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    return (is_dense(out) && out->shape[0] == x->shape[0] && x->shape[1] > 0 && x->shape[1] <= INT32_MAX &&
            (x->shape[1] == 1 || x->strides[1] == x->itemsize)) ||
           fail("the arrays do not fit each other, or do not lie in order");
}

PyDoc_STRVAR(byte_sums_doc, "byte_sums(out, x): the sum of each row of x, [rows, n] of bytes in order along the rows, in 32 bits, which wrap.\n"
                            "out is [rows] of 32-bit integers.");

static void run_byte_sums(const call *c, ptir_watch *watch)
{
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    ptir_isa_in_use()->byte_sums(out->buf, x->buf, x->format[0] == 'b', x->strides[0], x->shape[0], x->shape[1], watch);
}

static int byte_sums(call *c, PyObject *const *args)
{
    c->run = run_byte_sums;
    if (!takes(c, args[0], 1, "iI", 1) || !takes(c, args[1], 2, "bB", 0))
        return 0;
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    return (is_dense(out) && out->shape[0] == x->shape[0] && (x->shape[1] == 1 || x->strides[1] == 1)) ||
           fail("the arrays do not fit each other, or do not lie in order");
}

PyDoc_STRVAR(trees_doc, "trees(out, x, nodes, roots, leaves, targets, weights, kind): the SUM, MAX or MIN of the weights of the leaves that\n"
                        "each row of x, [rows, features], reaches, for each target; out is [rows, targets], both of f32 or of f64.\n"
                        "nodes, roots, leaves [nodes, 2] and targets are si32, as trees.h says, weights like out.");

static void run_trees(const call *c, ptir_watch *watch)
{
    (c->view[0].itemsize == 4 ? ptir_trees_f32 : ptir_trees_f64)(&c->with.forest, watch);
}

/* Whether all nodes, leaves and targets are there; find which questions the nodes ask. */
static int is_forest(ptir_forest *f, const Py_buffer *nodes, size_t targets, size_t wide)
{
    const int32_t *word = nodes->buf, count = (int32_t)nodes->shape[0];
    f->asks = 0, f->whole = 1;
    for (int32_t i = 0; i < count; i++, word += nodes->shape[1]) {
        const int32_t *to = word + wide, *entries = f->leaves + 2 * i;
        int is_leaf = to[1] == i && to[2] == i;
        f->asks |= (to[0] & ~PTIR_TREE_FEATURE) != 0;
        if ((size_t)(to[0] & PTIR_TREE_FEATURE) >= f->features || to[0] < 0 || to[1] >= count || to[2] >= count ||
            (!is_leaf && (to[1] <= i || to[2] <= i)) || entries[0] < 0 || entries[0] > entries[1] || (size_t)entries[1] > targets)
            return 0;
        f->whole = f->whole && (!is_leaf || (size_t)(entries[1] - entries[0]) == f->outputs);
        for (int32_t k = 0; f->whole && k < entries[1] - entries[0]; k++)
            f->whole = f->targets[entries[0] + k] == k;
    }
    for (size_t i = 0; i < targets; i++)
        if (f->targets[i] < 0 || (size_t)f->targets[i] >= f->outputs)
            return 0;
    for (size_t i = 0; i < f->trees; i++)
        if (f->roots[i] < 0 || f->roots[i] >= count)
            return 0;
    return 1;
}

static int trees(call *c, PyObject *const *args)
{
    static const char *const formats[] = {"fd", "fd", "i", "i", "i", "i", "fd"};
    static const int ranks[] = {2, 2, 2, 1, 2, 1, 1};
    long kind = PyLong_AsLong(args[7]);
    int good = !PyErr_Occurred();
    c->run = run_trees;
    for (int i = 0; i < 7 && good; i++)
        good = takes(c, args[i], ranks[i], formats[i], i == 0);
    if (!good)
        return 0;
    const Py_buffer *v = c->view, *x = &v[1];
    ptrdiff_t wide = v[0].itemsize / 4;
    good = kind == PTIR_SUM || kind == PTIR_MAX || kind == PTIR_MIN;
    for (int i = 0; i < 7; i++)
        good = good && (i == 1 || is_dense(&v[i]));
    good = good && v[0].shape[0] == x->shape[0] && x->itemsize == v[0].itemsize && v[6].itemsize == v[0].itemsize &&
           (x->shape[1] == 1 || x->strides[1] == x->itemsize) && v[2].shape[1] == (wide == 1 ? 4 : 6) && v[2].shape[0] <= INT32_MAX &&
           v[4].shape[0] == v[2].shape[0] && v[4].shape[1] == 2 && v[5].shape[0] == v[6].shape[0] && v[5].shape[0] <= INT32_MAX;
    if (!good)
        return fail("the arrays are not dense, or do not fit each other");
    c->with.forest = (ptir_forest){x->buf, v[2].buf, v[6].buf, v[0].buf, v[3].buf, v[4].buf, v[5].buf,
                                   (size_t)x->shape[0], (size_t)v[3].shape[0], (size_t)x->shape[1], (size_t)v[0].shape[1],
                                   x->strides[0] / x->itemsize, (int)kind, 0, 0};
    return is_forest(&c->with.forest, &v[2], (size_t)v[5].shape[0], (size_t)wide) || fail("the trees are not sound");
}

PyDoc_STRVAR(rescaled_doc,
             "rescaled(out, x, scaling, along): (x - zero) * scale of [rows, n] integers or f32 as f32, or as integers: divided by the\n"
             "output's scale, rounded, its zero point added, saturated. scaling, of f64, has the rows scale, zero, output's scale and\n"
             "output's zero, and a column for each row in turn, or with along for each column.");

static void run_rescaled(const call *c, ptir_watch *watch)
{
    const Py_buffer *v = c->view;
    const double *s = v[2].buf;
    size_t channels = (size_t)v[2].shape[1];
    ptir_scaling scaling = {s, s + channels, s + 2 * channels, s + 3 * channels};
    ptir_isa_in_use()->rescaled(v[0].buf, v[0].format[0], v[1].buf, v[1].format[0], v[0].shape[0], v[0].shape[1], channels, c->with.number,
                                scaling, watch);
}

static int rescaled(call *c, PyObject *const *args)
{
    long along = PyLong_AsLong(args[3]);
    c->run = run_rescaled, c->with.number = (int)along;
    if (PyErr_Occurred() || !takes(c, args[0], 2, "bBhHiIf", 1) || !takes(c, args[1], 2, "bBhHiIf", 0) || !takes(c, args[2], 2, "d", 0))
        return 0;
    const Py_ssize_t *out = c->view[0].shape, *x = c->view[1].shape, *s = c->view[2].shape;
    return (is_dense(&c->view[0]) && is_dense(&c->view[1]) && is_dense(&c->view[2]) && out[0] == x[0] && out[1] == x[1] && s[0] == 4 &&
            s[1] > 0 && (along == 0 || (along == 1 && s[1] == x[1]))) ||
           fail("the arrays are not dense, or do not fit each other");
}

PyDoc_STRVAR(transpose_doc, "transpose(out, x, is_large): copy x, [batch, m, n] in order along m, to out, in order along n; by non-temporal stores\n"
                       "if the whole is large. Items of four bytes.");

static void run_transpose(const call *c, ptir_watch *watch)
{
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    Py_ssize_t size = x->itemsize;
    ptir_transposed to = {out->buf, out->strides[0] / size, out->strides[1] / size};
    ptir_transposed from = {x->buf, x->strides[0] / size, x->strides[2] / size};
    (void)watch;
    ptir_isa_in_use()->transpose(to, from, x->shape[0], x->shape[1], x->shape[2], c->with.number);
}

static int transpose(call *c, PyObject *const *args)
{
    c->run = run_transpose;
    if ((c->with.number = PyObject_IsTrue(args[2])) < 0 || !takes(c, args[0], 3, "fiI", 1) || !takes(c, args[1], 3, "fiI", 0))
        return 0;
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    Py_ssize_t size = x->itemsize;
    return (memcmp(out->shape, x->shape, 3 * sizeof *out->shape) == 0 && size == 4 && out->itemsize == 4 &&
            (x->strides[1] == size || x->shape[1] == 1) && (out->strides[2] == size || out->shape[2] == 1)) ||
           fail("shapes differ, or the strides are not those of stacked transposed matrices");
}

PyDoc_STRVAR(copy_doc, "copy(out, x): copy x to out, of the same shape and unsigned integers of the same size, any strides.");

/* Copy axes from `axis` on between arrays that do not overlap. `rank` axes have these extents; they are the last axes of each
 * array. */
static void copy_axes(char *to, const char *from, const Py_buffer *out, const Py_buffer *x, const Py_ssize_t *extents, int rank, int axis)
{
    if (axis == rank) {
        memcpy(to, from, (size_t)out->itemsize);
        return;
    }
    Py_ssize_t n = extents[axis], size = out->itemsize, step = out->strides[out->ndim - rank + axis];
    Py_ssize_t other = x->strides[x->ndim - rank + axis];
    if (axis < rank - 1)
        for (Py_ssize_t i = 0; i < n; i++)
            copy_axes(to + i * step, from + i * other, out, x, extents, rank, axis + 1);
    else if (step == size && other == size)
        memcpy(to, from, (size_t)(n * size));
    else
        for (Py_ssize_t i = 0; i < n; i++)
            switch (size) {
            case 1: to[i * step] = from[i * other]; break;
            case 2: memcpy(to + i * step, from + i * other, 2); break;
            case 4: memcpy(to + i * step, from + i * other, 4); break;
            default: memcpy(to + i * step, from + i * other, 8); break;
            }
}

static void run_copy(const call *c, ptir_watch *watch)
{
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    (void)watch;
    copy_axes(out->buf, x->buf, out, x, out->shape, out->ndim, 0);
}

static int copy(call *c, PyObject *const *args)
{
    c->run = run_copy;
    if (!takes(c, args[0], 0, "BHILQ", 1) || !takes(c, args[1], 0, "BHILQ", 0))
        return 0;
    const Py_buffer *out = &c->view[0], *x = &c->view[1];
    return (out->ndim == x->ndim && out->itemsize == x->itemsize &&
            (!out->ndim || memcmp(out->shape, x->shape, (size_t)out->ndim * sizeof *out->shape) == 0)) ||
           fail("the arrays differ in shape or size of items");
}

PyDoc_STRVAR(take_doc, "take(out, x, numbers): the rows of x, [rows, bytes], with these numbers; out is [count, bytes], all are\n"
                       "dense. Where there is no such row, out stays.");

/* Item i of a buffer of integers; a negative number becomes too large. */
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

static void run_take(const call *c, ptir_watch *watch)
{
    enum { ROWS_AHEAD = 2, LINES_AHEAD = 64, LINE = 64 };
    const Py_buffer *numbers = &c->view[2];
    Py_ssize_t n = numbers->shape[0], width = c->view[1].shape[1];
    uint64_t rows = (uint64_t)c->view[1].shape[0], number;
    char *out = c->view[0].buf;
    const char *x = c->view[1].buf;
    (void)watch;
    for (Py_ssize_t i = 0; i < n; i++, out += width) {
        if ((number = number_at(numbers, i + ROWS_AHEAD < n ? i + ROWS_AHEAD : i)) < rows)
            for (Py_ssize_t at = 0; at < width && at < LINES_AHEAD * LINE; at += LINE)
                ptir_prefetch(x + (Py_ssize_t)number * width + at);
        if ((number = number_at(numbers, i)) < rows)
            memcpy(out, x + (Py_ssize_t)number * width, (size_t)width);
    }
}

static int take_rows(call *c, PyObject *const *args)
{
    c->run = run_take;
    if (!takes(c, args[0], 2, "B", 1) || !takes(c, args[1], 2, "B", 0) || !takes(c, args[2], 1, "bBhHiIlLqQ", 0))
        return 0;
    const Py_buffer *v = c->view;
    return (is_dense(&v[0]) && is_dense(&v[1]) && is_dense(&v[2]) && v[0].shape[0] == v[2].shape[0] && v[0].shape[1] == v[1].shape[1]) ||
           fail("the arrays are not dense, or do not fit each other");
}

PyDoc_STRVAR(window_doc, "window(out, x, start, writes): copy the window of x at start to out, or with writes x to the window of out at start.\n"
                         "The window is moved into the array. Unsigned integers of the same size, any strides; start is dense.");

static void run_window(const call *c, ptir_watch *watch)
{
    const Py_buffer *whole = &c->view[!c->with.number], *part = &c->view[c->with.number], *start = &c->view[2];
    Py_ssize_t offset = 0;
    (void)watch;
    for (int i = 0; i < part->ndim; i++) {
        uint64_t most = (uint64_t)(whole->shape[i] - part->shape[i]), at = number_at(start, i);
        int is_negative = strchr("bhilq", start->format[0]) && at >> 63;
        offset += (Py_ssize_t)(is_negative ? 0 : at < most ? at : most) * whole->strides[i];
    }
    char *to = c->view[0].buf;
    const char *from = c->view[1].buf;
    copy_axes(to + (c->with.number ? offset : 0), from + (c->with.number ? 0 : offset), &c->view[0], &c->view[1], part->shape, part->ndim, 0);
}

static int window(call *c, PyObject *const *args)
{
    c->run = run_window;
    c->with.number = PyObject_IsTrue(args[3]);
    if (c->with.number < 0 || !takes(c, args[0], 0, "BHILQ", 1) || !takes(c, args[1], 0, "BHILQ", 0) ||
        !takes(c, args[2], 1, "bBhHiIlLqQ", 0))
        return 0;
    const Py_buffer *whole = &c->view[!c->with.number], *part = &c->view[c->with.number], *start = &c->view[2];
    int fits = whole->ndim == part->ndim && whole->itemsize == part->itemsize && start->shape[0] == part->ndim && is_dense(start);
    for (int i = 0; fits && i < part->ndim; i++)
        fits = part->shape[i] <= whole->shape[i];
    return fits || fail("the window does not fit the array");
}

/* Elementwise operations on integers and i1. */
#define INTEGER_OPS(X)                                                                                                 \
    X(copyto, x) X(add, x + y) X(subtract, x - y) X(multiply, x * y) X(negative, 0 - x) X(bitwise_and, x & y)          \
    X(bitwise_or, x | y) X(bitwise_xor, x ^ y) X(logical_and, x && y) X(logical_or, x || y) X(logical_xor, !x != !y)   \
    X(logical_not, !x) X(less, (int64_t)x < (int64_t)y) X(less_equal, (int64_t)x <= (int64_t)y) X(equal, x == y)       \
    X(not_equal, x != y) X(greater, (int64_t)x > (int64_t)y) X(greater_equal, (int64_t)x >= (int64_t)y)                \
    X(maximum, (int64_t)x > (int64_t)y ? x : y) X(minimum, (int64_t)x < (int64_t)y ? x : y)
#define INTEGER_ENUM(name, value) INTEGER_##name,
enum { INTEGER_OPS(INTEGER_ENUM) INTEGER_COUNT, SOME = 64 };

/* Convert `n` items of a format, `step` bytes apart, to 64 bits, and back: truncated, or as floats. */
static void widened(uint64_t *to, const char *from, Py_ssize_t step, size_t n, char format)
{
#define WIDEN(type)                                                                                                    \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        type item;                                                                                                     \
        memcpy(&item, from + (Py_ssize_t)i * step, sizeof item);                                                       \
        to[i] = (uint64_t)item;                                                                                        \
    }                                                                                                                  \
    break;
    switch (format) {
    case 'b': WIDEN(int8_t)
    case 'B':
    case '?': WIDEN(uint8_t)
    case 'h': WIDEN(int16_t)
    case 'H': WIDEN(uint16_t)
    case 'i': WIDEN(int32_t)
    case 'I': WIDEN(uint32_t)
    default: WIDEN(uint64_t)
    }
#undef WIDEN
}

/* Convert floats to the integers of the format `to`: truncated, and those out of range to the nearest one; NaN is 0. */
static void truncated(uint64_t *made, const char *from, Py_ssize_t step, size_t n, char format, char to)
{
    const int is_signed = strchr("bhilq", to) != NULL, bits = strchr("bB", to) ? 8 : strchr("hH", to) ? 16 : strchr("iI", to) ? 32 : 64;
    const double end = 2.0 * (double)((uint64_t)1 << (bits - is_signed - 1)), low = is_signed ? -end : 0.0;
    for (size_t i = 0; i < n; i++) {
        double x;
        float narrow;
        if (format == 'f')
            memcpy(&narrow, from + (Py_ssize_t)i * step, sizeof narrow), x = (double)narrow;
        else
            memcpy(&x, from + (Py_ssize_t)i * step, sizeof x);
        if (x >= end)
            made[i] = UINT64_MAX >> (64 - bits + is_signed);
        else if (x >= low)
            made[i] = is_signed ? (uint64_t)(int64_t)x : (uint64_t)x;
        else
            made[i] = x < low ? (uint64_t)(int64_t)low : 0;
    }
}

static void narrowed(char *to, const uint64_t *from, Py_ssize_t step, size_t n, char format)
{
#define NARROW(type, value)                                                                                            \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        type item = (type)(value);                                                                                     \
        memcpy(to + (Py_ssize_t)i * step, &item, sizeof item);                                                         \
    }                                                                                                                  \
    break;
    switch (format) {
    case '?': NARROW(uint8_t, from[i] != 0)
    case 'b':
    case 'B': NARROW(uint8_t, from[i])
    case 'h':
    case 'H': NARROW(uint16_t, from[i])
    case 'i':
    case 'I': NARROW(uint32_t, from[i])
    case 'f': NARROW(float, (int64_t)from[i])
    case 'd': NARROW(double, (int64_t)from[i])
    default: NARROW(uint64_t, from[i])
    }
#undef NARROW
}

static void integers_of(int op, uint64_t *to, const uint64_t *one, const uint64_t *other, size_t n)
{
#define INTEGER_CASE(name, value)                                                                                      \
    case INTEGER_##name:                                                                                               \
        for (size_t i = 0; i < n; i++) {                                                                               \
            uint64_t x = one[i], y = other[i];                                                                         \
            (void)y;                                                                                                   \
            to[i] = (uint64_t)(value);                                                                                 \
        }                                                                                                              \
        break;
    switch (op) { INTEGER_OPS(INTEGER_CASE) }
#undef INTEGER_CASE
}

/* Whether an axis can be processed without conversions: the three formats have one size, the result is dense along it, and each
 * operand is, too, or is one element. */
static int is_native(const call *c, const Py_ssize_t *step)
{
    const Py_ssize_t size = c->view[0].itemsize;
    int fits = step[0] == size && !strchr("fd?", c->view[0].format[0]);
    for (int k = 1; k < 3; k++)
        fits = fits && c->view[k].itemsize == size && (step[k] == size || !step[k]) && !strchr("fd?", c->view[k].format[0]);
    return fits;
}

/* Operations that give the same bits with and without signs, in words of the operands' size. Returns 0 for others. */
static int of_native(const call *c, char *to, const char *one, const char *other, size_t n, const Py_ssize_t *step)
{
    typedef uint8_t byte __attribute__((may_alias));
    typedef uint32_t word __attribute__((aligned(1), may_alias));
#define EVERY(type, x, y, value)                                                                                       \
    for (size_t i = 0; i < n; i++)                                                                                     \
        ((type *)to)[i] = (type)(value((x), (y)));
#define IN_WORDS(type, value)                                                                                          \
    {                                                                                                                  \
        const type *a = (const type *)one, *b = (const type *)other;                                                   \
        if (step[1] && step[2])                                                                                        \
            EVERY(type, a[i], b[i], value)                                                                             \
        else if (step[1]) {                                                                                            \
            const type y = *b;                                                                                         \
            EVERY(type, a[i], y, value)                                                                                \
        } else {                                                                                                       \
            const type x = *a;                                                                                         \
            EVERY(type, x, step[2] ? b[i] : *b, value)                                                                 \
        }                                                                                                              \
        return 1;                                                                                                      \
    }
#define IN_ANY(name, value)                                                                                            \
    case INTEGER_##name:                                                                                               \
        switch (c->view[0].itemsize) {                                                                                 \
        case 1: IN_WORDS(byte, value)                                                                               \
        case 4: IN_WORDS(word, value)                                                                              \
        }                                                                                                              \
        break;
#define PLUS(x, y) ((uint32_t)(x) + (uint32_t)(y))
#define LESS_BY(x, y) ((uint32_t)(x) - (uint32_t)(y))
#define TIMES_BY(x, y) ((uint32_t)(x) * (uint32_t)(y))
#define EITHER_BIT(x, y) ((x) ^ (y))
    switch (c->with.number) {
        IN_ANY(add, PLUS)
        IN_ANY(subtract, LESS_BY)
        IN_ANY(multiply, TIMES_BY)
        IN_ANY(bitwise_xor, EITHER_BIT)
    }
#undef EITHER_BIT
#undef TIMES_BY
#undef LESS_BY
#undef PLUS
#undef IN_ANY
#undef IN_WORDS
#undef EVERY
    return 0;
}

/* Process the axes from `axis` on. Operands have as many axes as the result. */
static void integer_axes(const call *c, char *to, const char *one, const char *other, int axis)
{
    const Py_buffer *out = &c->view[0], *x = &c->view[1], *y = &c->view[2];
    Py_ssize_t step[] = {0, 0, 0}, n = 1;
    if (axis < out->ndim)
        n = out->shape[axis], step[0] = out->strides[axis], step[1] = x->strides[axis], step[2] = y->strides[axis];
    if (axis + 1 < out->ndim) {
        for (Py_ssize_t i = 0; i < n; i++)
            integer_axes(c, to + i * step[0], one + i * step[1], other + i * step[2], axis + 1);
        return;
    }
    if (is_native(c, step) && of_native(c, to, one, other, (size_t)n, step))
        return;
    for (Py_ssize_t i = 0; i < n; i += SOME) {
        uint64_t result[SOME], a[SOME], b[SOME];
        size_t here = smallest(SOME, (size_t)(n - i));
        if (x->format[0] == 'f' || x->format[0] == 'd')
            truncated(a, one + i * step[1], step[1], here, x->format[0], out->format[0]);
        else
            widened(a, one + i * step[1], step[1], here, x->format[0]);
        widened(b, other + i * step[2], step[2], here, y->format[0]);
        integers_of(c->with.number, result, a, b, here);
        narrowed(to + i * step[0], result, step[0], here, out->format[0]);
    }
}

static void run_integers(const call *c, ptir_watch *watch)
{
    (void)watch;
    integer_axes(c, c->view[0].buf, c->view[1].buf, c->view[2].buf, 0);
}

PyDoc_STRVAR(integers_doc, "integers(out, x, y, number): an elementwise operation of INTEGER_OPS on integers and bools that wrap, all of one\n"
                           "shape; a copy may be to floats, or from floats, which are truncated and kept in range. No operand is of 64 bits without a sign where signs count.");

static int integers(call *c, PyObject *const *args)
{
    long op = PyLong_AsLong(args[3]);
    c->run = run_integers, c->with.number = (int)op;
    if (PyErr_Occurred() || !takes(c, args[0], 0, "bBhHiIlLqQ?fd", 1) || !takes(c, args[1], 0, op == INTEGER_copyto ? "bBhHiIlLqQ?fd" : "bBhHiIlLqQ?", 0) ||
        !takes(c, args[2], 0, "bBhHiIlLqQ?", 0))
        return 0;
    int fits = op >= 0 && op < INTEGER_COUNT;
    for (int k = 1; k < 3; k++)
        fits = fits && c->view[k].ndim == c->view[0].ndim &&
               (!c->view[0].ndim || memcmp(c->view[0].shape, c->view[k].shape, (size_t)c->view[0].ndim * sizeof(Py_ssize_t)) == 0);
    return fits || fail("the arrays differ in shape, or there is no such operation");
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
                        (uint8_t)is_output, held == PTIR_ROWS, 0, 0, 0};
}

PyDoc_STRVAR(tiles_doc, "tiles(code, kinds, arrays, inputs, rows, columns, whole_rows, scratch, is_large=False): run a tile program. `arrays`, the\n"
                        "first registers, are [rows, columns], or [rows, 1] where their kind is ROWS, of f32, bool, f16 or the\n"
                        "bits of bf16, or bytes, or inputs of int32; the first `inputs` are read, the rest written, by non-temporal stores\n"
                        "if the whole is large.");

static void run_tiles(const call *c, ptir_watch *watch)
{
    const ptir_program *p = &c->with.program;
    if (c->prepared)
        ptir_run_prepared(p, c->prepared, watch);
    else
        ptir_run(p, 0, p->rows, c->view[c->held - 1].buf, watch);
}

/* Prepare a call to be run repeatedly. */
static int prepares(call *c)
{
    size_t size = ptir_prepared_size(&c->with.program);
    if (size && !(c->prepared = PyMem_Malloc(size)))
        return PyErr_NoMemory(), 0;
    if (size)
        ptir_prepare(&c->with.program, c->view[c->held - 1].buf, c->prepared, size);
    return 1;
}

/* The order of the buffers: the code, the kinds, the arrays, and scratch. */
static int tiles(call *c, PyObject *const *args)
{
    ptir_array *made = (ptir_array *)c->with.program.arrays;
    Py_ssize_t number[3];
    int flags[2] = {PyObject_IsTrue(args[6]), PyObject_IsTrue(args[8])};
    c->run = run_tiles;
    for (int i = 0; i < 3; i++)
        if ((number[i] = PyLong_AsSsize_t(args[3 + i])) < 0)
            return PyErr_Occurred() ? 0 : fail("a number is negative");
    if (flags[0] < 0 || flags[1] < 0 || !PyTuple_Check(args[2]))
        return PyErr_Occurred() ? 0 : fail("the arrays are not a tuple");
    for (int i = 0; i < 2; i++, c->held++)
        if (PyObject_GetBuffer(args[i], &c->view[i], PyBUF_SIMPLE) < 0)
            return 0;
    const Py_buffer *code = &c->view[0], *kinds = &c->view[1];
    Py_ssize_t count = PyTuple_Size(args[2]), inputs = number[0];
    ptir_program p = {code->buf, (size_t)code->len / sizeof(ptir_instruction), kinds->buf, made, (size_t)count, (size_t)kinds->len,
                      (size_t)number[1], (size_t)number[2], flags[0], flags[1]};
    if (count > MAX_ARRAYS || count > kinds->len || !ptir_checks_kinds(&p))
        return fail("too many arrays or registers");
    if (!ptir_checks_code(&p, (size_t)inputs))
        return fail("an instruction is out of range");
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!takes(c, PyTuple_GetItem(args[2], i), 2, i >= inputs ? "f?eHbB" : "f?eHbBi", i >= inputs))
            return 0;
        made[i] = array(&c->view[2 + i], p.kinds[i], i >= inputs);
        if (!checks_array(&c->view[2 + i], &p, p.kinds[i]) || (i >= inputs && !is_dense(&c->view[2 + i]) && !fail("an output is not dense")))
            return 0;
    }
    ptir_find_direct(&p, made);
    c->with.program = p;
    return takes(c, args[7], 1, "f", 1) && has_room(&c->view[c->held - 1], ptir_scratch(&p));
}

PyDoc_STRVAR(attention_doc,
             "attention(out, q, k, v, scratch, kept, low, kind, code, kinds, arrays): softmax(q k^T) v of heads that have k and v in\n"
             "common. q is [heads, rows, depth], k [columns, depth], v [columns, width], out [heads, rows, width] in order along the last\n"
             "axis, all of f32, or with PAIR_PANEL and kind BF16 all the bits of bf16. kept is empty, or has of each row the first column that is kept and the one after the last, int32\n"
             "[rows, 2]; the others score low. kind: FLOAT, F16 or BF16, to which every step is rounded. code, not empty, is a tile\n"
             "program that is first done to the scores, on [columns, rows]: arrays are [heads, rows, columns], one of them None for the\n"
             "scores, all kinds FULL or LOCAL, and its only output is the register after them. scratch is attention_floats long.");

static void run_attention(const call *c, ptir_watch *watch)
{
    ptir_attention x = c->with.attention.x;
    x.scores = c->with.attention.scores.length ? &c->with.attention.scores : NULL;
    (x.q.kind == PTIR_BF16 ? ptir_isa_in_use()->pair_attention : ptir_isa_in_use()->attention)(&x, c->view[4].buf, watch);
}

/* The floats of scratch for attention of f32 or bf16. The program on the scores needs memory for each of its registers. */
static size_t attention_floats(int of_pairs, size_t columns, size_t depth, size_t width, const uint8_t *kinds, size_t registers)
{
    enum { TALL = 1 << 10, WIDE = 1 << 6 }; /* most columns and rows processed at a time */
    ptir_program p = {.kinds = kinds, .register_count = registers, .rows = TALL, .columns = WIDE};
    const ptir_isa *isa = ptir_isa_in_use();
    return (of_pairs ? isa->pair_attention_scratch : isa->attention_scratch)(columns, depth, width) + ptir_scratch(&p);
}

/* The order of the buffers: those of the arguments up to `kept`, the code, the kinds, and the arrays except the scores. */
static int attention(call *c, PyObject *const *args)
{
    static const int ranks[] = {3, 3, 2, 2, 1, 2};
    ptir_array *made = (ptir_array *)c->with.program.arrays;
    double low = PyFloat_AsDouble(args[6]);
    long kind = PyLong_AsLong(args[7]);
    c->run = run_attention;
    if (PyErr_Occurred())
        return 0;
    for (int i = 0; i < 6; i++)
        if (!takes(c, args[i], ranks[i], i < 4 ? "fH" : i < 5 ? "f" : "i", i == 0 || i == 4))
            return 0;
    for (int i = 8; i < 10; i++, c->held++)
        if (PyObject_GetBuffer(args[i], &c->view[c->held], PyBUF_SIMPLE) < 0)
            return 0;
    if (!PyTuple_Check(args[10]))
        return fail("the arrays are not a tuple");
    const Py_buffer *v = c->view, *out = &v[0], *kept = &v[5], *code = &v[6], *kinds = &v[7];
    const Py_ssize_t *q = v[1].shape, *k = v[2].shape, *shape = out->shape, size = out->itemsize;
    const int of_pairs = out->format[0] == 'H';
    Py_ssize_t inputs = PyTuple_Size(args[10]);
    if (q[0] != shape[0] || q[1] != shape[1] || q[2] != k[1] || k[0] != v[3].shape[0] || v[3].shape[1] != shape[2] || k[0] < 1 ||
        k[0] > INT32_MAX || (shape[2] > 1 && out->strides[2] != size) || (kind != PTIR_FLOAT && kind != PTIR_F16 && kind != PTIR_BF16))
        return fail("the arrays do not fit each other, or do not lie in order");
    for (int i = 1; i < 4; i++)
        if (v[i].format[0] != out->format[0])
            return fail("the arrays are not of the same dtype");
    if (of_pairs && (kind != PTIR_BF16 || !ptir_isa_in_use()->pair_attention))
        return fail("this machine has no kernel for attention of such arrays");
    if (kept->shape[0] && (kept->shape[0] != shape[1] || kept->shape[1] != 2 || !is_dense(kept)))
        return fail("there are not two kept columns for each row");
    for (Py_ssize_t i = 0; i < 2 * kept->shape[0]; i++)
        if (((const int32_t *)kept->buf)[i] < 0 || ((const int32_t *)kept->buf)[i] > k[0])
            return fail("a kept column is not there");
    ptir_program p = {code->buf, (size_t)code->len / sizeof(ptir_instruction), kinds->buf, made, (size_t)inputs + 1, (size_t)kinds->len,
                      (size_t)k[0], (size_t)shape[1], 0, 0};
    const int operands = of_pairs ? PTIR_BF16 : PTIR_FLOAT;
    ptir_attention x = {.out = out->buf, .out_head = out->strides[0] / size, .out_row = out->strides[1] / size,
                        .q = {v[1].buf, v[1].strides[0] / size, v[1].strides[1] / size, v[1].strides[2] / size, operands},
                        .k = {v[2].buf, 0, v[2].strides[0] / size, v[2].strides[1] / size, operands},
                        .v = {v[3].buf, 0, v[3].strides[0] / size, v[3].strides[1] / size, operands},
                        .heads = (size_t)shape[0], .rows = (size_t)shape[1], .columns = (size_t)k[0], .depth = (size_t)k[1],
                        .width = (size_t)shape[2], .kept = kept->shape[0] ? kept->buf : NULL, .low = (float)low, .kind = (int)kind,
                        .own = (size_t)inputs};
    if (p.length) {
        if (inputs + 1 > MAX_ARRAYS || inputs + 1 > kinds->len || !ptir_checks_kinds(&p) || !ptir_checks_code(&p, (size_t)inputs))
            return fail("too many arrays or registers, or an instruction is out of range");
        for (Py_ssize_t i = 0; i < kinds->len; i++)
            if (p.kinds[i] == PTIR_ROWS)
                return fail("scores have no register with one float per row");
        for (Py_ssize_t i = 0; i < inputs; i++) {
            PyObject *given = PyTuple_GetItem(args[10], i);
            if (given == Py_None && x.own == (size_t)inputs) {
                x.own = (size_t)i;
                made[i] = (ptir_array){out->buf, 1, 1, PTIR_FLOAT, 0, 0, 0, 0, 0}; /* the scores: their address is not known yet */
                continue;
            }
            if (!takes(c, given, 3, "f?eHbBi", 0))
                return 0;
            const Py_buffer *view = &c->view[c->held - 1];
            if (view->shape[0] != shape[0] || view->shape[1] != shape[1] || view->shape[2] != k[0])
                return fail("an array does not have the shape of the scores");
            made[i] = (ptir_array){view->buf, view->strides[2] / view->itemsize, view->strides[1] / view->itemsize, kind_of(view),
                                   0, 0, 0, 0, view->strides[0] / view->itemsize};
        }
        made[inputs] = (ptir_array){out->buf, 1, 1, PTIR_FLOAT, 1, 0, 0, 0, 0};
        if (x.own == (size_t)inputs)
            return fail("no array is the scores");
        ptir_find_direct(&p, made);
    }
    c->with.attention.scores = p, c->with.attention.x = x;
    return has_room(&c->view[4], attention_floats(of_pairs, x.columns, x.depth, x.width, p.kinds, p.register_count));
}

PyDoc_STRVAR(attention_floats_doc, "attention_floats(columns, depth, width, kinds, of_pairs): the floats of scratch of attention, of f32 or of bf16.");

static PyObject *py_attention_floats(PyObject *self, PyObject *args)
{
    Py_buffer kinds;
    Py_ssize_t columns, depth, width;
    int of_pairs;
    (void)self;
    if (!PyArg_ParseTuple(args, "nnny*p", &columns, &depth, &width, &kinds, &of_pairs))
        return NULL;
    of_pairs = of_pairs && ptir_isa_in_use()->pair_attention;
    size_t floats = attention_floats(of_pairs, (size_t)columns, (size_t)depth, (size_t)width, kinds.buf, (size_t)kinds.len);
    PyBuffer_Release(&kinds);
    return PyLong_FromSize_t(floats);
}

/* Take the tasks of a tuple. The call keeps a reference to the tuple. */
static PyTypeObject *task_type;
static const call *call_of(PyObject *task);

static int calls(call *c, PyObject *tasks)
{
    if (!PyTuple_Check(tasks))
        return fail("the tasks are not a tuple");
    c->count = (size_t)PyTuple_Size(tasks);
    if (!(c->calls = PyMem_Calloc(c->count + 1, sizeof *c->calls)))
        return PyErr_NoMemory(), 0;
    for (size_t i = 0; i < c->count; i++) {
        PyObject *task = PyTuple_GetItem(tasks, (Py_ssize_t)i);
        if (!PyObject_TypeCheck(task, task_type))
            return fail("what is to run is not a task");
        c->calls[i] = call_of(task);
    }
    return 1;
}

static void refuse(const call *c, ptir_watch *watch) { watch->stopped = 1, watch->refused = c; }

/* several(tasks, threads): run the tasks one after the other, or on several threads in any order. */
static void run_in_turn(const call *c, ptir_watch *watch)
{
    for (size_t i = 0; i < c->count && !watch->stopped; i++)
        c->calls[i]->run(c->calls[i], watch);
}

static void run_part(const void *data, size_t i, ptir_watch *watch)
{
    const call *part = ((const call *)data)->calls[i];
    part->run(part, watch);
}

static void run_together(const call *c, ptir_watch *watch) { ptir_together(run_part, c, c->count, c->with.helpers, watch); }

static int several(call *c, PyObject *const *args)
{
    Py_ssize_t threads = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred() || threads < 1)
        return PyErr_Occurred() ? 0 : fail("too few threads");
    c->run = threads > 1 ? run_together : run_in_turn;
    c->with.helpers = (size_t)threads - 1;
    return calls(c, args[0]);
}

/* inside(numbers, extent, refuse): continue if all numbers are in [0, extent). Else call `refuse`, which raises. */
static void run_inside(const call *c, ptir_watch *watch)
{
    for (Py_ssize_t i = 0; i < c->view[0].shape[0]; i++)
        if (number_at(&c->view[0], i) >= c->with.limit) {
            refuse(c, watch);
            return;
        }
}

static int inside(call *c, PyObject *const *args)
{
    c->run = run_inside;
    c->with.limit = PyLong_AsUnsignedLongLong(args[1]);
    return !PyErr_Occurred() && takes(c, args[0], 1, "bBhHiIlLqQ", 0) && (is_dense(&c->view[0]) || fail("the numbers are not dense"));
}

/* branch(flag, tasks): run the first of two tasks if the flag is set, else the second. */
static void run_branch(const call *c, ptir_watch *watch)
{
    const call *chosen = c->calls[*(const uint8_t *)c->view[0].buf == 0];
    chosen->run(chosen, watch);
}

static int branch(call *c, PyObject *const *args)
{
    c->run = run_branch;
    return takes(c, args[0], 0, "?", 0) && calls(c, args[1]) &&
           ((c->count == 2 && c->view[0].ndim == 0) || fail("a branch has a flag and two tasks"));
}

enum { ITERATION = 1 << 12 }; /* least work that an iteration counts as, between two interrupt checks */

/* repeat(flag, tasks, limit, refuse): run the first of two tasks. While the flag is set, run the second and the first again. After
 * `limit` iterations call `refuse`, which raises. */
static void run_repeat(const call *c, ptir_watch *watch)
{
    const volatile uint8_t *flag = c->view[0].buf;
    for (uint64_t step = 0;; step++) {
        c->calls[0]->run(c->calls[0], watch);
        if (is_stopped(watch, ITERATION) || !*flag)
            return;
        if (step == c->with.limit) {
            refuse(c, watch);
            return;
        }
        c->calls[1]->run(c->calls[1], watch);
        if (watch->stopped)
            return;
    }
}

static int repeat(call *c, PyObject *const *args)
{
    c->run = run_repeat;
    c->with.limit = PyLong_AsUnsignedLongLong(args[2]);
    return !PyErr_Occurred() && takes(c, args[0], 0, "?", 0) && calls(c, args[1]) &&
           ((c->count == 2 && c->view[0].ndim == 0) || fail("a loop has a flag and two tasks"));
}

/* walk(tasks, inputs, outputs): for each i, copy x[i] to y for the pairs (y, x) of inputs, run the first task, copy y to x[i] for
 * the pairs (x, y) of outputs, and run the second task. Arrays are as for copy. */
static void run_walk(const call *c, ptir_watch *watch)
{
    for (size_t step = 0; step < c->with.walk.count; step++)
        for (int half = 0; half < 2; half++) {
            size_t first = half ? 2 * c->with.walk.inputs : 0, last = half ? (size_t)c->held : 2 * c->with.walk.inputs;
            if (half)
                c->calls[0]->run(c->calls[0], watch);
            for (size_t i = first; i < last && !watch->stopped; i += 2) {
                const Py_buffer *to = &c->view[i], *from = &c->view[i + 1], *row = half ? from : to;
                Py_ssize_t at = (Py_ssize_t)step * (half ? to : from)->strides[0];
                copy_axes((char *)to->buf + (half ? at : 0), (const char *)from->buf + (half ? 0 : at), to, from, row->shape, row->ndim, 0);
            }
            if (half)
                c->calls[1]->run(c->calls[1], watch);
            if (is_stopped(watch, ITERATION / 2))
                return;
        }
}

static int walk(call *c, PyObject *const *args)
{
    c->run = run_walk;
    if (!calls(c, args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2]))
        return PyErr_Occurred() ? 0 : fail("the pairs are not a tuple");
    Py_ssize_t inputs = PyTuple_Size(args[1]), all = inputs + PyTuple_Size(args[2]);
    c->with.walk.inputs = (size_t)inputs, c->with.walk.count = 0;
    for (Py_ssize_t i = 0; i < all; i++) {
        PyObject *to, *from, *pair = PyTuple_GetItem(args[i < inputs ? 1 : 2], i < inputs ? i : i - inputs);
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
            return fail("a pair is none");
        to = PyTuple_GetItem(pair, 0), from = PyTuple_GetItem(pair, 1);
        if (!takes(c, to, 0, "BHILQ", 1) || !takes(c, from, 0, "BHILQ", 0))
            return 0;
        const Py_buffer *whole = &c->view[2 * i + (i < inputs)], *row = &c->view[2 * i + (i >= inputs)];
        if (whole->ndim != row->ndim + 1 || whole->itemsize != row->itemsize ||
            (row->ndim && memcmp(whole->shape + 1, row->shape, (size_t)row->ndim * sizeof *row->shape)) ||
            (i && (size_t)whole->shape[0] != c->with.walk.count))
            return fail("a row has another shape than those it is one of");
        c->with.walk.count = (size_t)whole->shape[0];
    }
    return (c->count == 2 && all) || fail("a walk has two tasks and a pair");
}

/* The kernels: name, the function that checks a call, the number of arguments, and whether the last one is optional. */
static const struct {
    const char *name;
    int (*make)(call *c, PyObject *const *args);
    int arguments, may_lack_last;
} kernels[] = {
    {"gemm", gemm, 5, 1}, {"igemm", igemm, 5, 1}, {"bgemm", bgemm, 4, 0}, {"pack", pack, 3, 1}, {"unpack", unpack, 2, 0}, {"gemv", gemv, 3, 0}, {"conv", conv, 7, 1}, {"iconv", iconv, 8, 0},
    {"windows", windows, 7, 1}, {"layer_norm", layer_norm, 5, 0}, {"fold", fold, 3, 0}, {"rescaled", rescaled, 4, 0},
    {"largest", largest, 2, 0}, {"byte_sums", byte_sums, 2, 0}, {"trees", trees, 8, 0},
    {"transpose", transpose, 3, 0}, {"copy", copy, 2, 0}, {"take", take_rows, 3, 0}, {"window", window, 4, 0}, {"integers", integers, 4, 0},
    {"tiles", tiles, 9, 1}, {"attention", attention, 11, 0},
    /* Only tasks, not functions of the module. */
    {"several", several, 2, 0}, {"inside", inside, 3, 0}, {"branch", branch, 2, 0}, {"repeat", repeat, 4, 0}, {"walk", walk, 3, 0},
};
enum { GEMM, IGEMM, BGEMM, PACK, UNPACK, GEMV, CONV, ICONV, WINDOWS, LAYER_NORM, FOLD, RESCALED, LARGEST, BYTE_SUMS, TREES, TRANSPOSE, COPY, TAKE, WINDOW, INTEGERS, TILES, ATTENTION, SEVERAL, INSIDE, BRANCH, REPEAT, WALK,
       KERNELS };

/* Run a call without the GIL. Returns 0 with an exception if a signal handler raised, or if the call was refused. */
static int ran(const call *c)
{
    PyThreadState *saved = PyEval_SaveThread();
    ptir_watch watch = {is_interrupted, &saved, 0, 0, NULL, 0};
    c->run(c, &watch);
    PyEval_RestoreThread(saved);
    if (watch.refused) {
        const call *refused = watch.refused;
        PyObject *refuse = PyTuple_GetItem(refused->kept, PyTuple_Size(refused->kept) - 1), *none = PyObject_CallNoArgs(refuse);
        Py_XDECREF(none);
        if (none)
            fail("a call was refused");
    }
    return !watch.stopped;
}

static int makes(call *c, int kernel, PyObject *const *args, Py_ssize_t count)
{
    PyObject *all[9];
    int wanted = kernels[kernel].arguments;
    c->epilogue.count = 0, c->epilogue.takes_result = 0, c->kept = NULL, c->calls = NULL, c->prepared = NULL;
    if (kernels[kernel].may_lack_last && count == wanted - 1) {
        for (int i = 0; i < count; i++)
            all[i] = args[i];
        all[count++] = Py_None;
        args = all;
    }
    if (count == wanted)
        return kernels[kernel].make(c, args);
    PyErr_Format(PyExc_ValueError, "%s takes %d arguments", kernels[kernel].name, wanted);
    return 0;
}

/* Call a kernel immediately. */
static PyObject *call_now(int kernel, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view[MOST_BUFFERS];
    ptir_array arrays[MAX_ARRAYS];
    call c;
    c.view = view, c.held = 0;
    c.with.program.arrays = arrays;
    int good = makes(&c, kernel, args, count) && ran(&c);
    release(&c);
    return good ? Py_NewRef(Py_None) : NULL;
}

#define CALLED(name, number)                                                                                           \
    static PyObject *py_##name(PyObject *self, PyObject *const *args, Py_ssize_t count)                                \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        return call_now(number, args, count);                                                                          \
    }
CALLED(gemm, GEMM)
CALLED(igemm, IGEMM)
CALLED(bgemm, BGEMM)
CALLED(pack, PACK)
CALLED(unpack, UNPACK)
CALLED(gemv, GEMV)
CALLED(conv, CONV)
CALLED(iconv, ICONV)
CALLED(windows, WINDOWS)
CALLED(layer_norm, LAYER_NORM)
CALLED(fold, FOLD)
CALLED(rescaled, RESCALED)
CALLED(largest, LARGEST)
CALLED(byte_sums, BYTE_SUMS)
CALLED(trees, TREES)
CALLED(transpose, TRANSPOSE)
CALLED(copy, COPY)
CALLED(take, TAKE)
CALLED(window, WINDOW)
CALLED(integers, INTEGERS)
CALLED(tiles, TILES)
CALLED(attention, ATTENTION)

/* A task: a call of a kernel, or of several tasks, to be run later. The object is called without arguments. */
typedef struct {
    PyObject_HEAD
    call made;
    ptir_array *arrays; /* of a tile program */
} task;

static const call *call_of(PyObject *made) { return &((task *)made)->made; }

static void drop_task(PyObject *self)
{
    task *t = (task *)self;
    PyTypeObject *type = Py_TYPE(self);
    release(&t->made);
    Py_XDECREF(t->made.kept);
    PyMem_Free(t->made.calls);
    PyMem_Free(t->made.prepared);
    PyMem_Free(t->made.view);
    PyMem_Free(t->arrays);
    freefunc give_back = (freefunc)PyType_GetSlot(type, Py_tp_free);
    give_back(self);
    Py_DECREF(type);
}

static PyObject *call_task(PyObject *self, PyObject *args, PyObject *named)
{
    if (PyTuple_Size(args) || (named && PyDict_Size(named)))
        return fail("a task takes no arguments"), NULL;
    return ran(&((task *)self)->made) ? Py_NewRef(Py_None) : NULL;
}

static PyType_Slot task_slots[] = {
    {Py_tp_dealloc, drop_task}, {Py_tp_call, call_task}, {Py_tp_doc, "A call of kernels, checked: run by calling it."}, {0, NULL}};
static PyType_Spec task_spec = {"ptir_tools._native.Task", sizeof(task), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                task_slots};

static task *new_task(void)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(task_type, Py_tp_alloc);
    return (task *)allocate(task_type, 0);
}

PyDoc_STRVAR(task_doc, "task(name, *args): a task that calls a kernel with these arguments, which are checked now. Besides the functions\n"
                       "of this module: several(tasks, threads), inside(numbers, extent, refuse), branch(flag, tasks),\n"
                       "repeat(flag, tasks, limit, refuse), walk(tasks, inputs, outputs).");

static PyObject *py_task(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int kernel = 0;
    (void)self;
    for (; kernel < KERNELS && count; kernel++)
        if (PyUnicode_CompareWithASCIIString(args[0], kernels[kernel].name) == 0)
            break;
    if (!count || kernel == KERNELS)
        return fail("there is no such kernel"), NULL;
    Py_ssize_t arrays = 0;
    for (Py_ssize_t i = 1; i < count; i++) /* of a tile program, or pairs of them */
        arrays += PyTuple_Check(args[i]) ? 2 * PyTuple_Size(args[i]) : 0;
    task *t = new_task();
    if (!t)
        return NULL;
    t->made.view = PyMem_Calloc((size_t)arrays + MORE_BUFFERS, sizeof *t->made.view);
    int has_program = kernel == TILES || kernel == ATTENTION;
    t->arrays = has_program ? PyMem_Calloc((size_t)arrays + 1, sizeof *t->arrays) : NULL;
    t->made.with.program.arrays = t->arrays;
    if (!t->made.view || (has_program && !t->arrays))
        PyErr_NoMemory();
    else if (makes(&t->made, kernel, args + 1, count - 1) && (kernel != TILES || prepares(&t->made))) {
        if (kernel < SEVERAL)
            return (PyObject *)t;
        t->made.kept = PyTuple_New(count - 1);
        for (Py_ssize_t i = 1; t->made.kept && i < count; i++)
            PyTuple_SetItem(t->made.kept, i - 1, Py_NewRef(args[i]));
        if (t->made.kept)
            return (PyObject *)t;
    }
    Py_DECREF(t);
    return NULL;
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

enum { ARRAYS = 5 }; /* buffers of each search for a plan */

/* Check that the arrays have equal lengths; the one at `optional` (-1: none) may be empty. Sets an exception. */
static int same_length(Py_buffer *const *views, int optional)
{
    for (int i = 0; i < ARRAYS; i++)
        if (views[i]->len != views[0]->len && !(i == optional && !views[i]->len))
            return fail("the arrays differ in length");
    return 1;
}

static void release_arrays(Py_buffer *const *views)
{
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(views[i]);
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
    int good = same_length(views, -1);
    if (good && (good = checks_buffers(&b))) {
        Py_BEGIN_ALLOW_THREADS
        status = ptir_place(&b, steps, offsets.buf, &used);
        Py_END_ALLOW_THREADS
    }
    release_arrays(views);
    if (good && status == PTIR_NO_MEMORY)
        return PyErr_NoMemory();
    return good ? Py_BuildValue("iL", status, (long long)used) : NULL;
}

PyDoc_STRVAR(sections_doc, "sections(lower, upper, size, order, first, last): the order of ranges by start, and in that order the sections\n"
                           "that they cover; all arrays are of int64. Returns (the most that lives at once, how many pairs do).");

static PyObject *py_sections(PyObject *self, PyObject *args)
{
    enum { COLUMNS = 6 };
    Py_buffer views[COLUMNS];
    int64_t bound = 0, pairs = 0;
    int status = PTIR_NO_MEMORY, good = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*w*", &views[0], &views[1], &views[2], &views[3], &views[4], &views[5]))
        return NULL;
    ptir_buffers b = {(size_t)views[0].len / sizeof(int64_t), views[0].buf, views[1].buf, views[2].buf, NULL, 0};
    for (int i = 1; good && i < COLUMNS; i++)
        good = views[i].len == views[0].len || fail("the arrays differ in length");
    for (size_t i = 0; good && i < b.count; i++)
        good = (b.upper[i] > b.lower[i] && b.size[i] >= 0) || fail("a range is empty or has a negative size");
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        status = ptir_sections(&b, views[3].buf, views[4].buf, views[5].buf, &bound, &pairs);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < COLUMNS; i++)
        PyBuffer_Release(&views[i]);
    if (good && status == PTIR_NO_MEMORY)
        return PyErr_NoMemory();
    return good ? Py_BuildValue("LL", (long long)bound, (long long)pairs) : NULL;
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
    good = good && same_length(views, 3);
    for (size_t i = 0; good && order.len && i < b.count; i++)
        good = (b.rank[i] >= 0 && (size_t)b.rank[i] < b.count) || fail("the order names no buffer");
    if (good && (good = checks_buffers(&b))) {
        Py_BEGIN_ALLOW_THREADS
        status = order.len ? ptir_fit(&b, order.buf, (size_t)done, (size_t)until, tightest, offsets.buf)
                           : ptir_fit_births(&b, offsets.buf);
        Py_END_ALLOW_THREADS
    }
    release_arrays(views);
    if (good && status == PTIR_NO_MEMORY)
        return PyErr_NoMemory();
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(stack_doc, "stack(lower, upper, size, weight, touch, urgency, limit, offsets): the lowest valley filled again and again.\n"
                        "Returns (1 placed or -1 gave up, looks taken).");

static PyObject *py_stack(PyObject *self, PyObject *args)
{
    Py_buffer lower, upper, size, weight, offsets;
    double touch, urgency;
    long long limit;
    int64_t used = 0;
    int status = PTIR_NO_MEMORY;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*ddLw*", &lower, &upper, &size, &weight, &touch, &urgency, &limit, &offsets))
        return NULL;
    Py_buffer *views[] = {&lower, &upper, &size, &weight, &offsets};
    ptir_buffers b = {(size_t)lower.len / sizeof(int64_t), lower.buf, upper.buf, size.buf, NULL, 0};
    int good = same_length(views, -1);
    good = good && checks_buffers(&b);
    for (size_t i = 0; good && i < b.count; i++)
        good = (size_t)b.upper[i] <= b.count || fail("a section in which no buffer begins");
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        status = ptir_stack(&b, weight.buf, touch, urgency, limit, offsets.buf, &used);
        Py_END_ALLOW_THREADS
    }
    release_arrays(views);
    if (good && status == PTIR_NO_MEMORY)
        return PyErr_NoMemory();
    return good ? Py_BuildValue("iL", status, (long long)used) : NULL;
}

static PyMethodDef methods[] = {
    {"stack", py_stack, METH_VARARGS, stack_doc},
    {"sections", py_sections, METH_VARARGS, sections_doc},
    {"fit", py_fit, METH_VARARGS, fit_doc},
    {"place", py_place, METH_VARARGS, place_doc},
    {"gemm", (PyCFunction)(void (*)(void))py_gemm, METH_FASTCALL, gemm_doc},
    {"igemm", (PyCFunction)(void (*)(void))py_igemm, METH_FASTCALL, igemm_doc},
    {"bgemm", (PyCFunction)(void (*)(void))py_bgemm, METH_FASTCALL, bgemm_doc},
    {"gemv", (PyCFunction)(void (*)(void))py_gemv, METH_FASTCALL, gemv_doc},
    {"conv", (PyCFunction)(void (*)(void))py_conv, METH_FASTCALL, conv_doc},
    {"iconv", (PyCFunction)(void (*)(void))py_iconv, METH_FASTCALL, iconv_doc},
    {"iconv_scratch", py_iconv_scratch, METH_O, iconv_scratch_doc},
    {"windows", (PyCFunction)(void (*)(void))py_windows, METH_FASTCALL, windows_doc},
    {"layer_norm", (PyCFunction)(void (*)(void))py_layer_norm, METH_FASTCALL, layer_norm_doc},
    {"fold", (PyCFunction)(void (*)(void))py_fold, METH_FASTCALL, fold_doc},
    {"rescaled", (PyCFunction)(void (*)(void))py_rescaled, METH_FASTCALL, rescaled_doc},
    {"largest", (PyCFunction)(void (*)(void))py_largest, METH_FASTCALL, largest_doc},
    {"byte_sums", (PyCFunction)(void (*)(void))py_byte_sums, METH_FASTCALL, byte_sums_doc},
    {"trees", (PyCFunction)(void (*)(void))py_trees, METH_FASTCALL, trees_doc},
    {"transpose", (PyCFunction)(void (*)(void))py_transpose, METH_FASTCALL, transpose_doc},
    {"copy", (PyCFunction)(void (*)(void))py_copy, METH_FASTCALL, copy_doc},
    {"take", (PyCFunction)(void (*)(void))py_take, METH_FASTCALL, take_doc},
    {"window", (PyCFunction)(void (*)(void))py_window, METH_FASTCALL, window_doc},
    {"integers", (PyCFunction)(void (*)(void))py_integers, METH_FASTCALL, integers_doc},
    {"tiles", (PyCFunction)(void (*)(void))py_tiles, METH_FASTCALL, tiles_doc},
    {"attention", (PyCFunction)(void (*)(void))py_attention, METH_FASTCALL, attention_doc},
    {"attention_floats", py_attention_floats, METH_VARARGS, attention_floats_doc},
    {"task", (PyCFunction)(void (*)(void))py_task, METH_FASTCALL, task_doc},
    {"pack", (PyCFunction)(void (*)(void))py_pack, METH_FASTCALL, pack_doc},
    {"unpack", (PyCFunction)(void (*)(void))py_unpack, METH_FASTCALL, unpack_doc},
    {"trim", py_trim, METH_NOARGS, trim_doc},
    {"packed_size", (PyCFunction)(void (*)(void))py_packed_size, METH_FASTCALL, packed_size_doc},
    {"tile_floats", py_tile_floats, METH_VARARGS, tile_floats_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Tile kernels.", -1, methods, NULL, NULL, NULL, NULL};

/* The names of the instructions and of the operations on integers, in order. */
static const char *const op_names[] = {
#define PTIR_NAME(name) #name,
    PTIR_OPS(PTIR_NAME)};
static const char *const integer_names[] = {
#define INTEGER_NAME(name, value) #name,
    INTEGER_OPS(INTEGER_NAME)};

static int add_names(PyObject *made, const char *called, const char *const *names, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyTuple_SetItem(tuple, i, name) < 0)
            Py_CLEAR(tuple);
    }
    int status = tuple ? PyModule_AddObjectRef(made, called, tuple) : -1;
    Py_XDECREF(tuple);
    return status;
}

/* ISA: the instruction set in use. ISAS: all that this machine supports, the fastest first. */
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

/* The bytes of the last-level cache, or 0 if they are not known. Linux reports the cache that the first processor uses; the C
 * library may report the sum over all processors. */
static long last_cache(void)
{
#ifdef __linux__
    long shared = 0;
    FILE *size_of = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (size_of) {
        char unit = 0;
        if (fscanf(size_of, "%ld%c", &shared, &unit) == 2)
            shared *= unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : 1;
        fclose(size_of);
    }
    if (shared > 0)
        return shared;
#endif
#ifdef _SC_LEVEL3_CACHE_SIZE
    long size = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return size > 0 ? size : 0;
#else
    return 0;
#endif
}

PyMODINIT_FUNC PyInit__native(void)
{
    const char *wanted = getenv("PTIR_ISA");
    if (wanted && *wanted && !ptir_use_isa(wanted))
        return PyErr_Format(PyExc_ValueError, "PTIR_ISA=%s: this machine has no kernels for that", wanted);
    PyObject *made = PyModule_Create(&module);
    task_type = made ? (PyTypeObject *)PyType_FromSpec(&task_spec) : NULL;
    if (!task_type || add_names(made, "OPS", op_names, PTIR_OP_COUNT) < 0 ||
        add_names(made, "INTEGER_OPS", integer_names, INTEGER_COUNT) < 0 ||
        add_isas(made) < 0 || PyModule_AddIntConstant(made, "GEMM_SCRATCH", (long)ptir_isa_in_use()->gemm_scratch()) < 0 ||
        PyModule_AddIntConstant(made, "PACKED_SCRATCH", (long)ptir_isa_in_use()->packed_scratch()) < 0 ||
        PyModule_AddIntConstant(made, "IGEMM_SCRATCH", (long)ptir_isa_in_use()->igemm_scratch()) < 0 ||
        PyModule_AddIntConstant(made, "BGEMM_SCRATCH", ptir_isa_in_use()->bgemm ? (long)ptir_isa_in_use()->bgemm_scratch() : 0) < 0 ||
        PyModule_AddIntConstant(made, "BGEMM_ROUNDS", ptir_isa_in_use()->bgemm_rounds) < 0 ||
        PyModule_AddIntConstant(made, "LAST_CACHE", last_cache()) < 0 ||
        PyModule_AddIntConstant(made, "GEMM_DEPTH", (long)ptir_isa_in_use()->depth) < 0 ||
        PyModule_AddIntConstant(made, "GEMM_PANEL", (long)ptir_isa_in_use()->vector) < 0 ||
        PyModule_AddIntConstant(made, "ATTENTION_PANEL", (long)ptir_isa_in_use()->panel) < 0 ||
        PyModule_AddIntConstant(made, "PAIR_PANEL", (long)ptir_isa_in_use()->pair_panel) < 0 ||
        PyModule_AddIntConstant(made, "FULL", PTIR_FULL) < 0 || PyModule_AddIntConstant(made, "ROWS", PTIR_ROWS) < 0 ||
        PyModule_AddIntConstant(made, "LOCAL", PTIR_LOCAL) < 0 || PyModule_AddIntConstant(made, "WEIGHTED", PTIR_WEIGHTED) < 0 ||
        PyModule_AddIntConstant(made, "SUM", PTIR_SUM) < 0 || PyModule_AddIntConstant(made, "MAX", PTIR_MAX) < 0 ||
        PyModule_AddIntConstant(made, "MIN", PTIR_MIN) < 0 || PyModule_AddIntConstant(made, "FLOAT", PTIR_FLOAT) < 0 ||
        PyModule_AddIntConstant(made, "F16", PTIR_F16) < 0 || PyModule_AddIntConstant(made, "BF16", PTIR_BF16) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
