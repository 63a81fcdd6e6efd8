/* What is done for each record of a batch, compiled. `key_column` and `columns` hold the same in
 * Python, and decide: a function here returns None for all but plain input, and then the Python
 * code runs and says what is wrong. So members with and without this module always agree.
 *
 * All lengths are checked against the bytes that are there before memory is reserved.
 */

#include "_strings.h"

#if PY_VERSION_HEX >= 0x030E0000
#define HASH_BYTES Py_HashBuffer
#else
#define HASH_BYTES _Py_HashBytes
#if PY_VERSION_HEX >= 0x030D0000 /* Python 3.13 has the function, and declares it inside only. */
PyAPI_FUNC(Py_hash_t) _Py_HashBytes(const void *, Py_ssize_t);
#endif
#endif

typedef struct {
    const unsigned char *at;
    const unsigned char *end;
} Reader;

static inline uint32_t
big_endian(const unsigned char *from, int bytes)
{
    uint32_t number = 0;
    for (int i = 0; i < bytes; i++)
        number = number << 8 | from[i];
    return number;
}

/* Pass the head of an array. Return whether the array has `count` elements. */
static int
pass_array_head(Reader *reader, Py_ssize_t count)
{
    Py_ssize_t left = reader->end - reader->at;
    if (left >= 1 && (reader->at[0] & 0xf0) == ARRAY4) {
        reader->at += 1;
        return (reader->at[-1] & 0x0f) == count;
    }
    if (left >= 3 && reader->at[0] == ARRAY16) {
        reader->at += 3;
        return (Py_ssize_t)big_endian(reader->at - 2, 2) == count;
    }
    if (left >= 5 && reader->at[0] == ARRAY32) {
        reader->at += 5;
        return (Py_ssize_t)big_endian(reader->at - 4, 4) == count;
    }
    return 0;
}

/* Pass a string of bytes, and return its length; -1 for anything else. */
static inline Py_ssize_t
pass_string(Reader *reader)
{
    Py_ssize_t left = reader->end - reader->at, length;
    if (left >= 2 && reader->at[0] == BIN8) {
        length = reader->at[1];
        reader->at += 2;
    }
    else if (left >= 3 && reader->at[0] == BIN16) {
        length = big_endian(reader->at + 1, 2);
        reader->at += 3;
    }
    else if (left >= 5 && reader->at[0] == BIN32) {
        length = big_endian(reader->at + 1, 4);
        reader->at += 5;
    }
    else
        return -1;
    if (length > reader->end - reader->at)
        return -1;
    reader->at += length;
    return length;
}

/* Take a number that may come from the network; one that does not fit becomes -1. */
static int
number_of(PyObject *given, Py_ssize_t *number)
{
    *number = PyLong_AsSsize_t(given);
    if (*number == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return 0;
        PyErr_Clear();
    }
    return 1;
}

static int
arguments(PyObject *const *args, Py_ssize_t given, Reader *reader, Py_ssize_t *count)
{
    if (given != 2 || !PyBytes_Check(args[0]) || !PyLong_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "give the bytes of a packed array and its count");
        return 0;
    }
    if (!number_of(args[1], count))
        return 0;
    reader->at = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    reader->end = reader->at + PyBytes_GET_SIZE(args[0]);
    return 1;
}

PyDoc_STRVAR(scan_keys_doc,
"scan_keys(packed, count) -> (data, ends, hashes, least, greatest, longest) | None\n\n"
"Return the columns of a packed array of `count` keys. None: use the Python code.");

