/* What a client does for each record of a batch, compiled. Each function has a twin in Python, which
 * runs when a function here returns None (see `native`).
 */

#include "_strings.h"

PyDoc_STRVAR(pack_strings_doc,
"pack_strings(strings) -> bytes | None\n\n"
"Pack a list of bytes objects, of which some may be None. None: use the Python code.");

static PyObject *
pack_strings(PyObject *module, PyObject *strings)
{
    if (!PyList_Check(strings) || PyList_GET_SIZE(strings) > UINT32_MAX)
        Py_RETURN_NONE;
    Py_ssize_t count = PyList_GET_SIZE(strings), size = 5;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *string = PyList_GET_ITEM(strings, i);
        if (string == Py_None)
            size++;
        else if (PyBytes_CheckExact(string) && PyBytes_GET_SIZE(string) <= UINT32_MAX)
            size += 5 + PyBytes_GET_SIZE(string);
        else
            Py_RETURN_NONE;
    }
    PyObject *packed = PyBytes_FromStringAndSize(NULL, size);
    if (packed == NULL)
        return NULL;
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(packed), *to = begin;
    to = put_array(to, (uint32_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *string = PyList_GET_ITEM(strings, i);
        if (string == Py_None) {
            *to++ = NIL;
            continue;
        }
        Py_ssize_t length = PyBytes_GET_SIZE(string);
        to = put_bin(to, (uint32_t)length);
        memcpy(to, PyBytes_AS_STRING(string), length);
        to += length;
    }
    _PyBytes_Resize(&packed, to - begin);
    return packed;
}

static inline String
string_of(PyObject *bytes)
{
    String string = {(const unsigned char *)PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)};
    return string;
}

static int
all_bytes(PyObject *list)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        if (!PyBytes_CheckExact(PyList_GET_ITEM(list, i)))
            return 0;
    return 1;
}

PyDoc_STRVAR(extremes_doc,
"extremes(keys) -> (least, greatest) | None\n\n"
"Return the least and the greatest of a list of keys. None: use the Python code.");

static PyObject *
extremes(PyObject *module, PyObject *keys)
{
    if (!PyList_Check(keys) || PyList_GET_SIZE(keys) == 0 || !all_bytes(keys))
        Py_RETURN_NONE;
    PyObject *least = PyList_GET_ITEM(keys, 0), *greatest = least;
    for (Py_ssize_t i = 1; i < PyList_GET_SIZE(keys); i++) {
        PyObject *key = PyList_GET_ITEM(keys, i);
        if (is_below(string_of(key), string_of(least)))
            least = key;
        else if (is_below(string_of(greatest), string_of(key)))
            greatest = key;
    }
    return PyTuple_Pack(2, least, greatest);
}

PyDoc_STRVAR(grouped_doc,
"grouped(keys, starts) -> list[list[int]] | None\n\n"
"Return the positions of keys grouped by the last of the ascending starts that is not above the\n"
"key; the group with the first key comes first. None: use the Python code.");

static PyObject *
grouped(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "give lists of keys and of starts");
        return NULL;
    }
    if (!all_bytes(args[0]) || !all_bytes(args[1]))
        Py_RETURN_NONE;
    Py_ssize_t ranges = PyList_GET_SIZE(args[1]);
    PyObject *found = PyList_New(0);
    /* The group of each range, borrowed from `found`. */
    PyObject **groups = PyMem_Calloc(ranges + 1, sizeof *groups);
    if (found == NULL || groups == NULL)
        goto failed;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++) {
        String key = string_of(PyList_GET_ITEM(args[0], i));
        Py_ssize_t low = 0, high = ranges;
        while (low < high) {
            Py_ssize_t middle = (low + high) / 2;
            if (is_below(key, string_of(PyList_GET_ITEM(args[1], middle))))
                high = middle;
            else
                low = middle + 1;
        }
        if (groups[low] == NULL) {
            PyObject *group = PyList_New(0);
            if (group == NULL)
                goto failed;
            int failure = PyList_Append(found, group);
            Py_DECREF(group);
            if (failure)
                goto failed;
            groups[low] = group;
        }
        PyObject *position = PyLong_FromSsize_t(i);
        if (position == NULL)
            goto failed;
        int failure = PyList_Append(groups[low], position);
        Py_DECREF(position);
        if (failure)
            goto failed;
    }
    PyMem_Free(groups);
    return found;
failed:
    if (groups == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    PyMem_Free(groups);
    Py_XDECREF(found);
    return NULL;
}

PyDoc_STRVAR(before_doc,
"before(young, old, keys, low) -> list[int] | None\n\n"
"Return the number of each key in the dict `young`, else in `old`, else 0; None when all are below\n"
"`low`.");

static PyObject *
before(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 4 || !PyDict_Check(args[0]) || !PyDict_Check(args[1]) || !PyList_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "give two dicts, a list of keys and a number");
        return NULL;
    }
    long long low = PyLong_AsLongLong(args[3]);
    if (low == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(args[2]);
    PyObject *found = PyList_New(count), *zero = PyLong_FromLong(0);
    int any = 0;
    if (found == NULL || zero == NULL)
        goto failed;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyList_GET_ITEM(args[2], i);
        PyObject *number = PyDict_GetItemWithError(args[0], key);
        if (number == NULL && !PyErr_Occurred())
            number = PyDict_GetItemWithError(args[1], key);
        if (number == NULL && PyErr_Occurred())
            goto failed;
        if (number == NULL)
            number = zero;
        else if (!any) {
            long long value = PyLong_AsLongLong(number);
            if (value == -1 && PyErr_Occurred())
                goto failed;
            any = value >= low;
        }
        PyList_SET_ITEM(found, i, Py_NewRef(number));
    }
    Py_DECREF(zero);
    if (any)
        return found;
    Py_DECREF(found);
    Py_RETURN_NONE;
failed:
    Py_XDECREF(zero);
    Py_XDECREF(found);
    return NULL;
}

PyDoc_STRVAR(note_doc,
"note(numbers, keys, first)\n\n"
"Set the numbers of keys in a dict, consecutive from `first` on.");

static PyObject *
note(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 3 || !PyDict_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "give a dict, a list of keys and a number");
        return NULL;
    }
    long long number = PyLong_AsLongLong(args[2]);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[1]); i++) {
        PyObject *value = PyLong_FromLongLong(number + i);
        if (value == NULL)
            return NULL;
        int failure = PyDict_SetItem(args[0], PyList_GET_ITEM(args[1], i), value);
        Py_DECREF(value);
        if (failure)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"pack_strings", pack_strings, METH_O, pack_strings_doc},
    {"extremes", extremes, METH_O, extremes_doc},
    {"grouped", (PyCFunction)(void (*)(void))grouped, METH_FASTCALL, grouped_doc},
    {"before", (PyCFunction)(void (*)(void))before, METH_FASTCALL, before_doc},
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, note_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_packing", "Compiled work of a client; see the source.", 0, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__packing(void)
{
    return PyModuleDef_Init(&definition);
}
