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

#endif