static PyObject *
scan_keys(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Reader reader;
    Py_ssize_t count;
    if (!arguments(args, given, &reader, &count))
        return NULL;
    /* A key has a head of two bytes or more, so nothing is reserved for keys that are not there. */
    if (count < 1 || reader.end - reader.at > UINT32_MAX || count > (reader.end - reader.at) / 2
        || !pass_array_head(&reader, count))
        Py_RETURN_NONE;
    PyObject *data = PyBytes_FromStringAndSize(NULL, reader.end - reader.at);
    PyObject *ends = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    PyObject *found = NULL;
    if (data == NULL || ends == NULL || hashes == NULL)
        goto done;
    char *target = PyBytes_AS_STRING(data), *first = target;
    char *end_at = PyBytes_AS_STRING(ends), *hash_at = PyBytes_AS_STRING(hashes);
    String least = {NULL, 0}, greatest = {NULL, 0};
    Py_ssize_t longest = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        String key;
        key.length = pass_string(&reader);
        if (key.length < 0) {
            found = Py_NewRef(Py_None);
            goto done;
        }
        key.bytes = reader.at - key.length;
        memcpy(target, key.bytes, key.length);
        target += key.length;
        uint32_t end = (uint32_t)(target - first);
        memcpy(end_at + i * sizeof end, &end, sizeof end);
        int64_t hash = HASH_BYTES(key.bytes, key.length);
        memcpy(hash_at + i * sizeof hash, &hash, sizeof hash);
        if (key.length > longest)
            longest = key.length;
        if (i == 0 || is_below(key, least))
            least = key;
        if (i == 0 || is_below(greatest, key))
            greatest = key;
    }
    if (reader.at != reader.end) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    if (_PyBytes_Resize(&data, target - first) == 0)
        found = Py_BuildValue(
            "(OOOy#y#n)", data, ends, hashes, least.bytes, least.length, greatest.bytes,
            greatest.length, longest);
done:
    Py_XDECREF(data);
    Py_XDECREF(ends);
    Py_XDECREF(hashes);
    return found;
}

PyDoc_STRVAR(longest_doc,
"longest(packed, count) -> int | None\n\n"
"Return the length of the longest value in a packed array of `count` values, of which some may be\n"
"nil. None: use the Python code.");

static PyObject *
longest_value(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Reader reader;
    Py_ssize_t count;
    if (!arguments(args, given, &reader, &count))
        return NULL;
    if (!pass_array_head(&reader, count))
        Py_RETURN_NONE;
    Py_ssize_t longest = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (reader.at < reader.end && *reader.at == NIL) {
            reader.at++;
            continue;
        }
        Py_ssize_t length = pass_string(&reader);
        if (length < 0)
            Py_RETURN_NONE;
        if (length > longest)
            longest = length;
    }
    if (reader.at != reader.end)
        Py_RETURN_NONE;
    return PyLong_FromSsize_t(longest);
}

PyDoc_STRVAR(locate_doc,
"locate(packed, counts, none, place_bits) -> (starts, lengths) | None\n\n"
"Return where each string of some packed arrays lies, as numbers of 64 bits. With `none` a string\n"
"may be nil, of length -1. A start counts from the begin of the first array, as if the arrays stood\n"
"side by side. With `place_bits` it counts from the begin of its own array, whose number stands\n"
"above so many bits. None: use the Python code.");

