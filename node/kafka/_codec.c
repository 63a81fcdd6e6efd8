/* Records of Kafka to columns and back, compiled. Each function has a twin in Python, which runs when
 * a function here returns None: for all that is not plain (see `client.protocol.native`). So the twin
 * decides what is wrong with the bytes of a stranger.
 */

#include "../../client/protocol/_strings.h"

typedef struct {
    const unsigned char *at, *end;
} Bytes;

/* Read a number in zigzag form of at most 32 bits. Return 0 for a longer number, and at the end. */
static inline int
take_number(Bytes *from, int64_t *number)
{
    uint64_t found = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (from->at == from->end)
            return 0;
        unsigned char each = *from->at++;
        found |= (uint64_t)(each & 0x7f) << shift;
        if (each < 0x80) {
            *number = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
            return 1;
        }
    }
    return 0;
}

/* Pass a number of at most ten bytes. */
static inline int
pass_number(Bytes *from)
{
    for (int bytes = 0; bytes < 10; bytes++) {
        if (from->at == from->end)
            return 0;
        if (*from->at++ < 0x80)
            return 1;
    }
    return 0;
}

/* The fields of a plain record, which lie in the data. No string is one of length -1. */
typedef struct {
    String key, value;
} Plain;

/* Read a nullable string of at most `most` bytes. Return 0 where it is not plain. */
static inline int
pass_string(Bytes *from, int64_t most, String *found)
{
    int64_t length;
    if (!take_number(from, &length) || length > most || length > from->end - from->at)
        return 0;
    found->bytes = from->at;
    found->length = length < 0 ? -1 : (Py_ssize_t)length;
    from->at += length < 0 ? 0 : length;
    return 1;
}

/* Read the next record, which has to be the i-th of its batch. Return 0 where it is not plain. */
static inline int
pass_record(Bytes *all, Py_ssize_t i, int keyed, int64_t key_max, int64_t value_max, Plain *found)
{
    int64_t length, offset, headers;
    if (!take_number(all, &length) || length < 1 || length > all->end - all->at)
        return 0;
    Bytes record = {all->at + 1, all->at + length};
    all->at = record.end;
    return pass_number(&record) && take_number(&record, &offset) && offset == i
        && pass_string(&record, key_max, &found->key)
        && (found->key.length < 0 ? !keyed : found->key.length > 0)
        && pass_string(&record, value_max, &found->value)
        && take_number(&record, &headers) && !headers && record.at == record.end;
}

