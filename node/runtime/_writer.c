/* A thread that writes and syncs a file, and needs no Python for that.
 *
 * A thread of Python has to get the interpreter before each system call and after, while the event
 * loop has work of its own: four hand-overs a round. This thread takes a job through a semaphore and
 * tells its end through an eventfd, which the event loop watches. `wal_writer.py` is the caller, and
 * its other way, a `SyncThread`, is the twin of this module.
 *
 * A writer has one job at a time. The job belongs to the thread from `submit` until the thread has
 * set `done`, and to the callers of the methods, who hold the GIL, at all other times. The thread
 * ends only after its last job. After a fork the child has no thread: there every method but `close`
 * raises an error, and `close` and the destructor leave the thread alone.
 */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Below IOV_MAX, which is 1024 on Linux. */
#define PIECES_MAX 512
#define STACK_BYTES (256 << 10)

enum step { NOTHING, WRITE, SYNC };

typedef struct {
    PyObject_HEAD
    pthread_t thread;
    pid_t owner;
    int event;
    int runs;
    int ending;
    sem_t given;
    /* A job for the thread, which does the job before it looks at `stop`. */
    atomic_int has_job;
    atomic_int stop;
    /* The job. `buffers` keeps the bytes of `pieces` in place. */
    int busy;
    PyObject *buffers;
    struct iovec *pieces;
    Py_ssize_t count;
    int fd;
    off_t offset;
    int sync;
    /* The result: the step that failed and its errno, and how long the sync took. */
    atomic_int done;
    enum step failed;
    int error;
    double sync_s;
} Writer;

/* Write all pieces; return 0 or an errno. `pieces` is used up. */
static int
write_all(int fd, off_t offset, struct iovec *pieces, Py_ssize_t count)
{
    while (count > 0) {
        if (pieces->iov_len == 0) {
            pieces++;
            count--;
            continue;
        }
        int some = count < PIECES_MAX ? (int)count : PIECES_MAX;
        ssize_t written = pwritev2(fd, pieces, some, offset, 0);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return errno;
        }
        if (written == 0)
            return EIO;
        offset += written;
        while (written > 0) { /* the kernel may cut a write short */
            size_t part = (size_t)written < pieces->iov_len ? (size_t)written : pieces->iov_len;
            pieces->iov_base = (char *)pieces->iov_base + part;
            pieces->iov_len -= part;
            written -= part;
            if (pieces->iov_len == 0) {
                pieces++;
                count--;
            }
        }
    }
    return 0;
}

