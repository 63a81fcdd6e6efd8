/* What a memtable does for each key of a batch, compiled. The classes that call these functions
 * check nothing again, so each function checks all places before it reads them.
 *
 * A table of newest positions is an array of slots, a power of two of them, in memory that the
 * caller owns. A key is in the first slot from the one that its hash names, in which it is, before
 * any free slot (open addressing with linear probing; Knuth 6.4). Nothing is ever removed.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint32_t tag;   /* the low 32 bits of the key's hash, of which the lowest name the slot */
    uint32_t place; /* one more than the newest position of the key; 0: the slot is free */
} Slot;

enum { AHEAD = 8 };

/* The arguments that are buffers, held until `release`. */
enum { BUFFERS = 5 };

typedef struct {
    Py_buffer held[BUFFERS];
    int count;
} Buffers;

static const Py_buffer *
hold(Buffers *buffers, PyObject *from, int flags)
{
    Py_buffer *next = &buffers->held[buffers->count];
    if (PyObject_GetBuffer(from, next, flags) < 0)
        return NULL;
    buffers->count++;
    return next;
}

static void
release(Buffers *buffers)
{
    while (buffers->count > 0)
        PyBuffer_Release(&buffers->held[--buffers->count]);
}

typedef struct {
    Slot *slots;
    size_t mask;
} Table;

static int
hold_table(Buffers *buffers, PyObject *from, int flags, Table *table)
{
    const Py_buffer *memory = hold(buffers, from, flags);
    if (memory == NULL)
        return 0;
    size_t count = memory->len / sizeof(Slot);
    if (count == 0 || (count & (count - 1)) || memory->len != (Py_ssize_t)(count * sizeof(Slot))
        || (uintptr_t)memory->buf % sizeof(Slot)) {
        PyErr_SetString(PyExc_ValueError, "a table has a power of two of slots of eight bytes");
        return 0;
    }
    table->slots = memory->buf;
    table->mask = count - 1;
    return 1;
}

/* The keys of a memtable by position, side by side: key p ends at ends[p + 1]. */
typedef struct {
    const char *data;
    const uint32_t *ends;
    size_t size, count;
} Keys;

static int
hold_keys(Buffers *buffers, PyObject *data, PyObject *ends, Keys *keys)
{
    const Py_buffer *bytes = hold(buffers, data, PyBUF_SIMPLE);
    const Py_buffer *column = bytes == NULL ? NULL : hold(buffers, ends, PyBUF_SIMPLE);
    if (column == NULL)
        return 0;
    if (column->len < (Py_ssize_t)sizeof(uint32_t) || (uintptr_t)column->buf % sizeof(uint32_t)) {
        PyErr_SetString(PyExc_ValueError, "a column of ends begins with the end before all keys");
        return 0;
    }
    keys->data = bytes->buf;
    keys->size = bytes->len;
    keys->ends = column->buf;
    keys->count = column->len / sizeof(uint32_t) - 1;
    return 1;
}

/* Find the bytes of a key. Return whether the key is there. */
static inline int
key_of(const Keys *keys, uint32_t place, const char **bytes, size_t *length)
{
    if (place - 1 >= keys->count) /* also for 0 */
        return 0;
    uint32_t begin = keys->ends[place - 1], end = keys->ends[place];
    if (begin > end || end > keys->size)
        return 0;
    *bytes = keys->data + begin;
    *length = end - begin;
    return 1;
}

/* A key that is looked for. Without bytes, the key is the one at its place. */
typedef struct {
    uint32_t tag, place;
    const char *bytes;
    size_t length;
} Wanted;

enum { FOUND, FREE, FULL, OUTSIDE };

/* Find the slot of a key, or the free slot where the key belongs. */
static inline int
find(const Table *table, const Keys *keys, Wanted key, Slot **found)
{
    uint32_t tag = key.tag;
    size_t at = tag & table->mask;
    for (size_t passed = 0; passed <= table->mask; passed++, at = (at + 1) & table->mask) {
        Slot *slot = &table->slots[at];
        if (slot->place == 0) {
            *found = slot;
            return FREE;
        }
        if (slot->tag != tag)
            continue;
        const char *other;
        size_t size;
        if (key.bytes == NULL && !key_of(keys, key.place, &key.bytes, &key.length))
            return OUTSIDE;
        if (!key_of(keys, slot->place, &other, &size))
            return OUTSIDE;
        if (size == key.length && memcmp(other, key.bytes, size) == 0) {
            *found = slot;
            return FOUND;
        }
    }
    return FULL;
}