static PyObject *
locate(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 4 || !PyList_Check(args[0]) || !PyList_Check(args[1])
        || PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[1])) {
        PyErr_SetString(PyExc_TypeError, "give lists of packed arrays and of their counts");
        return NULL;
    }
    int nil_allowed = PyObject_IsTrue(args[2]);
    long place_bits = PyLong_AsLong(args[3]);
    if (nil_allowed < 0 || (place_bits == -1 && PyErr_Occurred()))
        return NULL;
    if (place_bits < 0 || place_bits > 62) {
        PyErr_SetString(PyExc_ValueError, "a place has 0 to 62 low bits");
        return NULL;
    }
    Py_ssize_t arrays = PyList_GET_SIZE(args[0]), all = 0;
    for (Py_ssize_t i = 0; i < arrays; i++) {
        PyObject *pair[2] = {PyList_GET_ITEM(args[0], i), PyList_GET_ITEM(args[1], i)};
        Reader reader;
        Py_ssize_t count;
        if (!arguments(pair, 2, &reader, &count))
            return NULL;
        /* Nothing is reserved for strings that are not there. */
        if (count < 0 || count > reader.end - reader.at)
            Py_RETURN_NONE;
        if (place_bits && (reader.end - reader.at) >> place_bits)
            Py_RETURN_NONE;
        all += count;
    }
    if (place_bits && arrays > INT64_MAX >> place_bits)
        Py_RETURN_NONE;
    PyObject *starts = PyBytes_FromStringAndSize(NULL, all * (Py_ssize_t)sizeof(int64_t));
    PyObject *lengths = PyBytes_FromStringAndSize(NULL, all * (Py_ssize_t)sizeof(int64_t));
    PyObject *found = NULL;
    if (starts == NULL || lengths == NULL)
        goto done;
    char *start_at = PyBytes_AS_STRING(starts), *length_at = PyBytes_AS_STRING(lengths);
    int64_t base = 0;
    for (Py_ssize_t i = 0; i < arrays; i++) {
        PyObject *pair[2] = {PyList_GET_ITEM(args[0], i), PyList_GET_ITEM(args[1], i)};
        Reader reader;
        Py_ssize_t count;
        if (!arguments(pair, 2, &reader, &count))
            goto done;
        const unsigned char *begin = reader.at;
        if (place_bits)
            base = (int64_t)i << place_bits;
        if (!pass_array_head(&reader, count)) {
            found = Py_NewRef(Py_None);
            goto done;
        }
        for (Py_ssize_t n = 0; n < count; n++) {
            int64_t length, start;
            if (nil_allowed && reader.at < reader.end && *reader.at == NIL) {
                reader.at++;
                length = -1;
                start = base + (reader.at - begin);
            }
            else {
                length = pass_string(&reader);
                if (length < 0) {
                    found = Py_NewRef(Py_None);
                    goto done;
                }
                start = base + (reader.at - begin) - length;
            }
            memcpy(start_at, &start, sizeof start);
            memcpy(length_at, &length, sizeof length);
            start_at += sizeof start;
            length_at += sizeof length;
        }
        if (reader.at != reader.end) {
            found = Py_NewRef(Py_None);
            goto done;
        }
        base += reader.end - begin;
    }
    found = PyTuple_Pack(2, starts, lengths);
done:
    Py_XDECREF(starts);
    Py_XDECREF(lengths);
    return found;
}

PyDoc_STRVAR(gather_doc,
"gather(data, starts, lengths, places) -> (data, lengths)\n\n"
"Return the strings at these positions side by side, and their lengths as numbers of 64 bits.\n"
"Raises ValueError.");

enum { DATA, STARTS, LENGTHS, PLACES, GATHERED, AHEAD = 16, LINE = 64, FETCHED_MAX = 256 };

/* Note the lengths of the strings at these positions. Return their sum, or -1 when one lies outside
 * of the data. The strings lie anywhere: ask for those that follow meanwhile. */
static int64_t
gathered_size(const Py_buffer *parts, int64_t *found)
{
    const char *data = parts[DATA].buf;
    const int64_t *starts = parts[STARTS].buf, *lengths = parts[LENGTHS].buf;
    const int64_t *places = parts[PLACES].buf;
    Py_ssize_t count = parts[PLACES].len / (Py_ssize_t)sizeof(int64_t);
    int64_t strings = parts[STARTS].len / (Py_ssize_t)sizeof(int64_t), size = 0;
    if (parts[LENGTHS].len != parts[STARTS].len)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count && places[i + AHEAD] >= 0 && places[i + AHEAD] < strings) {
            __builtin_prefetch(&starts[places[i + AHEAD]]);
            __builtin_prefetch(&lengths[places[i + AHEAD]]);
        }
        if (places[i] < 0 || places[i] >= strings)
            return -1;
        int64_t start = starts[places[i]], length = lengths[places[i]];
        if (length < 0 || start < 0 || start > parts[DATA].len || length > parts[DATA].len - start
            || length > PY_SSIZE_T_MAX - size)
            return -1;
        for (int64_t at = 0; at < length && at < FETCHED_MAX; at += LINE)
            __builtin_prefetch(data + start + at);
        found[i] = length;
        size += length;
    }
    return size;
}

