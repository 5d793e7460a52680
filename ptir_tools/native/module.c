/* The only file that knows Python: checks buffers, releases the GIL, calls kernels. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "kernels.h"

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Tile kernels.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