static void
refuse(int why)
{
    PyErr_SetString(PyExc_ValueError, why == FULL ? "the table is full" : "a position has no key");
}

PyDoc_STRVAR(note_doc,
"note(slots, data, ends, hashes, positions) -> int\n\n"
"Take positions as the newest of their keys, unless a key has a newer position. Return how many\n"
"keys came into the table. `positions` are numbers of 32 bits, or the first of consecutive\n"
"positions. Raises ValueError for a full table.");

static PyObject *
note(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 5) {
        PyErr_SetString(PyExc_TypeError, "give slots, data, ends, hashes and positions");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    Table table;
    Keys keys;
    PyObject *found = NULL;
    if (!hold_table(&buffers, args[0], PyBUF_WRITABLE, &table)
        || !hold_keys(&buffers, args[1], args[2], &keys))
        goto done;
    const Py_buffer *column = hold(&buffers, args[3], PyBUF_SIMPLE), *places = NULL;
    if (column == NULL)
        goto done;
    Py_ssize_t count = column->len / (Py_ssize_t)sizeof(int64_t), first = 0;
    if (PyLong_Check(args[4])) {
        first = PyLong_AsSsize_t(args[4]);
        if (first == -1 && PyErr_Occurred())
            goto done;
    }
    else {
        places = hold(&buffers, args[4], PyBUF_SIMPLE);
        if (places == NULL)
            goto done;
        if (places->len != count * (Py_ssize_t)sizeof(int32_t)) {
            PyErr_SetString(PyExc_ValueError, "there are other positions than hashes");
            goto done;
        }
    }
    if (first < 0 || first > INT32_MAX - count) {
        PyErr_SetString(PyExc_OverflowError, "a position has 31 bits");
        goto done;
    }
    const char *hash_at = column->buf, *place_at = places == NULL ? NULL : places->buf;
    Py_ssize_t fresh = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t hash;
        if (i + AHEAD < count) { /* slots lie anywhere: ask for one while others are handled */
            memcpy(&hash, hash_at + (i + AHEAD) * sizeof hash, sizeof hash);
            __builtin_prefetch(&table.slots[(uint32_t)hash & table.mask], 1);
        }
        memcpy(&hash, hash_at + i * sizeof hash, sizeof hash);
        int32_t position = (int32_t)(first + i);
        if (place_at != NULL)
            memcpy(&position, place_at + i * sizeof position, sizeof position);
        Wanted key = {.tag = (uint32_t)hash, .place = (uint32_t)position + 1, .bytes = NULL};
        Slot *slot;
        int result = OUTSIDE;
        if ((uint32_t)position < keys.count)
            result = find(&table, &keys, key, &slot);
        if (result == FREE) {
            *slot = (Slot){.tag = key.tag, .place = key.place};
            fresh++;
        }
        else if (result != FOUND) {
            refuse(result);
            goto done;
        }
        else if (slot->place < key.place)
            slot->place = key.place;
    }
    found = PyLong_FromSsize_t(fresh);
done:
    release(&buffers);
    return found;
}

PyDoc_STRVAR(lasts_doc,
"lasts(slots, data, ends, keys, before) -> list[int]\n\n"
"Return for each key of a list `before` and one more than its newest position, or 0.");

