/* What is done for each entry of a segment that is built or merged, compiled. `block_layout`,
 * `key_hashes` and `key_order` have the twins in Python, which say what each argument is.
 *
 * The caller has made all columns itself. A column that leads outside of its buffers is an error,
 * never memory of something else.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Cutting entries into blocks. The cut of a block asks for the values of its entries, which lie
 * anywhere, before any of them is copied. So the waits for memory overlap, and a value is copied
 * once, from where it came.
 */

enum { PLACE_BITS = 40, ENTRY_BYTES = 10, AHEAD = 16, LINE = 64, FETCHED_MAX = 256 };
static const uint32_t ABSENT = 0xffffffff;
static const int64_t LENGTH_MAX = 0xfffffffe, BLOCK_MAX = (int64_t)1 << 40;
static const int64_t BEGINS = ((int64_t)1 << PLACE_BITS) - 1;

enum {
    ORDER, FRESH, KEY_DATA, KEY_LENGTHS, PLACES, LENGTHS, SEQS, TIMESTAMPS, NO_VALUE, MORE, COLUMNS
};

typedef struct {
    const char *bytes;
    int64_t length;
} Source;

typedef struct {
    PyObject_HEAD
    Py_buffer columns[COLUMNS]; /* without an object where the caller gave none */
    PyObject *buffers;          /* a tuple of bytes */
    Source *sources;
    Py_ssize_t positions, entries, keys;
    int seq_bytes, timestamp_bytes;
    Py_ssize_t at, key, key_at; /* the next entry, its key, and where this key is in the data */
} Layout;

/* A block before anything is copied. */
typedef struct {
    Py_ssize_t end, key, key_bytes, value_bytes;
    int64_t size;
} Cut;

static void
Layout_free(PyObject *given)
{
    Layout *self = (Layout *)given;
    PyTypeObject *type = Py_TYPE(given);
    for (int i = 0; i < COLUMNS; i++)
        if (self->columns[i].obj != NULL)
            PyBuffer_Release(&self->columns[i]);
    Py_XDECREF(self->buffers);
    PyMem_Free(self->sources);
    type->tp_free(given);
    Py_DECREF(type);
}

static int
take_sources(Layout *self, PyObject *buffers)
{
    if (!PyTuple_Check(buffers)) {
        PyErr_SetString(PyExc_TypeError, "give a tuple of bytes");
        return 0;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(buffers);
    self->buffers = Py_NewRef(buffers);
    self->sources = PyMem_New(Source, count + 1);
    if (self->sources == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bytes = PyTuple_GET_ITEM(buffers, i);
        if (!PyBytes_CheckExact(bytes)) {
            PyErr_SetString(PyExc_TypeError, "give a tuple of bytes");
            return 0;
        }
        self->sources[i].bytes = PyBytes_AS_STRING(bytes);
        self->sources[i].length = PyBytes_GET_SIZE(bytes);
    }
    return 1;
}

/* Return the bytes of a number in a column of so many numbers, 4 or 8, or 0 for another column. */
static int
width_of(const Py_buffer *column, Py_ssize_t count)
{
    if (column->len == count * 4)
        return 4;
    return column->len == count * 8 ? 8 : 0;
}

/* Check that the columns fit each other, and that the keys are as many as begin in the order. */
static int
columns_fit(Layout *self)
{
    const Py_buffer *columns = self->columns;
    self->entries = columns[ORDER].len / 8;
    self->positions = columns[PLACES].len / 8;
    self->keys = columns[KEY_LENGTHS].len / 2;
    if (columns[ORDER].len % 8 || columns[PLACES].len % 8 || columns[KEY_LENGTHS].len % 2
        || columns[FRESH].len != self->entries || columns[LENGTHS].len != columns[PLACES].len)
        return 0;
    if (columns[NO_VALUE].obj != NULL && columns[NO_VALUE].len != self->positions)
        return 0;
    if (columns[MORE].obj != NULL && columns[MORE].len != columns[PLACES].len)
        return 0;
    self->seq_bytes = width_of(&columns[SEQS], self->positions);
    self->timestamp_bytes = width_of(&columns[TIMESTAMPS], self->positions);
    if (!self->seq_bytes || !self->timestamp_bytes)
        return 0;
    const char *fresh = columns[FRESH].buf;
    const uint16_t *key_length = columns[KEY_LENGTHS].buf;
    Py_ssize_t keys = 0, bytes = 0;
    for (Py_ssize_t i = 0; i < self->entries; i++)
        keys += fresh[i] != 0;
    for (Py_ssize_t i = 0; i < self->keys; i++)
        bytes += key_length[i];
    return keys == self->keys && bytes == columns[KEY_DATA].len
        && (self->entries == 0 || fresh[0] != 0);
}

static PyObject *
Layout_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *given[COLUMNS], *buffers;
    if (named != NULL && PyDict_GET_SIZE(named)) {
        PyErr_SetString(PyExc_TypeError, "give the columns by position");
        return NULL;
    }
    if (!PyArg_UnpackTuple(
            args, "Layout", COLUMNS + 1, COLUMNS + 1, &given[ORDER], &given[FRESH],
            &given[KEY_DATA], &given[KEY_LENGTHS], &buffers, &given[PLACES], &given[LENGTHS],
            &given[SEQS], &given[TIMESTAMPS], &given[NO_VALUE], &given[MORE]))
        return NULL;
    Layout *self = (Layout *)type->tp_alloc(type, 0);
    if (self == NULL || !take_sources(self, buffers))
        goto failed;
    for (int i = 0; i < COLUMNS; i++) {
        if (i >= NO_VALUE && given[i] == Py_None)
            continue;
        if (PyObject_GetBuffer(given[i], &self->columns[i], PyBUF_SIMPLE) < 0)
            goto failed;
    }
    if (columns_fit(self))
        return (PyObject *)self;
    PyErr_SetString(PyExc_ValueError, "the columns of a segment do not fit each other");
failed:
    Py_XDECREF(self);
    return NULL;
}