static PyObject *
gather(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer parts[GATHERED];
    if (given != GATHERED) {
        PyErr_SetString(PyExc_TypeError, "give data, starts, lengths and places");
        return NULL;
    }
    int held = 0;
    PyObject *found = NULL, *lengths = NULL, *data = NULL;
    for (; held < GATHERED; held++)
        if (PyObject_GetBuffer(args[held], &parts[held], PyBUF_SIMPLE) < 0)
            goto done;
    const int64_t *starts = parts[STARTS].buf, *places = parts[PLACES].buf;
    Py_ssize_t count = parts[PLACES].len / (Py_ssize_t)sizeof(int64_t);
    lengths = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    if (lengths == NULL)
        goto done;
    const int64_t *length = (int64_t *)PyBytes_AS_STRING(lengths);
    int64_t size = gathered_size(parts, (int64_t *)PyBytes_AS_STRING(lengths));
    if (size < 0) {
        PyErr_SetString(PyExc_ValueError, "a string lies outside of the data");
        goto done;
    }
    data = PyBytes_FromStringAndSize(NULL, size);
    if (data == NULL)
        goto done;
    const char *from = parts[DATA].buf;
    char *to = PyBytes_AS_STRING(data);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            __builtin_prefetch(from + starts[places[i + AHEAD]]);
        memcpy(to, from + starts[places[i]], length[i]);
        to += length[i];
    }
    found = PyTuple_Pack(2, data, lengths);
done:
    Py_XDECREF(data);
    Py_XDECREF(lengths);
    while (held > 0)
        PyBuffer_Release(&parts[--held]);
    return found;
}

PyDoc_STRVAR(integers_doc,
"integers(data, begin, count) -> (list, end) | None\n\n"
"Unpack `count` integers from `begin` on; return them and where they end. None: use the Python\n"
"code.");

static PyObject *
integers(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 3 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "give bytes, a begin and a count");
        return NULL;
    }
    Py_ssize_t begin, count;
    if (!number_of(args[1], &begin) || !number_of(args[2], &count))
        return NULL;
    const unsigned char *at = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    const unsigned char *end = at + PyBytes_GET_SIZE(args[0]);
    /* Nothing is reserved for integers that are not there. */
    if (begin < 0 || begin > end - at || count < 0 || count > end - at - begin)
        Py_RETURN_NONE;
    const unsigned char *first = at;
    at += begin;
    PyObject *found = PyList_New(count);
    if (found == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        /* By the first byte: the bytes of the number, and whether it has a sign. */
        int width = 0, is_signed = 0;
        int64_t number = 0;
        if (at == end)
            goto other;
        unsigned char head = *at++;
        if (head < 0x80 || head >= 0xe0)
            number = (signed char)head;
        else if (head >= 0xcc && head <= 0xcf)
            width = 1 << (head - 0xcc);
        else if (head >= 0xd0 && head <= 0xd3) {
            width = 1 << (head - 0xd0);
            is_signed = 1;
        }
        else
            goto other;
        if (width > end - at)
            goto other;
        if (width) {
            uint64_t bits = 0;
            for (int b = 0; b < width; b++)
                bits = bits << 8 | at[b];
            if (is_signed) /* move the sign to the top, and back with copies of it */
                number = (int64_t)(bits << (64 - 8 * width)) >> (64 - 8 * width);
            else if (bits > INT64_MAX)
                goto other;
            else
                number = (int64_t)bits;
            at += width;
        }
        PyObject *item = PyLong_FromLongLong(number);
        if (item == NULL) {
            Py_DECREF(found);
            return NULL;
        }
        PyList_SET_ITEM(found, i, item);
    }
    return Py_BuildValue("(Nn)", found, (Py_ssize_t)(at - first));
other:
    Py_DECREF(found);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(all_are_doc,
"all_are(kind, elements, none) -> bool\n\n"
"Return whether each element of a list is of exactly this type, or None where `none` allows it.");

