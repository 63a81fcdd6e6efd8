/* What the compiled modules of batches share: the heads of msgpack's arrays and strings, and strings
 * that lie anywhere.
 */

#ifndef LOGNODE_STRINGS_H
#define LOGNODE_STRINGS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum {
    NIL = 0xc0, BIN8 = 0xc4, BIN16 = 0xc5, BIN32 = 0xc6, ARRAY4 = 0x90, ARRAY16 = 0xdc, ARRAY32 = 0xdd
};

typedef struct {
    const unsigned char *bytes;
    Py_ssize_t length;
} String;

static inline int
is_below(String one, String other)
{
    Py_ssize_t shorter = one.length < other.length ? one.length : other.length;
    int order = memcmp(one.bytes, other.bytes, shorter);
    return order ? order < 0 : one.length < other.length;
}

static inline unsigned char *
put_head(unsigned char *to, unsigned char kind, int width, uint32_t number)
{
    *to++ = kind;
    while (width-- > 0)
        *to++ = (unsigned char)(number >> 8 * width);
    return to;
}

/* Put the head of an array of so many elements. */
static inline unsigned char *
put_array(unsigned char *to, uint32_t count)
{
    if (count < 16) {
        *to++ = (unsigned char)(ARRAY4 | count);
        return to;
    }
    return count < 1 << 16 ? put_head(to, ARRAY16, 2, count) : put_head(to, ARRAY32, 4, count);
}

/* Put the head of a string of so many bytes. */
static inline unsigned char *
put_bin(unsigned char *to, uint32_t length)
{
    if (length < 1 << 8)
        return put_head(to, BIN8, 1, length);
    return length < 1 << 16 ? put_head(to, BIN16, 2, length) : put_head(to, BIN32, 4, length);
}

#endif