/* Find the end of the next block, and check all that its entries lead to. */
static int
cut(const Layout *self, int64_t bytes_max, Cut *found)
{
    const int64_t *order = self->columns[ORDER].buf, *places = self->columns[PLACES].buf;
    const int64_t *lengths = self->columns[LENGTHS].buf, *more = self->columns[MORE].buf;
    const uint16_t *key_length = self->columns[KEY_LENGTHS].buf;
    const char *fresh = self->columns[FRESH].buf;
    int64_t sources = PyTuple_GET_SIZE(self->buffers);
    Cut made = {self->at, self->key, key_length[self->key], 0, 0};
    for (; made.end < self->entries; made.end++) {
        if (made.end + AHEAD < self->entries) {
            int64_t next = order[made.end + AHEAD];
            if (next >= 0 && next < self->positions) {
                __builtin_prefetch(&places[next]);
                __builtin_prefetch(&lengths[next]);
            }
        }
        int64_t position = order[made.end];
        if (position < 0 || position >= self->positions)
            return 0;
        int64_t length = lengths[position], extra = more == NULL ? 0 : more[position];
        int64_t source = places[position] >> PLACE_BITS, begin = places[position] & BEGINS;
        if (source < 0 || source >= sources || length < 0 || length > LENGTH_MAX || extra < 0
            || extra > BLOCK_MAX)
            return 0;
        const Source *from = &self->sources[source];
        if (begin > from->length || length > from->length - begin)
            return 0;
        for (int64_t i = 0; i < length && i < FETCHED_MAX; i += LINE)
            __builtin_prefetch(from->bytes + begin + i);
        int another = made.end > self->at && fresh[made.end];
        if (another && made.key + 1 >= self->keys)
            return 0;
        int64_t own = key_length[made.key + another];
        int64_t size = own + ENTRY_BYTES + length + extra;
        if (made.end > self->at && made.size + size > bytes_max)
            break;
        made.key += another;
        made.key_bytes += another ? own : 0;
        made.size += size;
        made.value_bytes += length;
    }
    *found = made;
    return made.key_bytes <= self->columns[KEY_DATA].len - self->key_at;
}

/* Copy a number of 4 or 8 bytes, and return what follows. */
static inline char *
put(char *to, const void *number, int bytes)
{
    if (bytes == 4)
        memcpy(to, number, 4);
    else
        memcpy(to, number, 8);
    return to + bytes;
}