static PyObject *
lasts(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 5 || !PyList_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, "give slots, data, ends, a list of keys and a number");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    Table table;
    Keys keys;
    long long before = PyLong_AsLongLong(args[4]);
    if (before == -1 && PyErr_Occurred())
        return NULL;
    PyObject *found = NULL, *asked = args[3];
    Py_ssize_t count = PyList_GET_SIZE(asked);
    if (!hold_table(&buffers, args[0], PyBUF_SIMPLE, &table)
        || !hold_keys(&buffers, args[1], args[2], &keys))
        goto done;
    /* The hash of bytes runs no Python code, and is kept in the object. So the list stays as is. */
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyList_GET_ITEM(asked, i);
        if (!PyBytes_CheckExact(key)) {
            PyErr_SetString(PyExc_TypeError, "a key is bytes");
            goto done;
        }
        Py_hash_t hash = PyObject_Hash(key);
        if (hash == -1)
            goto done;
        __builtin_prefetch(&table.slots[(uint32_t)hash & table.mask]);
    }
    found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *object = PyList_GET_ITEM(asked, i);
        Wanted key = {
            .tag = (uint32_t)PyObject_Hash(object), .bytes = PyBytes_AS_STRING(object),
            .length = PyBytes_GET_SIZE(object),
        };
        Slot *slot;
        int result = find(&table, &keys, key, &slot);
        PyObject *seq = NULL;
        if (result == FOUND)
            seq = PyLong_FromLongLong(before + slot->place);
        else if (result == OUTSIDE)
            refuse(result);
        else
            seq = PyLong_FromLong(0);
        if (seq == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, seq);
    }
done:
    release(&buffers);
    return found;
}

PyDoc_STRVAR(move_doc,
"move(slots, target)\n\n"
"Put the keys of a table into a larger one, which is empty. Raises ValueError for a full table.");

static PyObject *
move(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "give the slots of two tables");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    Table from, to;
    PyObject *found = NULL;
    if (!hold_table(&buffers, args[0], PyBUF_SIMPLE, &from)
        || !hold_table(&buffers, args[1], PyBUF_WRITABLE, &to))
        goto done;
    for (size_t i = 0; i <= from.mask; i++) {
        Slot slot = from.slots[i];
        if (slot.place == 0)
            continue;
        size_t at = slot.tag & to.mask, passed = 0;
        while (passed <= to.mask && to.slots[at].place != 0) {
            at = (at + 1) & to.mask;
            passed++;
        }
        if (passed > to.mask) {
            refuse(FULL);
            goto done;
        }
        to.slots[at] = slot;
    }
    found = Py_NewRef(Py_None);
done:
    release(&buffers);
    return found;
}

PyDoc_STRVAR(shifted_doc,
"shifted(ends, by) -> bytes\n\n"
"Add a number to each of some numbers of 32 bits. Raises OverflowError.");

static PyObject *
shifted(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "give ends and a number");
        return NULL;
    }
    unsigned long long by = PyLong_AsUnsignedLongLong(args[1]);
    if (by == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    Buffers buffers = {.count = 0};
    const Py_buffer *ends = hold(&buffers, args[0], PyBUF_SIMPLE);
    if (ends == NULL)
        return NULL;
    PyObject *found = NULL;
    if (ends->len % sizeof(uint32_t)) {
        PyErr_SetString(PyExc_ValueError, "an end has four bytes");
        goto done;
    }
    found = PyBytes_FromStringAndSize(NULL, ends->len);
    if (found == NULL)
        goto done;
    const char *from = ends->buf;
    char *to = PyBytes_AS_STRING(found);
    int fits = by <= UINT32_MAX;
    for (Py_ssize_t at = 0; fits && at < ends->len; at += sizeof(uint32_t)) {
        uint32_t end;
        memcpy(&end, from + at, sizeof end);
        fits = end <= UINT32_MAX - by;
        end += (uint32_t)by;
        memcpy(to + at, &end, sizeof end);
    }
    if (!fits) {
        Py_CLEAR(found);
        PyErr_SetString(PyExc_OverflowError, "the keys of a memtable have over 4 GiB");
    }
done:
    release(&buffers);
    return found;
}

static PyMethodDef functions[] = {
    {"shifted", (PyCFunction)(void (*)(void))shifted, METH_FASTCALL, shifted_doc},
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, note_doc},
    {"lasts", (PyCFunction)(void (*)(void))lasts, METH_FASTCALL, lasts_doc},
    {"move", (PyCFunction)(void (*)(void))move, METH_FASTCALL, move_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_memtable", "Compiled work of memtables; see the source.", 0, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__memtable(void)
{
    return PyModuleDef_Init(&definition);
}