static PyObject *
all_are(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 3 || !PyType_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "give a type, a list, and whether None is allowed");
        return NULL;
    }
    int none = PyObject_IsTrue(args[2]);
    if (none < 0)
        return NULL;
    PyTypeObject *kind = (PyTypeObject *)args[0];
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[1]); i++) {
        PyObject *element = PyList_GET_ITEM(args[1], i);
        if (!Py_IS_TYPE(element, kind) && !(none && element == Py_None))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* Runs of an index: hashes, ascending, each with its position. */

typedef struct {
    PyObject *hashes;
    PyObject *positions;
    int64_t *hash;
    int32_t *position;
} Run;

static int
make_run(Run *run, Py_ssize_t count)
{
    run->hashes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    run->positions = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int32_t));
    if (run->hashes == NULL || run->positions == NULL) {
        Py_XDECREF(run->hashes);
        Py_XDECREF(run->positions);
        return 0;
    }
    run->hash = (int64_t *)PyBytes_AS_STRING(run->hashes);
    run->position = (int32_t *)PyBytes_AS_STRING(run->positions);
    return 1;
}

PyDoc_STRVAR(sorted_run_doc,
"sorted_run(hashes, begin) -> (hashes, positions)\n\n"
"Sort hashes, as numbers of 64 bits. Return them with their positions, from `begin` on, as numbers\n"
"of 32 bits; equal hashes stay in order.");

enum { DIGITS = 8, VALUES = 256 };

static PyObject *
sorted_run(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer source;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "give hashes and a begin");
        return NULL;
    }
    Py_ssize_t begin = PyLong_AsSsize_t(args[1]);
    if (begin == -1 && PyErr_Occurred())
        return NULL;
    if (PyObject_GetBuffer(args[0], &source, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t count = source.len / (Py_ssize_t)sizeof(int64_t);
    PyObject *found = NULL;
    Run one, other;
    if (begin < 0 || count > INT32_MAX || begin > INT32_MAX - count) {
        PyErr_SetString(PyExc_OverflowError, "a position has 32 bits");
        goto no_one;
    }
    if (!make_run(&one, count))
        goto no_one;
    if (!make_run(&other, count))
        goto no_other;
    /* A digit of eight bits at a time, from the lowest on; the sign makes the top digit's order. */
    Py_ssize_t starts[DIGITS][VALUES] = {{0}};
    memcpy(one.hash, source.buf, count * sizeof(int64_t));
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t bits = (uint64_t)one.hash[i] ^ (uint64_t)1 << 63;
        one.position[i] = (int32_t)(begin + i);
        for (int digit = 0; digit < DIGITS; digit++)
            starts[digit][bits >> 8 * digit & 0xff]++;
    }
    for (int digit = 0; digit < DIGITS; digit++) {
        Py_ssize_t *start = starts[digit], before = 0;
        for (int value = 0; value < VALUES; value++) {
            Py_ssize_t own = start[value];
            start[value] = before;
            before += own;
        }
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t bits = (uint64_t)one.hash[i] ^ (uint64_t)1 << 63;
            Py_ssize_t to = start[bits >> 8 * digit & 0xff]++;
            other.hash[to] = one.hash[i];
            other.position[to] = one.position[i];
        }
        Run swapped = one;
        one = other;
        other = swapped;
    }
    found = PyTuple_Pack(2, one.hashes, one.positions);
    Py_DECREF(other.hashes);
    Py_DECREF(other.positions);
no_other:
    Py_DECREF(one.hashes);
    Py_DECREF(one.positions);
no_one:
    PyBuffer_Release(&source);
    return found;
}

PyDoc_STRVAR(merged_runs_doc,
"merged_runs(hashes, positions, hashes, positions) -> (hashes, positions)\n\n"
"Merge two runs; of equal hashes those of the first run come first.");