/* Copy the columns of a block that was cut. `cut` has checked all places. */
static void
fill(const Layout *self, const Cut *block, char *to, char *value_to)
{
    const int64_t *order = self->columns[ORDER].buf, *places = self->columns[PLACES].buf;
    const int64_t *lengths = self->columns[LENGTHS].buf;
    const char *fresh = self->columns[FRESH].buf, *absent = self->columns[NO_VALUE].buf;
    const char *seqs = self->columns[SEQS].buf, *timestamps = self->columns[TIMESTAMPS].buf;
    Py_ssize_t begin = self->at, count = block->end - begin, keys = block->key + 1 - self->key;
    memcpy(to, (const uint16_t *)self->columns[KEY_LENGTHS].buf + self->key, keys * 2);
    to += keys * 2;
    if (keys != count) {
        uint32_t repeats = 1;
        for (Py_ssize_t i = begin + 1; i < block->end; i++, repeats++)
            if (fresh[i]) {
                to = put(to, &repeats, 4);
                repeats = 0;
            }
        to = put(to, &repeats, 4);
    }
    char *seq_to = to, *timestamp_to = seq_to + count * self->seq_bytes;
    char *length_to = timestamp_to + count * self->timestamp_bytes;
    for (Py_ssize_t i = begin; i < block->end; i++) {
        int64_t at = order[i], length = lengths[at];
        const Source *from = &self->sources[places[at] >> PLACE_BITS];
        memcpy(value_to, from->bytes + (places[at] & BEGINS), length);
        value_to += length;
        uint32_t kept = absent != NULL && absent[at] ? ABSENT : (uint32_t)length;
        length_to = put(length_to, &kept, 4);
        seq_to = put(seq_to, seqs + at * self->seq_bytes, self->seq_bytes);
        timestamp_to
            = put(timestamp_to, timestamps + at * self->timestamp_bytes, self->timestamp_bytes);
    }
    memcpy(length_to, (const char *)self->columns[KEY_DATA].buf + self->key_at, block->key_bytes);
}

PyDoc_STRVAR(take_doc,
"take(bytes_max, last) -> tuple | None\n\n"
"Return the next block, of at most `bytes_max` bytes or of one entry: the fields of `Laid`. None:\n"
"no entries are left, or without `last` too few for a block. Raises ValueError.");

static PyObject *
Layout_take(PyObject *given, PyObject *const *args, Py_ssize_t count)
{
    Layout *self = (Layout *)given;
    if (count != 2 || !PyLong_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "give a number of bytes, and whether all is taken");
        return NULL;
    }
    long long bytes_max = PyLong_AsLongLong(args[0]);
    int last = PyObject_IsTrue(args[1]);
    if ((bytes_max == -1 && PyErr_Occurred()) || last < 0)
        return NULL;
    if (self->at == self->entries)
        Py_RETURN_NONE;
    Cut block;
    if (!cut(self, bytes_max < BLOCK_MAX ? bytes_max : BLOCK_MAX, &block)) {
        PyErr_SetString(PyExc_ValueError, "an entry lies outside of the columns or buffers");
        return NULL;
    }
    int is_end = block.end == self->entries;
    if (is_end && !last)
        Py_RETURN_NONE;
    const uint16_t *key_length = self->columns[KEY_LENGTHS].buf;
    const char *key_data = (const char *)self->columns[KEY_DATA].buf + self->key_at;
    int ends_key = !is_end && ((const char *)self->columns[FRESH].buf)[block.end];
    Py_ssize_t entries = block.end - self->at, keys = block.key + 1 - self->key;
    Py_ssize_t size = keys * 2 + (keys == entries ? 0 : keys * 4) + block.key_bytes
        + entries * (self->seq_bytes + self->timestamp_bytes + 4);
    /* The key of the entry that follows, and where it is. */
    Py_ssize_t next = block.key + ends_key;
    Py_ssize_t next_at = block.key_bytes - (ends_key ? 0 : key_length[block.key]);
    Py_ssize_t key_room = self->columns[KEY_DATA].len - self->key_at - next_at;
    if (next >= self->keys || key_length[next] > key_room) {
        PyErr_SetString(PyExc_ValueError, "a key lies outside of its column");
        return NULL;
    }
    const char *first_seq = (const char *)self->columns[SEQS].buf
        + ((const int64_t *)self->columns[ORDER].buf)[self->at] * self->seq_bytes;
    uint32_t short_seq;
    uint64_t seq;
    if (self->seq_bytes == 4) {
        memcpy(&short_seq, first_seq, 4);
        seq = short_seq;
    }
    else
        memcpy(&seq, first_seq, 8);
    PyObject *found = NULL;
    PyObject *head = PyBytes_FromStringAndSize(NULL, size);
    PyObject *values = PyBytes_FromStringAndSize(NULL, block.value_bytes);
    PyObject *following = is_end
        ? Py_NewRef(Py_None)
        : PyBytes_FromStringAndSize(key_data + next_at, key_length[next]);
    if (head != NULL && values != NULL && following != NULL) {
        fill(self, &block, PyBytes_AS_STRING(head), PyBytes_AS_STRING(values));
        found = Py_BuildValue(
            "(nnnnnLy#KOOO)", block.end, entries, block.key + 1, keys, block.key_bytes,
            (long long)block.size, key_data, (Py_ssize_t)key_length[self->key],
            (unsigned long long)seq, following, head, values);
    }
    if (found != NULL) {
        self->at = block.end;
        self->key = next;
        self->key_at += next_at;
    }
    Py_XDECREF(head);
    Py_XDECREF(values);
    Py_XDECREF(following);
    return found;
}