/* Return a string behind a prefix, or only the prefix for no string. */
static PyObject *
string_behind(const Py_buffer *prefix, String string)
{
    Py_ssize_t length = string.length < 0 ? 0 : string.length;
    PyObject *found = PyBytes_FromStringAndSize(NULL, prefix->len + length);
    if (found == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(found);
    memcpy(to, prefix->buf, prefix->len);
    memcpy(to + prefix->len, string.bytes, length);
    return found;
}

PyDoc_STRVAR(decoded_doc,
"decoded(data, count, prefix, keyed, key_max, value_max) -> (keys, values) | None\n\n"
"Return the columns of `count` records, which are all of the data. The prefix is in front of each\n"
"key. None, use the Python code: for a record that is not well-formed or has headers, an empty key,\n"
"no key although `keyed`, or more bytes than allowed.");

static PyObject *
decoded(PyObject *module, PyObject *args)
{
    Py_buffer data = {0}, prefix = {0};
    Py_ssize_t count;
    long long key_max, value_max;
    int keyed;
    PyObject *found = NULL, *keys = NULL, *values = NULL;
    if (!PyArg_ParseTuple(args, "y*ny*pLL", &data, &count, &prefix, &keyed, &key_max, &value_max))
        return NULL;
    /* A record has seven bytes at least, so the lists are not longer than the data. */
    if (count < 1 || count > data.len / 7)
        goto other;
    keys = PyList_New(count), values = PyList_New(count);
    if (keys == NULL || values == NULL)
        goto failed;
    Bytes all = {data.buf, (const unsigned char *)data.buf + data.len};
    for (Py_ssize_t i = 0; i < count; i++) {
        Plain each;
        if (!pass_record(&all, i, keyed, key_max, value_max, &each))
            goto other;
        PyObject *key = string_behind(&prefix, each.key);
        if (key == NULL)
            goto failed;
        PyList_SET_ITEM(keys, i, key);
        PyObject *value = each.value.length < 0 ? Py_NewRef(Py_None)
            : PyBytes_FromStringAndSize((const char *)each.value.bytes, each.value.length);
        if (value == NULL)
            goto failed;
        PyList_SET_ITEM(values, i, value);
    }
    if (all.at != all.end)
        goto other;
    found = PyTuple_Pack(2, keys, values);
    goto failed;
other:
    found = Py_NewRef(Py_None);
failed:
    Py_XDECREF(keys);
    Py_XDECREF(values);
    PyBuffer_Release(&data);
    PyBuffer_Release(&prefix);
    return found;
}

PyDoc_STRVAR(packed_doc,
"packed(data, count, prefix, keyed, key_max, value_max) -> (keys, values, size) | None\n\n"
"Return the columns of `decoded` as packed arrays, and the bytes of the keys and values. None, use\n"
"the Python code: where `decoded` returns None.");

static PyObject *
packed(PyObject *module, PyObject *args)
{
    Py_buffer data = {0}, prefix = {0};
    Py_ssize_t count;
    long long key_max, value_max;
    int keyed;
    PyObject *found = NULL, *keys = NULL, *values = NULL;
    if (!PyArg_ParseTuple(args, "y*ny*pLL", &data, &count, &prefix, &keyed, &key_max, &value_max))
        return NULL;
    if (count < 1 || count > data.len / 7 || count > UINT32_MAX || prefix.len > 1 << 8
        || key_max > 1 << 16 || value_max > INT32_MAX)
        goto other;
    /* The sizes first: heads of up to five bytes, and the prefix, come to each string. */
    Py_ssize_t key_bytes = 0, value_bytes = 0;
    Plain each;
    Bytes all = {data.buf, (const unsigned char *)data.buf + data.len};
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!pass_record(&all, i, keyed, key_max, value_max, &each))
            goto other;
        key_bytes += prefix.len + (each.key.length < 0 ? 0 : each.key.length);
        value_bytes += each.value.length < 0 ? 0 : each.value.length;
    }
    if (all.at != all.end)
        goto other;
    keys = PyBytes_FromStringAndSize(NULL, 5 + 5 * count + key_bytes);
    values = PyBytes_FromStringAndSize(NULL, 5 + 5 * count + value_bytes);
    if (keys == NULL || values == NULL)
        goto failed;
    unsigned char *key_begin = (unsigned char *)PyBytes_AS_STRING(keys);
    unsigned char *value_begin = (unsigned char *)PyBytes_AS_STRING(values);
    unsigned char *key_to = put_array(key_begin, (uint32_t)count);
    unsigned char *value_to = put_array(value_begin, (uint32_t)count);
    all.at = data.buf; /* the same records again, which are plain */
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!pass_record(&all, i, keyed, key_max, value_max, &each))
            goto other;
        Py_ssize_t length = each.key.length < 0 ? 0 : each.key.length;
        key_to = put_bin(key_to, (uint32_t)(prefix.len + length));
        memcpy(key_to, prefix.buf, prefix.len);
        memcpy(key_to + prefix.len, each.key.bytes, length);
        key_to += prefix.len + length;
        if (each.value.length < 0) {
            *value_to++ = NIL;
            continue;
        }
        value_to = put_bin(value_to, (uint32_t)each.value.length);
        memcpy(value_to, each.value.bytes, each.value.length);
        value_to += each.value.length;
    }
    if (_PyBytes_Resize(&keys, key_to - key_begin) || _PyBytes_Resize(&values, value_to - value_begin))
        goto failed;
    found = Py_BuildValue("OOn", keys, values, key_bytes + value_bytes);
    goto failed;
other:
    found = Py_NewRef(Py_None);
failed:
    Py_XDECREF(keys);
    Py_XDECREF(values);
    PyBuffer_Release(&data);
    PyBuffer_Release(&prefix);
    return found;
}