static PyObject *
merged_runs(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 4) {
        PyErr_SetString(PyExc_TypeError, "give the hashes and positions of two runs");
        return NULL;
    }
    Py_buffer parts[4];
    int held = 0;
    PyObject *found = NULL;
    for (; held < 4; held++)
        if (PyObject_GetBuffer(args[held], &parts[held], PyBUF_SIMPLE) < 0)
            goto done;
    Py_ssize_t left = parts[0].len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t right = parts[2].len / (Py_ssize_t)sizeof(int64_t);
    if (parts[1].len != left * (Py_ssize_t)sizeof(int32_t)
        || parts[3].len != right * (Py_ssize_t)sizeof(int32_t)) {
        PyErr_SetString(PyExc_ValueError, "a run has other positions than hashes");
        goto done;
    }
    const int64_t *older = parts[0].buf, *newer = parts[2].buf;
    const int32_t *older_at = parts[1].buf, *newer_at = parts[3].buf;
    Run run;
    if (!make_run(&run, left + right))
        goto done;
    Py_ssize_t i = 0, j = 0, to = 0;
    while (i < left && j < right) {
        /* Hashes are random, so a branch would be guessed wrong: choose by a mask. */
        int64_t one = older[i], other = newer[j];
        int64_t takes = -(int64_t)(other < one);
        run.hash[to] = one ^ ((one ^ other) & takes);
        int32_t place = older_at[i];
        run.position[to++] = place ^ ((place ^ newer_at[j]) & (int32_t)takes);
        j -= takes;
        i += 1 + takes;
    }
    memcpy(run.hash + to, older + i, (left - i) * sizeof(int64_t));
    memcpy(run.position + to, older_at + i, (left - i) * sizeof(int32_t));
    to += left - i;
    memcpy(run.hash + to, newer + j, (right - j) * sizeof(int64_t));
    memcpy(run.position + to, newer_at + j, (right - j) * sizeof(int32_t));
    found = Py_BuildValue("(NN)", run.hashes, run.positions);
done:
    while (held > 0)
        PyBuffer_Release(&parts[--held]);
    return found;
}

PyDoc_STRVAR(totals_doc,
"totals(column, width) -> (sum, absent) | None\n\n"
"Return the sum of the numbers of a column, of 2 or 4 bytes each, and how many of them have all bits\n"
"set. None: use the Python code.");

static PyObject *
totals(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (given != 2 || !PyLong_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "give a column and the bytes of a number");
        return NULL;
    }
    Py_ssize_t width;
    Py_buffer column;
    if (!number_of(args[1], &width) || PyObject_GetBuffer(args[0], &column, PyBUF_SIMPLE) < 0)
        return NULL;
    if ((width != 2 && width != 4) || column.len % width) {
        PyBuffer_Release(&column);
        Py_RETURN_NONE;
    }
    const char *bytes = column.buf;
    Py_ssize_t count = column.len / width, absent = 0;
    uint64_t sum = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint16_t narrow;
        uint32_t wide;
        if (width == 2) {
            memcpy(&narrow, bytes + i * sizeof narrow, sizeof narrow);
            sum += narrow;
            absent += narrow == UINT16_MAX;
        }
        else {
            memcpy(&wide, bytes + i * sizeof wide, sizeof wide);
            sum += wide;
            absent += wide == UINT32_MAX;
        }
    }
    PyBuffer_Release(&column);
    return Py_BuildValue("(Kn)", (unsigned long long)sum, absent);
}

static PyMethodDef functions[] = {
    {"totals", (PyCFunction)(void (*)(void))totals, METH_FASTCALL, totals_doc},
    {"integers", (PyCFunction)(void (*)(void))integers, METH_FASTCALL, integers_doc},
    {"all_are", (PyCFunction)(void (*)(void))all_are, METH_FASTCALL, all_are_doc},
    {"sorted_run", (PyCFunction)(void (*)(void))sorted_run, METH_FASTCALL, sorted_run_doc},
    {"merged_runs", (PyCFunction)(void (*)(void))merged_runs, METH_FASTCALL, merged_runs_doc},
    {"locate", (PyCFunction)(void (*)(void))locate, METH_FASTCALL, locate_doc},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, gather_doc},
    {"scan_keys", (PyCFunction)(void (*)(void))scan_keys, METH_FASTCALL, scan_keys_doc},
    {"longest", (PyCFunction)(void (*)(void))longest_value, METH_FASTCALL, longest_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Compiled work on batches; see the source.", 0, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