/* Keys. */

/* Take all buffers of a call, or none. Return whether they are there. */
static int
take_buffers(PyObject *const *args, Py_ssize_t given, Py_buffer *parts, int count)
{
    if (given < count) {
        PyErr_SetString(PyExc_TypeError, "a column is missing");
        return 0;
    }
    for (int held = 0; held < count; held++)
        if (PyObject_GetBuffer(args[held], &parts[held], PyBUF_SIMPLE) < 0) {
            while (held > 0)
                PyBuffer_Release(&parts[--held]);
            return 0;
        }
    return 1;
}

static void
release_buffers(Py_buffer *parts, int count)
{
    while (count > 0)
        PyBuffer_Release(&parts[--count]);
}

PyDoc_STRVAR(hash_keys_doc,
"hash_keys(data, starts, lengths, contributions, zeros) -> hashes\n\n"
"Return the hash of each string, as numbers of 64 bits: the exclusive or of the hash of as many\n"
"zeros and of what each byte contributes, by the count of bytes behind it. Raises ValueError.");

enum { DATA, STARTS, SIZES, CONTRIBUTIONS, ZEROS, HASHED, BYTE_VALUES = 256 };

static PyObject *
hash_keys(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer parts[HASHED];
    if (!take_buffers(args, given, parts, HASHED))
        return NULL;
    const unsigned char *data = parts[DATA].buf;
    const int64_t *starts = parts[STARTS].buf, *lengths = parts[SIZES].buf;
    const uint64_t *contributions = parts[CONTRIBUTIONS].buf, *zeros = parts[ZEROS].buf;
    Py_ssize_t count = parts[STARTS].len / 8;
    int64_t longest = parts[CONTRIBUTIONS].len / (8 * BYTE_VALUES);
    int inside = parts[SIZES].len == parts[STARTS].len && parts[ZEROS].len / 8 > longest;
    PyObject *found = inside ? PyBytes_FromStringAndSize(NULL, count * 8) : NULL;
    if (inside && found == NULL)
        goto done;
    for (Py_ssize_t i = 0; inside && i < count; i++) {
        int64_t start = starts[i], length = lengths[i];
        inside = length >= 0 && length <= longest && start >= 0 && start <= parts[DATA].len
            && length <= parts[DATA].len - start;
        if (!inside)
            break;
        uint64_t hash = zeros[length];
        const unsigned char *at = data + start;
        for (int64_t behind = length - 1; behind >= 0; behind--)
            hash ^= contributions[behind * BYTE_VALUES + *at++];
        memcpy(PyBytes_AS_STRING(found) + i * 8, &hash, 8);
    }
    if (!inside) {
        Py_CLEAR(found);
        PyErr_SetString(PyExc_ValueError, "a key lies outside of the data or of the tables");
    }
done:
    release_buffers(parts, HASHED);
    return found;
}

/* Sorting keys: by the 8 bytes that follow what is the same in a group of keys, as one number. Keys
 * with equal numbers are a group of their own. A key that ends counts as followed by zeros, and of
 * two keys that differ in such zeros only, the shorter key is the lesser. Every step is stable.
 */

enum { WORD = 8, DIGITS = 8, FEW = 24 };

typedef struct {
    const unsigned char *data;
    const int64_t *starts, *lengths;
    char *fresh;
    /* The positions in order, and what `sort_digits` needs. */
    uint32_t *place, *other_place;
    uint64_t *word, *other_word;
} Sorting;

/* Keys that are the same up to `at`. */
typedef struct {
    Py_ssize_t begin, end;
    int64_t at;
} Group;