static double
now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void
run_job(Writer *self)
{
    self->failed = NOTHING;
    self->sync_s = 0;
    self->error = write_all(self->fd, self->offset, self->pieces, self->count);
    if (self->error)
        self->failed = WRITE;
    else if (self->sync) {
        double began = now_s();
        int result;
        do /* as Python does; a failed sync is never repeated */
            result = fdatasync(self->fd);
        while (result < 0 && errno == EINTR);
        if (result < 0) {
            self->error = errno;
            self->failed = SYNC;
        }
        self->sync_s = now_s() - began;
    }
    atomic_store(&self->done, 1);
    uint64_t one = 1;
    /* This cannot fail: the counter of the eventfd is 0 or 1. */
    while (write(self->event, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void *
work(void *argument)
{
    Writer *self = argument;
    for (;;) {
        while (sem_wait(&self->given) < 0)
            ; /* EINTR */
        if (atomic_exchange(&self->has_job, 0))
            run_job(self);
        else if (atomic_load(&self->stop))
            return NULL;
    }
}

static int
begin_thread(Writer *self)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failure = pthread_attr_init(&attributes);
    if (failure)
        return failure;
    failure = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (!failure) {
        sigfillset(&all); /* Python handles signals in its own threads */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failure = pthread_create(&self->thread, &attributes, work, self);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attributes);
    return failure;
}

static PyObject *
writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) || (kwargs != NULL && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "Writer takes no arguments");
        return NULL;
    }
    Writer *self = (Writer *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->event < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    sem_init(&self->given, 0, 0);
    self->owner = getpid();
    int failure = begin_thread(self);
    if (failure) {
        errno = failure;
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    self->runs = 1;
    return (PyObject *)self;
}

static void
forget_job(Writer *self)
{
    self->busy = 0;
    PyMem_Free(self->pieces);
    self->pieces = NULL;
    Py_CLEAR(self->buffers);
}

/* End the thread after its job. In a child of the owner there is no thread, and a job of the parent
 * is left as it is. */
static void
end(Writer *self)
{
    if (self->event < 0 || self->ending)
        return;
    self->ending = 1; /* another thread may call `close` while this one waits */
    if (self->runs && self->owner == getpid()) {
        self->runs = 0;
        atomic_store(&self->stop, 1);
        sem_post(&self->given);
        Py_BEGIN_ALLOW_THREADS
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
        sem_destroy(&self->given);
    }
    self->runs = 0;
    close(self->event);
    self->event = -1;
    forget_job(self);
}

static void
writer_dealloc(Writer *self)
{
    PyTypeObject *type = Py_TYPE(self);
    end(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static int
check_runs(Writer *self)
{
    if (self->runs && self->owner == getpid())
        return 1;
    PyErr_SetString(PyExc_RuntimeError,
                    self->runs ? "the writer belongs to the parent process; make another writer"
                               : "the writer is closed; make another writer");
    return 0;
}

PyDoc_STRVAR(submit_doc,
"submit(fd, offset, buffers, sync)\n\n"
"Write a list of bytes objects at the offset of an open file, and call fdatasync if `sync` is true.\n"
"The file stays open until `take` has returned the result. Raises RuntimeError while a job is under\n"
"way, in a child process, and after `close`.");

static PyObject *
submit(Writer *self, PyObject *const *args, Py_ssize_t given)
{
    if (given != 4 || !PyList_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "give a descriptor, an offset, a list of bytes and a flag");
        return NULL;
    }
    if (!check_runs(self))
        return NULL;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the writer has a job; take the result first");
        return NULL;
    }
    long fd = PyLong_AsLong(args[0]);
    long long offset = fd == -1 && PyErr_Occurred() ? 0 : PyLong_AsLongLong(args[1]);
    int sync = PyErr_Occurred() ? -1 : PyObject_IsTrue(args[3]);
    if (sync < 0)
        return NULL;
    if (fd < 0 || fd > INT_MAX || offset < 0) {
        PyErr_SetString(PyExc_ValueError, "the descriptor and the offset must be at least 0");
        return NULL;
    }
    /* A tuple of its own: the list could change while the thread reads the bytes. */
    PyObject *buffers = PyList_AsTuple(args[2]);
    if (buffers == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(buffers);
    struct iovec *pieces = PyMem_Calloc(count + 1, sizeof *pieces);
    if (pieces == NULL) {
        Py_DECREF(buffers);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *buffer = PyTuple_GET_ITEM(buffers, i);
        if (!PyBytes_CheckExact(buffer)) {
            PyErr_SetString(PyExc_TypeError, "each buffer must be a bytes object");
            PyMem_Free(pieces);
            Py_DECREF(buffers);
            return NULL;
        }
        pieces[i].iov_base = PyBytes_AS_STRING(buffer);
        pieces[i].iov_len = PyBytes_GET_SIZE(buffer);
    }
    self->buffers = buffers;
    self->pieces = pieces;
    self->count = count;
    self->fd = (int)fd;
    self->offset = offset;
    self->sync = sync;
    self->busy = 1;
    atomic_store(&self->has_job, 1);
    sem_post(&self->given);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(take_doc,
"take() -> (step, error, seconds) | None\n\n"
"Return the result of the job, or None while the job is under way and when there is none. `step` is\n"
"the step that failed: '', 'write' or 'sync'; `error` its errno, or 0; `seconds` how long fdatasync\n"
"took.");

static PyObject *
take(Writer *self, PyObject *unused)
{
    static const char *const steps[] = {"", "write", "sync"};
    if (!check_runs(self))
        return NULL;
    uint64_t ended;
    if (read(self->event, &ended, sizeof ended) < 0 && errno != EAGAIN)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (!atomic_exchange(&self->done, 0))
        Py_RETURN_NONE;
    forget_job(self);
    return Py_BuildValue("sid", steps[self->failed], self->error, self->sync_s);
}

PyDoc_STRVAR(fileno_doc,
"fileno() -> int\n\n"
"Return the descriptor that can be read once a job has ended.");

static PyObject *
fileno_of(Writer *self, PyObject *unused)
{
    return check_runs(self) ? PyLong_FromLong(self->event) : NULL;
}

PyDoc_STRVAR(close_doc,
"close()\n\n"
"Finish the job under way and end the thread. Blocks, without the GIL. May be called again.");

static PyObject *
close_writer(Writer *self, PyObject *unused)
{
    end(self);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"submit", (PyCFunction)(void (*)(void))submit, METH_FASTCALL, submit_doc},
    {"take", (PyCFunction)take, METH_NOARGS, take_doc},
    {"fileno", (PyCFunction)fileno_of, METH_NOARGS, fileno_doc},
    {"close", (PyCFunction)close_writer, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A thread that writes and syncs a file; see the source."},
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "lognode.node.runtime._writer.Writer", sizeof(Writer), 0, Py_TPFLAGS_DEFAULT, slots,
};

static int
fill(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    int failure = PyModule_AddObjectRef(module, "Writer", type);
    Py_DECREF(type);
    return failure;
}

static PyModuleDef_Slot parts[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_writer", "A thread that writes without Python; see the source.", 0,
    NULL, parts, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__writer(void)
{
    return PyModuleDef_Init(&definition);
}