static inline unsigned char *
put_number(unsigned char *to, int64_t number)
{
    uint64_t left = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    while (left > 0x7f) {
        *to++ = (unsigned char)(left | 0x80);
        left >>= 7;
    }
    *to++ = (unsigned char)left;
    return to;
}

static inline int
width_of(int64_t number)
{
    uint64_t left = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    int bytes = 1;
    while (left > 0x7f) {
        left >>= 7;
        bytes++;
    }
    return bytes;
}

enum { SEQS, KEY_ENDS, KEY_LENGTHS, VALUE_ENDS, VALUE_LENGTHS, NUMBERS };

PyDoc_STRVAR(encoded_doc,
"encoded(numbers, keys, values, begin, end, first, hidden) -> bytes | None\n\n"
"Return the records of the entries [begin, end), whose offsets count from `first` on. `numbers` has\n"
"five columns of 64-bit numbers: seqs, the ends of keys, their lengths, the ends of values, their\n"
"lengths. No value has the length -1. Each key has `hidden` bytes that are not shown; a key without\n"
"more is none. None: the columns do not fit together.");

static PyObject *
encoded(PyObject *module, PyObject *args)
{
    Py_buffer numbers = {0}, keys = {0}, values = {0};
    Py_ssize_t begin, end, hidden;
    long long first;
    PyObject *found = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*nnLn", &numbers, &keys, &values, &begin, &end, &first,
                          &hidden))
        return NULL;
    Py_ssize_t rows = numbers.len / (NUMBERS * (Py_ssize_t)sizeof(int64_t));
    if (numbers.len % (NUMBERS * sizeof(int64_t)) || (uintptr_t)numbers.buf % sizeof(int64_t)
        || begin < 0 || begin > end || end > rows || hidden < 0)
        goto other;
    const int64_t *column = numbers.buf;
    const int64_t *seqs = column + SEQS * rows, *key_ends = column + KEY_ENDS * rows;
    const int64_t *key_lengths = column + KEY_LENGTHS * rows;
    const int64_t *value_ends = column + VALUE_ENDS * rows;
    const int64_t *value_lengths = column + VALUE_LENGTHS * rows;
    /* The size first: a page of large values is not copied twice. */
    Py_ssize_t size = 0;
    for (Py_ssize_t i = begin; i < end; i++) {
        int64_t key = key_lengths[i], value = value_lengths[i];
        if (key < 0 || key > key_ends[i] || key_ends[i] > keys.len || value < -1
            || value > value_ends[i] || value_ends[i] < 0 || value_ends[i] > values.len)
            goto other;
        size += 40 + key + (value < 0 ? 0 : value);
    }
    found = PyBytes_FromStringAndSize(NULL, size);
    if (found == NULL)
        goto failed;
    unsigned char *start = (unsigned char *)PyBytes_AS_STRING(found), *to = start;
    for (Py_ssize_t i = begin; i < end; i++) {
        int64_t delta = seqs[i] - first, key = key_lengths[i] - hidden, value = value_lengths[i];
        if (key <= 0)
            key = -1;
        int64_t length = 3 + width_of(delta) + width_of(key) + (key < 0 ? 0 : key)
            + width_of(value) + (value < 0 ? 0 : value);
        to = put_number(to, length);
        *to++ = 0;
        *to++ = 0;
        to = put_number(to, delta);
        to = put_number(to, key);
        if (key > 0) {
            memcpy(to, (const char *)keys.buf + key_ends[i] - key, key);
            to += key;
        }
        to = put_number(to, value);
        if (value > 0) {
            memcpy(to, (const char *)values.buf + value_ends[i] - value, value);
            to += value;
        }
        *to++ = 0;
    }
    _PyBytes_Resize(&found, to - start);
    goto failed;
other:
    found = Py_NewRef(Py_None);
failed:
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&values);
    return found;
}

static PyMethodDef functions[] = {
    {"decoded", decoded, METH_VARARGS, decoded_doc},
    {"packed", packed, METH_VARARGS, packed_doc},
    {"encoded", encoded, METH_VARARGS, encoded_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_codec", "Compiled work on records of Kafka; see the source.", 0,
    functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__codec(void)
{
    return PyModuleDef_Init(&definition);
}