static inline uint64_t
word_of(const Sorting *keys, uint32_t place, int64_t at)
{
    const unsigned char *from = keys->data + keys->starts[place];
    int64_t left = keys->lengths[place] - at;
    uint64_t word = 0;
    if (left >= WORD)
        for (int i = 0; i < WORD; i++)
            word = word << 8 | from[at + i];
    else if (left > 0) {
        for (int i = 0; i < left; i++)
            word = word << 8 | from[at + i];
        word <<= 8 * (WORD - left);
    }
    return word;
}

/* Compare two keys of a group. */
static inline int
compared(const Sorting *keys, uint32_t one, uint32_t other, int64_t at)
{
    int64_t left = keys->lengths[one], right = keys->lengths[other];
    int64_t shorter = left < right ? left : right;
    if (at < shorter) {
        const unsigned char *first = keys->data + keys->starts[one];
        int order = memcmp(first + at, keys->data + keys->starts[other] + at, shorter - at);
        if (order)
            return order;
    }
    return (left > right) - (left < right);
}

static void
sort_few(const Sorting *keys, Group group)
{
    uint32_t *place = keys->place;
    for (Py_ssize_t i = group.begin + 1; i < group.end; i++) {
        uint32_t own = place[i];
        Py_ssize_t to = i;
        for (; to > group.begin && compared(keys, place[to - 1], own, group.at) > 0; to--)
            place[to] = place[to - 1];
        place[to] = own;
    }
    for (Py_ssize_t i = group.begin + 1; i < group.end; i++)
        keys->fresh[i] = compared(keys, place[i - 1], place[i], group.at) != 0;
}

/* Sort positions by their words, a digit of eight bits at a time, from the lowest on. */
static void
sort_digits(const Sorting *keys, Py_ssize_t begin, Py_ssize_t count)
{
    uint64_t *word = keys->word + begin, *other_word = keys->other_word + begin;
    uint32_t *place = keys->place + begin, *other_place = keys->other_place + begin;
    Py_ssize_t starts[DIGITS][BYTE_VALUES] = {{0}};
    for (Py_ssize_t i = 0; i < count; i++)
        for (int digit = 0; digit < DIGITS; digit++)
            starts[digit][word[i] >> 8 * digit & 0xff]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        Py_ssize_t *start = starts[digit], before = 0;
        if (start[word[0] >> 8 * digit & 0xff] == count)
            continue; /* the digit is the same in all */
        for (int value = 0; value < BYTE_VALUES; value++) {
            Py_ssize_t own = start[value];
            start[value] = before;
            before += own;
        }
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_ssize_t to = start[word[i] >> 8 * digit & 0xff]++;
            other_word[to] = word[i];
            other_place[to] = place[i];
        }
        uint64_t *swapped_word = word;
        uint32_t *swapped_place = place;
        word = other_word;
        place = other_place;
        other_word = swapped_word;
        other_place = swapped_place;
    }
    if (word != keys->word + begin) {
        memcpy(keys->word + begin, word, count * sizeof *word);
        memcpy(keys->place + begin, place, count * sizeof *place);
    }
}

/* Return up to where the keys of a group are the same, and note the length of the longest. */
static int64_t
same_up_to(const Sorting *keys, Group group, int64_t *longest)
{
    uint32_t first = keys->place[group.begin];
    const unsigned char *bytes = keys->data + keys->starts[first];
    int64_t same = keys->lengths[first];
    *longest = same;
    for (Py_ssize_t i = group.begin + 1; i < group.end; i++) {
        uint32_t place = keys->place[i];
        int64_t length = keys->lengths[place];
        const unsigned char *own = keys->data + keys->starts[place];
        if (length > *longest)
            *longest = length;
        if (length < same)
            same = length;
        if (group.at < same && memcmp(bytes + group.at, own + group.at, same - group.at)) {
            int64_t at = group.at;
            while (bytes[at] == own[at])
                at++;
            same = at;
        }
    }
    return same > group.at ? same : group.at;
}

/* Sort the groups on the stack, which has room for as many groups as `FEW` fits into the keys. */
static void
sort_groups(const Sorting *keys, Group *stack, Py_ssize_t waiting)
{
    while (waiting > 0) {
        Group group = stack[--waiting];
        int64_t longest;
        group.at = same_up_to(keys, group, &longest);
        int ends = group.at >= longest; /* then the keys differ in their lengths only */
        for (Py_ssize_t i = group.begin; i < group.end; i++) {
            uint32_t place = keys->place[i];
            keys->word[i] = ends ? (uint64_t)keys->lengths[place] : word_of(keys, place, group.at);
        }
        sort_digits(keys, group.begin, group.end - group.begin);
        Py_ssize_t begin = group.begin;
        for (Py_ssize_t i = group.begin + 1; i <= group.end; i++) {
            if (i < group.end && keys->word[i] == keys->word[begin])
                continue;
            Group equal = {begin, i, group.at + WORD};
            if (!ends && i - begin >= FEW)
                stack[waiting++] = equal;
            else if (!ends && i - begin > 1)
                sort_few(keys, equal);
            if (i < group.end)
                keys->fresh[i] = 1;
            begin = i;
        }
    }
}

PyDoc_STRVAR(sort_keys_doc,
"sort_keys(data, starts, lengths) -> (order, fresh)\n\n"
"Return the positions of keys in their order, as numbers of 64 bits, and for each a byte that\n"
"tells whether its key is a new one. Raises ValueError.");

enum { SORTED = SIZES + 1 };

static int
keys_are_inside(const Py_buffer *parts)
{
    const int64_t *starts = parts[STARTS].buf, *lengths = parts[SIZES].buf;
    if (parts[SIZES].len != parts[STARTS].len || parts[STARTS].len / 8 > UINT32_MAX)
        return 0;
    for (Py_ssize_t i = 0; i < parts[STARTS].len / 8; i++)
        if (lengths[i] < 0 || starts[i] < 0 || starts[i] > parts[DATA].len
            || lengths[i] > parts[DATA].len - starts[i])
            return 0;
    return 1;
}

static PyObject *
sort_keys(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer parts[SORTED];
    if (!take_buffers(args, given, parts, SORTED))
        return NULL;
    if (!keys_are_inside(parts)) {
        release_buffers(parts, SORTED);
        PyErr_SetString(PyExc_ValueError, "a key lies outside of the data");
        return NULL;
    }
    Py_ssize_t count = parts[STARTS].len / 8;
    PyObject *found = NULL;
    PyObject *order = PyBytes_FromStringAndSize(NULL, count * 8);
    PyObject *fresh = PyBytes_FromStringAndSize(NULL, count);
    Group *stack = PyMem_New(Group, count / FEW + 1);
    Sorting keys = {
        parts[DATA].buf, parts[STARTS].buf, parts[SIZES].buf, NULL,
        PyMem_New(uint32_t, count + 1), PyMem_New(uint32_t, count + 1),
        PyMem_New(uint64_t, count + 1), PyMem_New(uint64_t, count + 1),
    };
    if (order == NULL || fresh == NULL || stack == NULL || keys.place == NULL
        || keys.other_place == NULL || keys.word == NULL || keys.other_word == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    keys.fresh = PyBytes_AS_STRING(fresh);
    memset(keys.fresh, 0, count);
    for (Py_ssize_t i = 0; i < count; i++)
        keys.place[i] = (uint32_t)i;
    Group all = {0, count, 0};
    if (count >= FEW) {
        stack[0] = all;
        sort_groups(&keys, stack, 1);
    }
    else
        sort_few(&keys, all);
    if (count)
        keys.fresh[0] = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t place = keys.place[i];
        memcpy(PyBytes_AS_STRING(order) + i * 8, &place, 8);
    }
    found = PyTuple_Pack(2, order, fresh);
done:
    Py_XDECREF(order);
    Py_XDECREF(fresh);
    PyMem_Free(stack);
    PyMem_Free(keys.place);
    PyMem_Free(keys.other_place);
    PyMem_Free(keys.word);
    PyMem_Free(keys.other_word);
    release_buffers(parts, SORTED);
    return found;
}

static PyMethodDef functions[] = {
    {"hash_keys", (PyCFunction)(void (*)(void))hash_keys, METH_FASTCALL, hash_keys_doc},
    {"sort_keys", (PyCFunction)(void (*)(void))sort_keys, METH_FASTCALL, sort_keys_doc},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef methods[] = {
    {"take", (PyCFunction)(void (*)(void))Layout_take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The entries of a segment in their order, to be cut into blocks."},
    {Py_tp_new, Layout_new},
    {Py_tp_dealloc, Layout_free},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "lognode.statemachine._building.Layout", sizeof(Layout), 0, Py_TPFLAGS_DEFAULT, slots,
};

static int
add_types(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL)
        return -1;
    int failure = PyModule_AddObjectRef(module, "Layout", type);
    Py_DECREF(type);
    return failure;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_types},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_building", "Compiled work on segments; see the source.", 0, functions,
    module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__building(void)
{
    return PyModuleDef_Init(&definition);
}
