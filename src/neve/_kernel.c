/* The optional compiled kernel: functions of neve that spend their time in the interpreter.
 *
 * Each has a twin in Python, which is the reference and is used where this module was not built:
 *
 *     put_record    neve.wal.put_records      one log record that puts one row
 *     read_puts     neve.wal.put_records      the records of such puts in a block of a log
 *     RowWriter     neve.model.row_codec      a dict to the bytes of a row
 *     RowReader     neve.model.row_codec      the bytes of a row to a dict
 *     BatchRows     neve.sstable.row_cells    a row of an Arrow batch to a dict
 *     FileRows      neve.table.file_set       the row of a key in one data file
 *     IntegerKey    neve.keys.columns         an int to the bytes of a key
 *     gather        neve.sstable.row_gather   one column of rows of many batches
 *     keyed_row     neve.engine.write_path    a dict to its key and its bytes
 *
 * Rules that hold for all of them:
 *
 * KERNEL-1  It decides nothing about what is wrong. Whatever is not the usual case goes to the twin,
 *           as `fallback`, or by returning None: the twin finds the same answer or raises the error.
 * KERNEL-2  Every length that was read is compared with the bytes at hand before it is used.
 * KERNEL-3  Numbers in memory are little-endian and may lie at any address: they are copied out.
 * KERNEL-4  Only the stable interface of Python 3.11 is used, so that one build serves all later ones.
 * KERNEL-5  An error is dropped only where the twin catches it too: `caught`. Any other may be that of
 *           a signal handler, and is the caller's.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel is for little-endian machines"
#endif

/* A module of another revision is not used: see neve/kernel.py. */
#define REVISION 2

static int
wrong_count(const char *name, Py_ssize_t found, Py_ssize_t wanted)
{
    if (found == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, found);
    return 1;
}

/* ---- CRC-32C ------------------------------------------------------------------------------- */

static uint32_t crc_table[8][256];

static void
make_crc_table(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
        crc_table[0][n] = crc;
    }
    for (int step = 1; step < 8; step++)
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t before = crc_table[step - 1][n];
            crc_table[step][n] = (before >> 8) ^ crc_table[0][before & 0xFF];
        }
}

static uint32_t
crc_by_table(uint32_t crc, const uint8_t *at, size_t left)
{
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++)
            crc ^= crc_table[7 - byte][(word >> (8 * byte)) & 0xFF];
    }
    for (; left; at++, left--)
        crc = (crc >> 8) ^ crc_table[0][(crc ^ *at) & 0xFF];
    return crc;
}

static uint32_t (*extend_crc)(uint32_t, const uint8_t *, size_t) = crc_by_table;

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t crc, const uint8_t *at, size_t left)
{
    uint64_t wide = crc;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; left; at++, left--)
        crc = __builtin_ia32_crc32qi(crc, *at);
    return crc;
}
#endif

static uint32_t
crc32c(uint32_t seed, const uint8_t *at, size_t left)
{
    return ~extend_crc(~seed, at, left);
}

PyDoc_STRVAR(crc32c_extend_doc, "crc32c_extend(seed, data, by_table=False): extend a CRC-32C.");

static PyObject *
crc32c_extend(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    char *data;
    Py_ssize_t size;
    if (count != 2 && wrong_count("crc32c_extend", count, 3))
        return NULL;
    unsigned long seed = PyLong_AsUnsignedLong(args[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &data, &size) < 0)
        return NULL;
    int by_table = count == 3 ? PyObject_IsTrue(args[2]) : 0;
    if (by_table < 0)
        return NULL;
    if (by_table)
        return PyLong_FromUnsignedLong(~crc_by_table(~(uint32_t)seed, (uint8_t *)data, size));
    return PyLong_FromUnsignedLong(crc32c((uint32_t)seed, (const uint8_t *)data, size));
}

/* ---- Records of one put, see neve.wal.put_records --------------------------------------------- */

#define HEADER_BYTES 11 /* crc u32, length u16, type, log number u32 */
#define KEY_AT 33       /* in the payload: frame and stamps, the operation, the length of the key */
#define RECYCLABLE_FULL 5
#define ENTRIES 3 /* two stamps, and the put */
#define OP_PUT 0x01
#define OP_SCHEMA_VERSION 0x20
#define OP_DURABLE_THROUGH 0x21
#define ONE_BYTE 0x80 /* lengths below it are one byte */

static uint8_t *
write_varint(uint8_t *to, size_t number)
{
    for (; number >= ONE_BYTE; number >>= 7)
        *to++ = (uint8_t)(number | ONE_BYTE);
    *to++ = (uint8_t)number;
    return to;
}

PyDoc_STRVAR(put_record_doc,
             "put_record(row, sequence, durable_through, nonce, seed, log_number, room)\n\n"
             "Return the record of a put, or None when it needs other lengths or more room.");

static PyObject *
put_record(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    char *key, *value;
    Py_ssize_t key_bytes, value_bytes;
    if (wrong_count("put_record", count, 7))
        return NULL;
    PyObject *row = args[0];
    if (!PyTuple_Check(row) || PyTuple_Size(row) != 3)
        return PyErr_Format(PyExc_TypeError, "a row is its key, its value and its schema version");
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(row, 0), &key, &key_bytes) < 0 ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(row, 1), &value, &value_bytes) < 0)
        return NULL;
    unsigned long version = PyLong_AsUnsignedLong(PyTuple_GetItem(row, 2));
    uint64_t sequence = PyLong_AsUnsignedLongLong(args[1]);
    uint64_t durable_through = PyLong_AsUnsignedLongLong(args[2]);
    uint64_t nonce = PyLong_AsUnsignedLongLong(args[3]);
    uint32_t seed = (uint32_t)PyLong_AsUnsignedLong(args[4]);
    uint32_t log_number = (uint32_t)PyLong_AsUnsignedLong(args[5]);
    Py_ssize_t room = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred())
        return NULL;
    if (room > UINT16_MAX)
        room = UINT16_MAX;
    if (key_bytes >= ONE_BYTE || version >= ONE_BYTE || value_bytes > room)
        Py_RETURN_NONE;
    uint8_t length[10];
    Py_ssize_t length_bytes = write_varint(length, (size_t)value_bytes) - length;
    Py_ssize_t payload = KEY_AT + key_bytes + length_bytes + value_bytes;
    if (payload > room)
        Py_RETURN_NONE;
    PyObject *record = PyBytes_FromStringAndSize(NULL, HEADER_BYTES + payload);
    if (record == NULL)
        return NULL;
    uint8_t *start = (uint8_t *)PyBytes_AsString(record), *at = start + HEADER_BYTES;
    const uint32_t entries = ENTRIES;
    const uint16_t short_length = (uint16_t)payload;
    memcpy(at, &sequence, 8);
    memcpy(at + 8, &entries, 4);
    at[12] = OP_SCHEMA_VERSION;
    at[13] = (uint8_t)version;
    at[14] = OP_DURABLE_THROUGH;
    memcpy(at + 15, &durable_through, 8);
    memcpy(at + 23, &nonce, 8);
    at[31] = OP_PUT;
    at[32] = (uint8_t)key_bytes;
    at += KEY_AT;
    memcpy(at, key, key_bytes);
    at += key_bytes;
    memcpy(at, length, length_bytes);
    at += length_bytes;
    memcpy(at, value, value_bytes);
    uint32_t crc = crc32c(seed, start + HEADER_BYTES, payload);
    memcpy(start, &crc, 4);
    memcpy(start + 4, &short_length, 2);
    start[6] = RECYCLABLE_FULL;
    memcpy(start + 7, &log_number, 4);
    return record;
}

PyDoc_STRVAR(read_puts_doc,
             "read_puts(block, position, expected, limit, log_number, nonce, seed)\n\n"
             "Return the keys and values of the puts from a position on, their schema version, what\n"
             "the last one says is durable, where it begins, and where the next record does.");

static PyObject *
read_puts(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    char *content;
    Py_ssize_t block_bytes;
    if (wrong_count("read_puts", count, 7) ||
        PyBytes_AsStringAndSize(args[0], &content, &block_bytes) < 0)
        return NULL;
    Py_ssize_t position = PyLong_AsSsize_t(args[1]);
    uint64_t expected = PyLong_AsUnsignedLongLong(args[2]);
    uint64_t limit = PyLong_AsUnsignedLongLong(args[3]);
    uint32_t log_number = (uint32_t)PyLong_AsUnsignedLong(args[4]);
    uint64_t nonce = PyLong_AsUnsignedLongLong(args[5]);
    uint32_t seed = (uint32_t)PyLong_AsUnsignedLong(args[6]);
    if (PyErr_Occurred())
        return NULL;
    if (position < 0)
        return PyErr_Format(PyExc_ValueError, "a position in a block is not negative");
    PyObject *keys = PyList_New(0), *values = PyList_New(0);
    if (keys == NULL || values == NULL)
        goto failed;
    const uint8_t *block = (const uint8_t *)content;
    Py_ssize_t begun = position;
    uint64_t durable_through = 0;
    int version = -1;
    for (; block_bytes - position > HEADER_BYTES + KEY_AT; expected++) {
        const uint8_t *at = block + position, *payload = at + HEADER_BYTES;
        uint32_t crc, its_log, entries;
        uint16_t length;
        uint64_t sequence, durable, its_nonce;
        memcpy(&crc, at, 4);
        memcpy(&length, at + 4, 2);
        memcpy(&its_log, at + 7, 4);
        memcpy(&sequence, payload, 8);
        memcpy(&entries, payload + 8, 4);
        memcpy(&durable, payload + 15, 8);
        memcpy(&its_nonce, payload + 23, 8);
        Py_ssize_t key_bytes = payload[32], length_at = KEY_AT + key_bytes;
        if (at[6] != RECYCLABLE_FULL || its_log != log_number || its_nonce != nonce ||
            payload[31] != OP_PUT || sequence != expected || sequence >= limit ||
            entries != ENTRIES || payload[12] != OP_SCHEMA_VERSION ||
            payload[14] != OP_DURABLE_THROUGH || payload[13] >= ONE_BYTE ||
            (version >= 0 && payload[13] != version) || key_bytes >= ONE_BYTE ||
            length_at >= length || length > block_bytes - position - HEADER_BYTES)
            break;
        /* One byte, two, which is what most rows have, or three: more do not fit a block. */
        Py_ssize_t value_at = length_at, value_bytes = 0;
        int is_read = 0;
        for (int shift = 0; shift <= 14 && value_at < length && !is_read; shift += 7) {
            uint8_t byte = payload[value_at++];
            /* The third byte counts whole: nothing of that length fits. */
            value_bytes += (Py_ssize_t)(shift < 14 ? byte & 0x7F : byte) << shift;
            is_read = shift == 14 || byte < ONE_BYTE;
        }
        if (!is_read || value_at + value_bytes != length || crc32c(seed, payload, length) != crc)
            break;
        PyObject *key = PyBytes_FromStringAndSize((const char *)payload + KEY_AT, key_bytes);
        PyObject *value = PyBytes_FromStringAndSize((const char *)payload + value_at, value_bytes);
        int failed = key == NULL || value == NULL || PyList_Append(keys, key) < 0 ||
                     PyList_Append(values, value) < 0;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (failed)
            goto failed;
        version = payload[13];
        durable_through = durable;
        begun = position;
        position += HEADER_BYTES + length;
    }
    return Py_BuildValue("NNiKnn", keys, values, version, (unsigned long long)durable_through,
                         begun, position);
failed:
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return NULL;
}

/* ---- Columns, which three types below share ------------------------------------------------- */

enum {
    INT32 = 'i',
    INT64 = 'q',
    FLOAT32 = 'f',
    FLOAT64 = 'd',
    BOOLEAN = '?', /* a byte in a row, a bit in a batch */
    FIXED = 's',
    TEXT = 't',
    BINARY = 'b',
    GIVEN = 'o',    /* `call` returns the value of a row number */
};

static int
is_variable(int kind)
{
    return kind == TEXT || kind == BINARY;
}

/* Bytes of a value; -1 for a kind that does not exist. */
static Py_ssize_t
width_of(int kind, Py_ssize_t fixed)
{
    switch (kind) {
    case INT32:
    case FLOAT32:
    case TEXT: /* its length, or its offset */
    case BINARY:
        return 4;
    case INT64:
    case FLOAT64:
        return 8;
    case BOOLEAN:
        return 1;
    case FIXED:
        return fixed > 0 ? fixed : -1;
    case GIVEN:
        return 0;
    default:
        return -1;
    }
}

typedef struct {
    int kind;
    int is_required; /* never NULL */
    Py_ssize_t width;
    Py_ssize_t at;   /* in the head of a row, or the first cell of a batch */
    Py_ssize_t bit;  /* of the bitmap of NULLs */
    PyObject *name;
    PyObject *type;  /* the class that a value must have exactly */
    PyObject *call;  /* value to raw form, or raw form to value; NULL: they are the same */
    Py_buffer validity, cells, content;
} Column;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Py_ssize_t bitmap_bytes;
    Py_ssize_t head_bytes; /* header included */
    Py_ssize_t bytes_max;  /* of a row */
    Py_ssize_t row_count;  /* of a batch */
    Py_ssize_t reads;      /* of rows of a batch that are counted, since the last look */
    Column *columns;
    PyObject *header;
    PyObject *fallback;
    PyObject *caught; /* classes of the errors after which the twin is asked */
} Rows;

static int
rows_traverse(PyObject *self, visitproc visit, void *arg)
{
    Rows *rows = (Rows *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(rows->fallback);
    Py_VISIT(rows->caught);
    for (Py_ssize_t i = 0; rows->columns != NULL && i < rows->count; i++) {
        Py_VISIT(rows->columns[i].type);
        Py_VISIT(rows->columns[i].call);
    }
    return 0;
}

static int
rows_clear(PyObject *self)
{
    Rows *rows = (Rows *)self;
    Py_CLEAR(rows->fallback);
    Py_CLEAR(rows->caught);
    for (Py_ssize_t i = 0; rows->columns != NULL && i < rows->count; i++) {
        Py_CLEAR(rows->columns[i].type);
        Py_CLEAR(rows->columns[i].call);
    }
    return 0;
}

static void *
new_object(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static void
free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int
get_buffer(PyObject *from, Py_buffer *to)
{
    return from == Py_None ? 0 : PyObject_GetBuffer(from, to, PyBUF_SIMPLE);
}

static void
release(Py_buffer *buffer)
{
    if (buffer->obj != NULL)
        PyBuffer_Release(buffer);
}

static void
rows_dealloc(PyObject *self)
{
    Rows *rows = (Rows *)self;
    PyObject_GC_UnTrack(self);
    rows_clear(self);
    for (Py_ssize_t i = 0; rows->columns != NULL && i < rows->count; i++) {
        Column *column = &rows->columns[i];
        Py_CLEAR(column->name);
        release(&column->validity);
        release(&column->cells);
        release(&column->content);
    }
    Py_CLEAR(rows->header);
    PyMem_Free(rows->columns);
    free_object(self);
}

/* Fill in what every column has; `call` and `type` may be None. */
static int
set_column(Column *column, int kind, Py_ssize_t width, PyObject *name, PyObject *call)
{
    column->kind = kind;
    column->width = width_of(kind, width);
    if (column->width < 0 || column->width > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "kind %d of %zd bytes", kind, width);
        return -1;
    }
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "a name is a str");
        return -1;
    }
    column->name = Py_NewRef(name);
    if (call != Py_None)
        column->call = Py_NewRef(call);
    return 0;
}

/* The head of a row: header, bitmap, values of fixed width, lengths of the others. */
static void
lay_out(Rows *rows)
{
    Py_ssize_t at = PyBytes_Size(rows->header) + rows->bitmap_bytes;
    for (int variable = 0; variable < 2; variable++)
        for (Py_ssize_t i = 0; i < rows->count; i++) {
            Column *column = &rows->columns[i];
            if (is_variable(column->kind) == variable) {
                column->at = at;
                at += column->width;
            }
        }
    rows->head_bytes = at;
}

/* Fills in a column from its tuple; -1 with an error. */
typedef int (*SetColumn)(const Rows *rows, Column *column, PyObject *tuple);

/* A new object with these facts and columns; those of a row, not of a batch, have a header. */
static PyObject *
rows_new(PyTypeObject *type, const Rows *facts, PyObject *list, SetColumn set)
{
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "columns are a list of tuples");
    /* A list could be changed by what is called while it is read. */
    PyObject *columns = PyList_AsTuple(list);
    Rows *rows = columns == NULL ? NULL : new_object(type);
    if (rows == NULL)
        goto failed;
    Py_ssize_t count = PyTuple_Size(columns);
    rows->bitmap_bytes = facts->bitmap_bytes;
    rows->bytes_max = facts->bytes_max;
    rows->row_count = facts->row_count;
    rows->header = Py_XNewRef(facts->header);
    rows->fallback = Py_NewRef(facts->fallback);
    rows->caught = Py_NewRef(facts->caught);
    rows->columns = PyMem_Calloc(count ? count : 1, sizeof(Column));
    if (rows->columns == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    rows->count = count;
    if (rows->header != NULL && rows->bitmap_bytes != (count + 7) / 8) {
        PyErr_SetString(PyExc_ValueError, "the bitmap has another length");
        goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tuple = PyTuple_GetItem(columns, i);
        if (!PyTuple_Check(tuple)) {
            PyErr_SetString(PyExc_TypeError, "columns are a list of tuples");
            goto failed;
        }
        if (set(rows, &rows->columns[i], tuple) < 0)
            goto failed;
    }
    if (rows->header != NULL)
        lay_out(rows);
    Py_DECREF(columns);
    return (PyObject *)rows;
failed:
    Py_XDECREF(columns);
    Py_XDECREF((PyObject *)rows);
    return NULL;
}

/* A value of fixed width as a Python object; NULL without an error for one to leave to the twin. */
static PyObject *
fixed_value(const Column *column, const uint8_t *at)
{
    int32_t narrow;
    int64_t wide;
    float single;
    double number;
    switch (column->kind) {
    case INT32:
        memcpy(&narrow, at, 4);
        return PyLong_FromLong(narrow);
    case INT64:
        memcpy(&wide, at, 8);
        return PyLong_FromLongLong(wide);
    case FLOAT32:
        memcpy(&single, at, 4);
        return PyFloat_FromDouble(single);
    case FLOAT64:
        memcpy(&number, at, 8);
        return PyFloat_FromDouble(number);
    case BOOLEAN:
        return *at > 1 ? NULL : PyBool_FromLong(*at);
    default:
        return PyBytes_FromStringAndSize((const char *)at, column->width);
    }
}

/* Apply the column's own function to a value, whose reference it takes. */
static PyObject *
called(const Column *column, PyObject *value)
{
    if (column->call == NULL || value == NULL)
        return value;
    PyObject *result = PyObject_CallFunctionObjArgs(column->call, value, NULL);
    Py_DECREF(value);
    return result;
}

static PyObject *
variable_value(const Column *column, const uint8_t *content, Py_ssize_t size)
{
    if (column->kind == TEXT)
        return PyUnicode_DecodeUTF8((const char *)content, size, NULL);
    return called(column, PyBytes_FromStringAndSize((const char *)content, size));
}

/* Leave a call to the twin, after an error that it catches too or without any; others stay. */
static PyObject *
left_to_twin(Rows *rows, PyObject *argument)
{
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(rows->caught))
            return NULL;
        PyErr_Clear();
    }
    return PyObject_CallFunctionObjArgs(rows->fallback, argument, NULL);
}

/* ---- RowWriter ------------------------------------------------------------------------------ */

#define COLUMNS_ON_STACK 64
/* Characters of a text whose UTF-8 Python may keep for as long as the text is there: quicker, but
 * it doubles the memory of texts that are not ASCII. */
#define TEXT_KEPT 1024

PyDoc_STRVAR(writer_doc, "RowWriter(header, bitmap_bytes, bytes_max, columns, fallback, caught)\n\n"
                         "columns: name, class, kind, width, bit of NULL or -1, function or None;\n"
                         "in the order of packing.");

static int
writer_column(const Rows *rows, Column *column, PyObject *tuple)
{
    PyObject *name, *class, *call;
    Py_ssize_t width;
    int kind;
    if (!PyArg_ParseTuple(tuple, "OOCnnO", &name, &class, &kind, &width, &column->bit, &call) ||
        set_column(column, kind, width, name, call) < 0)
        return -1;
    column->type = Py_NewRef(class);
    int was_variable = column > rows->columns && is_variable(column[-1].kind);
    if (column->bit < 8 * rows->bitmap_bytes && kind != GIVEN && was_variable <= is_variable(kind))
        return 0;
    PyErr_SetString(PyExc_ValueError, "columns are not those of a row");
    return -1;
}

static PyObject *
writer_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *list;
    Rows facts = {0};
    if (!PyArg_ParseTuple(args, "SnnOOO!", &facts.header, &facts.bitmap_bytes, &facts.bytes_max,
                          &list, &facts.fallback, &PyTuple_Type, &facts.caught))
        return NULL;
    if (facts.bytes_max > UINT32_MAX)
        facts.bytes_max = UINT32_MAX;
    return rows_new(type, &facts, list, writer_column);
}

/* Write a raw value of fixed width; 0 when it does not fit. */
static int
pack_fixed(const Column *column, PyObject *raw, uint8_t *to)
{
    int overflow = 0;
    long long number;
    switch (column->kind) {
    case INT32:
    case INT64:
    case BOOLEAN:
        if (!PyLong_Check(raw))
            return 0;
        number = PyLong_AsLongLongAndOverflow(raw, &overflow);
        if (overflow || (number == -1 && PyErr_Occurred()))
            return 0;
        if (column->kind == INT32 && (number < INT32_MIN || number > INT32_MAX))
            return 0;
        if (column->kind == BOOLEAN && (number < 0 || number > 1))
            return 0;
        memcpy(to, &number, column->width);
        return 1;
    case FLOAT32:
    case FLOAT64: {
        if (!PyFloat_Check(raw))
            return 0;
        double wide = PyFloat_AsDouble(raw);
        if (column->kind == FLOAT64) {
            memcpy(to, &wide, 8);
            return 1;
        }
        float single = (float)wide;
        if (isnan(wide) || (isinf(single) && !isinf(wide)))
            return 0;
        memcpy(to, &single, 4);
        return 1;
    }
    default: {
        char *content;
        Py_ssize_t size;
        if (!PyBytes_Check(raw) || PyBytes_AsStringAndSize(raw, &content, &size) < 0 ||
            size != column->width)
            return 0;
        memcpy(to, content, size);
        return 1;
    }
    }
}

typedef struct {
    PyObject *raw; /* keeps the content */
    const char *content;
    Py_ssize_t size;
} Piece;

/* Find the bytes of a value of variable width; 0 when it has none. */
static int
find_piece(const Column *column, Piece *piece)
{
    if (column->kind == TEXT) {
        if (!PyUnicode_Check(piece->raw))
            return 0;
        if (PyUnicode_GetLength(piece->raw) <= TEXT_KEPT) {
            piece->content = PyUnicode_AsUTF8AndSize(piece->raw, &piece->size);
            return piece->content != NULL;
        }
        PyObject *bytes = PyUnicode_AsUTF8String(piece->raw);
        if (bytes == NULL)
            return 0;
        Py_DECREF(piece->raw);
        piece->raw = bytes;
    }
    if (!PyBytes_Check(piece->raw))
        return 0;
    piece->content = PyBytes_AsString(piece->raw);
    piece->size = PyBytes_Size(piece->raw);
    return 1;
}

static PyObject *
writer_write(PyObject *self, PyObject *row)
{
    Rows *rows = (Rows *)self;
    if (!PyDict_CheckExact(row) || PyDict_Size(row) != rows->count ||
        rows->head_bytes > rows->bytes_max)
        return left_to_twin(rows, row);
    Piece on_stack[COLUMNS_ON_STACK], *pieces = on_stack;
    uint8_t head_on_stack[1024], *head = head_on_stack;
    if (rows->count > COLUMNS_ON_STACK)
        pieces = PyMem_Malloc(rows->count * sizeof(Piece));
    if (rows->head_bytes > (Py_ssize_t)sizeof(head_on_stack))
        head = PyMem_Malloc(rows->head_bytes);
    Py_ssize_t piece_count = 0, total = rows->head_bytes, header_bytes = PyBytes_Size(rows->header);
    PyObject *encoded = NULL;
    if (pieces == NULL || head == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    memcpy(head, PyBytes_AsString(rows->header), header_bytes);
    memset(head + header_bytes, 0, rows->bitmap_bytes);
    for (Py_ssize_t i = 0; i < rows->count; i++) {
        const Column *column = &rows->columns[i];
        PyObject *value = PyDict_GetItemWithError(row, column->name);
        if (value == NULL)
            goto done;
        if (value == Py_None && column->bit >= 0) {
            head[header_bytes + column->bit / 8] |= (uint8_t)(1 << column->bit % 8);
            memset(head + column->at, 0, column->width);
            continue;
        }
        if ((PyObject *)Py_TYPE(value) != column->type)
            goto done;
        PyObject *raw = called(column, Py_NewRef(value));
        if (raw == NULL)
            goto done;
        if (!is_variable(column->kind)) {
            int is_packed = pack_fixed(column, raw, head + column->at);
            Py_DECREF(raw);
            if (!is_packed)
                goto done;
            continue;
        }
        Piece *piece = &pieces[piece_count++];
        piece->raw = raw;
        if (!find_piece(column, piece) || piece->size > rows->bytes_max - total)
            goto done;
        total += piece->size;
        uint32_t size = (uint32_t)piece->size;
        memcpy(head + column->at, &size, 4);
    }
    encoded = PyBytes_FromStringAndSize(NULL, total);
    if (encoded != NULL) {
        char *to = PyBytes_AsString(encoded);
        memcpy(to, head, rows->head_bytes);
        to += rows->head_bytes;
        for (Py_ssize_t i = 0; i < piece_count; i++) {
            memcpy(to, pieces[i].content, pieces[i].size);
            to += pieces[i].size;
        }
    }
done:
    for (Py_ssize_t i = 0; i < piece_count; i++)
        Py_DECREF(pieces[i].raw);
    if (pieces != on_stack)
        PyMem_Free(pieces);
    if (head != head_on_stack)
        PyMem_Free(head);
    return encoded == NULL ? left_to_twin(rows, row) : encoded;
}

static PyMethodDef writer_methods[] = {
    {"write", writer_write, METH_O, "write(row): return the bytes of a row."},
    {NULL, NULL, 0, NULL},
};

/* ---- RowReader ------------------------------------------------------------------------------ */

PyDoc_STRVAR(reader_doc,
             "RowReader(header, bitmap_bytes, columns, fallback, caught)\n\n"
             "columns: name, kind, width, whether it is never NULL, function or None; in the order\n"
             "of the fields of a row.");

static int
reader_column(const Rows *Py_UNUSED(rows), Column *column, PyObject *tuple)
{
    PyObject *name, *call;
    Py_ssize_t width;
    int kind;
    if (!PyArg_ParseTuple(tuple, "OCnpO", &name, &kind, &width, &column->is_required, &call) ||
        set_column(column, kind, width, name, call) < 0)
        return -1;
    if (kind != GIVEN)
        return 0;
    PyErr_SetString(PyExc_ValueError, "columns are not those of a row");
    return -1;
}

static PyObject *
reader_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *list;
    Rows facts = {0};
    if (!PyArg_ParseTuple(args, "SnOOO!", &facts.header, &facts.bitmap_bytes, &list,
                          &facts.fallback, &PyTuple_Type, &facts.caught))
        return NULL;
    return rows_new(type, &facts, list, reader_column);
}

static int
are_zeros(const uint8_t *at, Py_ssize_t left)
{
    while (left)
        if (at[--left])
            return 0;
    return 1;
}

/* Check bits and bytes of NULLs; 0 for a row to leave to the twin. */
static int
check_nulls(const Rows *rows, const uint8_t *row, const uint8_t *bitmap)
{
    Py_ssize_t count = rows->count;
    if (count % 8 && bitmap[rows->bitmap_bytes - 1] >> count % 8)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Column *field = &rows->columns[i];
        if (bitmap[i / 8] >> i % 8 & 1 &&
            (field->is_required || !are_zeros(row + field->at, field->width)))
            return 0;
    }
    return 1;
}

static PyObject *
reader_read(PyObject *self, PyObject *value)
{
    Rows *rows = (Rows *)self;
    if (!PyBytes_CheckExact(value))
        return left_to_twin(rows, value);
    const uint8_t *row = (const uint8_t *)PyBytes_AsString(value);
    Py_ssize_t size = PyBytes_Size(value), header_bytes = PyBytes_Size(rows->header);
    if (size < rows->head_bytes || memcmp(row, PyBytes_AsString(rows->header), header_bytes))
        return left_to_twin(rows, value);
    const uint8_t *bitmap = row + header_bytes;
    int has_nulls = !are_zeros(bitmap, rows->bitmap_bytes);
    if (has_nulls && !check_nulls(rows, row, bitmap))
        return left_to_twin(rows, value);
    Py_ssize_t on_stack[COLUMNS_ON_STACK], *starts = on_stack, at = rows->head_bytes;
    if (rows->count > COLUMNS_ON_STACK) {
        starts = PyMem_Malloc(rows->count * sizeof(Py_ssize_t));
        if (starts == NULL)
            return PyErr_NoMemory();
    }
    PyObject *decoded = NULL;
    for (Py_ssize_t i = 0; i < rows->count; i++)
        if (is_variable(rows->columns[i].kind)) {
            uint32_t length;
            memcpy(&length, row + rows->columns[i].at, 4);
            starts[i] = at;
            if (length > size - at)
                goto done;
            at += length;
        }
    if (at != size)
        goto done;
    decoded = PyDict_New();
    for (Py_ssize_t i = 0; decoded != NULL && i < rows->count; i++) {
        const Column *column = &rows->columns[i];
        PyObject *cell;
        uint32_t length;
        if (has_nulls && bitmap[i / 8] >> i % 8 & 1)
            cell = Py_NewRef(Py_None);
        else if (!is_variable(column->kind))
            cell = called(column, fixed_value(column, row + column->at));
        else {
            memcpy(&length, row + column->at, 4);
            cell = variable_value(column, row + starts[i], length);
        }
        if (cell == NULL || PyDict_SetItem(decoded, column->name, cell) < 0)
            Py_CLEAR(decoded);
        Py_XDECREF(cell);
    }
done:
    if (starts != on_stack)
        PyMem_Free(starts);
    return decoded == NULL ? left_to_twin(rows, value) : decoded;
}

static PyMethodDef reader_methods[] = {
    {"read", reader_read, METH_O, "read(value): return the row of some bytes."},
    {NULL, NULL, 0, NULL},
};

/* ---- BatchRows ------------------------------------------------------------------------------ */

PyDoc_STRVAR(batch_doc,
             "BatchRows(row_count, columns, fallback, caught)\n\n"
             "columns: name, kind, width, offset, function or None, and the three buffers of an\n"
             "Arrow array, or None. Raises ValueError for buffers that are too short.");

/* Whether the buffers of a column hold all its cells. */
static int
has_cells(const Column *column, Py_ssize_t row_count)
{
    Py_ssize_t limit = PY_SSIZE_T_MAX / 16 - 1, first = column->at;
    if (first < 0 || row_count < 0 || first > limit - row_count)
        return 0;
    Py_ssize_t end = first + row_count;
    if (column->validity.obj != NULL && column->validity.len < (end + 7) / 8)
        return 0;
    if (column->kind == GIVEN || !row_count)
        return 1;
    if (column->kind == BOOLEAN)
        return column->cells.len >= (end + 7) / 8;
    return column->cells.len / column->width >= end + is_variable(column->kind);
}

static int
batch_column(const Rows *rows, Column *column, PyObject *tuple)
{
    PyObject *name, *call, *validity, *cells, *content;
    Py_ssize_t width;
    int kind;
    if (!PyArg_ParseTuple(tuple, "OCnnOOOO", &name, &kind, &width, &column->at, &call, &validity,
                          &cells, &content) ||
        set_column(column, kind, width, name, call) < 0 ||
        get_buffer(validity, &column->validity) < 0 || get_buffer(cells, &column->cells) < 0 ||
        get_buffer(content, &column->content) < 0)
        return -1;
    if ((kind != GIVEN || column->call != NULL) && has_cells(column, rows->row_count))
        return 0;
    PyErr_SetString(PyExc_ValueError, "the buffers of a column are too short");
    return -1;
}

static PyObject *
batch_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *list;
    Rows facts = {0};
    if (!PyArg_ParseTuple(args, "nOOO!", &facts.row_count, &list, &facts.fallback, &PyTuple_Type,
                          &facts.caught))
        return NULL;
    return rows_new(type, &facts, list, batch_column);
}

static PyObject *
batch_cell(const Column *column, Py_ssize_t i, PyObject *number)
{
    if (column->kind == GIVEN)
        return PyObject_CallFunctionObjArgs(column->call, number, NULL);
    Py_ssize_t at = column->at + i;
    if (column->validity.obj != NULL) {
        const uint8_t *bits = column->validity.buf;
        if (!(bits[at >> 3] >> (at & 7) & 1))
            return Py_NewRef(Py_None);
    }
    const uint8_t *cells = column->cells.buf;
    if (column->kind == BOOLEAN)
        return PyBool_FromLong(cells[at >> 3] >> (at & 7) & 1);
    if (!is_variable(column->kind))
        return called(column, fixed_value(column, cells + at * column->width));
    int32_t start, end;
    memcpy(&start, cells + 4 * at, 4);
    memcpy(&end, cells + 4 * at + 4, 4);
    if (start < 0 || end < start || end > column->content.len)
        return NULL;
    return variable_value(column, (const uint8_t *)column->content.buf + start, end - start);
}

static PyObject *
batch_row(PyObject *self, PyObject *number)
{
    Rows *rows = (Rows *)self;
    Py_ssize_t i = PyLong_CheckExact(number) ? PyLong_AsSsize_t(number) : -1;
    if (i < 0 || i >= rows->row_count) {
        PyErr_Clear(); /* that of a number which is too large */
        return left_to_twin(rows, number);
    }
    PyObject *row = PyDict_New();
    for (Py_ssize_t nth = 0; row != NULL && nth < rows->count; nth++) {
        PyObject *cell = batch_cell(&rows->columns[nth], i, number);
        if (cell == NULL || PyDict_SetItem(row, rows->columns[nth].name, cell) < 0)
            Py_CLEAR(row);
        Py_XDECREF(cell);
    }
    return row == NULL ? left_to_twin(rows, number) : row;
}

static PyObject *
batch_counted_row(PyObject *self, PyObject *number)
{
    ((Rows *)self)->reads++;
    return batch_row(self, number);
}

static PyObject *
batch_reads(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Rows *rows = (Rows *)self;
    Py_ssize_t reads = rows->reads;
    rows->reads = 0;
    return PyLong_FromSsize_t(reads);
}

static PyMethodDef batch_methods[] = {
    {"counted_row", batch_counted_row, METH_O, "counted_row(i): as row does, and count it."},
    {"reads", batch_reads, METH_NOARGS, "reads(): return the rows counted since the last call."},
    {"row", batch_row, METH_O, "row(i): return a row of the batch."},
    {NULL, NULL, 0, NULL},
};

/* ---- FileRows ------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Py_buffer words;
    Py_ssize_t group_rows;
    PyObject *getters; /* of groups, by number */
    PyObject *marked;  /* positions of rows that are deleted, or None */
    PyObject *fallback;
} FileRows;

PyDoc_STRVAR(file_doc, "FileRows(words, group_rows, getters, marked, fallback)\n\n"
                       "words: u64, ascending; getters: by group, functions from a row's place;\n"
                       "marked: positions of deleted rows, or None; fallback: position to row.");

static int
file_traverse(PyObject *self, visitproc visit, void *arg)
{
    FileRows *file = (FileRows *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(file->getters);
    Py_VISIT(file->marked);
    Py_VISIT(file->fallback);
    return 0;
}

static int
file_clear(PyObject *self)
{
    FileRows *file = (FileRows *)self;
    Py_CLEAR(file->getters);
    Py_CLEAR(file->marked);
    Py_CLEAR(file->fallback);
    return 0;
}

static void
file_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    file_clear(self);
    release(&((FileRows *)self)->words);
    free_object(self);
}

static PyObject *
file_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *words, *getters, *marked, *fallback;
    Py_ssize_t group_rows;
    if (!PyArg_ParseTuple(args, "OnOOO", &words, &group_rows, &getters, &marked, &fallback))
        return NULL;
    if (group_rows < 1 || !PyDict_Check(getters))
        return PyErr_Format(PyExc_ValueError, "a group has rows, and getters are a dict");
    FileRows *file = new_object(type);
    if (file == NULL)
        return NULL;
    if (PyObject_GetBuffer(words, &file->words, PyBUF_SIMPLE) < 0) {
        Py_DECREF(file);
        return NULL;
    }
    file->group_rows = group_rows;
    file->getters = Py_NewRef(getters);
    file->marked = Py_NewRef(marked);
    file->fallback = Py_NewRef(fallback);
    return (PyObject *)file;
}

/* The place of a word among ascending ones, or -1. */
static Py_ssize_t
find_word(const uint8_t *words, Py_ssize_t count, uint64_t word)
{
    uint64_t found;
    const uint8_t *base = words;
    if (!count)
        return -1;
    while (count > 1) {
        Py_ssize_t half = count / 2;
        memcpy(&found, base + 8 * half - 8, 8);
        base = found < word ? base + 8 * half : base;
        count -= half;
    }
    memcpy(&found, base, 8);
    return found == word ? (base - words) / 8 : -1;
}

static PyObject *
file_find_row(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    FileRows *file = (FileRows *)self;
    if (wrong_count("find_row", count, 2))
        return NULL;
    uint64_t word = PyLong_AsUnsignedLongLong(args[1]);
    if (word == UINT64_MAX && PyErr_Occurred())
        return NULL;
    Py_ssize_t at = find_word(file->words.buf, file->words.len / 8, word);
    if (at < 0)
        Py_RETURN_NONE;
    PyObject *row = NULL, *position = NULL, *group = NULL, *place = NULL;
    if (file->marked != Py_None) {
        position = PyLong_FromSsize_t(at);
        int is_marked = position == NULL ? -1 : PySequence_Contains(file->marked, position);
        if (is_marked) {
            row = is_marked < 0 ? NULL : Py_NewRef(Py_None);
            goto done;
        }
    }
    group = PyLong_FromSsize_t(at / file->group_rows);
    PyObject *get = group == NULL ? NULL : PyDict_GetItemWithError(file->getters, group);
    if (get != NULL) {
        Py_INCREF(get);
        place = PyLong_FromSsize_t(at % file->group_rows);
        row = place == NULL ? NULL : PyObject_CallFunctionObjArgs(get, place, NULL);
        Py_DECREF(get);
    }
    else if (!PyErr_Occurred()) {
        if (position == NULL)
            position = PyLong_FromSsize_t(at);
        row = position == NULL ? NULL : PyObject_CallFunctionObjArgs(file->fallback, position, NULL);
    }
done:
    Py_XDECREF(position);
    Py_XDECREF(group);
    Py_XDECREF(place);
    return row;
}

static PyMethodDef file_methods[] = {
    {"find_row", (PyCFunction)(void (*)(void))file_find_row, METH_FASTCALL,
     "find_row(key, word): return the live row of a key, or None."},
    {NULL, NULL, 0, NULL},
};

/* ---- IntegerKey ----------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Py_ssize_t width;
    PyObject *fallback;
} IntegerKey;

PyDoc_STRVAR(integer_doc, "IntegerKey(width, fallback): keys of one column of ints.");

static int
integer_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((IntegerKey *)self)->fallback);
    return 0;
}

static int
integer_clear(PyObject *self)
{
    Py_CLEAR(((IntegerKey *)self)->fallback);
    return 0;
}

static void
integer_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    integer_clear(self);
    free_object(self);
}

static PyObject *
integer_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *fallback;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, "nO", &width, &fallback))
        return NULL;
    if (width != 4 && width != 8)
        return PyErr_Format(PyExc_ValueError, "an integer has four or eight bytes");
    IntegerKey *key = new_object(type);
    if (key != NULL) {
        key->width = width;
        key->fallback = Py_NewRef(fallback);
    }
    return (PyObject *)key;
}

static PyObject *
integer_encode(PyObject *self, PyObject *value)
{
    IntegerKey *key = (IntegerKey *)self;
    int overflow = 1;
    long long number = 0;
    if (PyLong_CheckExact(value))
        number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || (key->width == 4 && (number < INT32_MIN || number > INT32_MAX)))
        return PyObject_CallFunctionObjArgs(key->fallback, value, NULL);
    uint8_t bytes[8];
    uint64_t biased = (uint64_t)number + ((uint64_t)1 << (8 * key->width - 1));
    for (Py_ssize_t at = key->width; at; biased >>= 8)
        bytes[--at] = (uint8_t)biased;
    return PyBytes_FromStringAndSize((const char *)bytes, key->width);
}

static PyMethodDef integer_methods[] = {
    {"encode", integer_encode, METH_O, "encode(value): return the bytes of a key."},
    {NULL, NULL, 0, NULL},
};

/* ---- The key and the bytes of a row --------------------------------------------------------- */

PyDoc_STRVAR(keyed_row_doc, "keyed_row(encode, encode_key, name, fallback, row)\n\n"
                            "Return the key of a row, which is in one column, and its bytes.");

static PyObject *
keyed_row(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (wrong_count("keyed_row", count, 5))
        return NULL;
    PyObject *row = args[4], *key = NULL;
    /* The twin knows the default of a key that was left out. */
    PyObject *given = PyDict_CheckExact(row) ? PyDict_GetItemWithError(row, args[2]) : NULL;
    if (given == NULL)
        return PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(args[3], row, NULL);
    Py_INCREF(given);
    PyObject *value = PyObject_CallFunctionObjArgs(args[0], row, NULL);
    if (value != NULL)
        key = PyObject_CallFunctionObjArgs(args[1], given, NULL);
    Py_DECREF(given);
    PyObject *both = key == NULL ? NULL : PyTuple_Pack(2, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return both;
}

/* ---- One column of rows that are taken from many batches ------------------------------------ */

typedef struct {
    Py_buffer cells, content, bits, places;
    Py_ssize_t first; /* bit of the first cell */
    Py_ssize_t cell_count;
} Part;

typedef struct {
    Py_ssize_t width; /* 0 for texts and binaries, whose cells are offsets */
    Py_ssize_t part_count, row_count;
    Part *parts;
    Py_buffer targets;
    const uint8_t **starts; /* by target, for texts and binaries */
    uint8_t *cells, *bits;
    Py_ssize_t content_bytes;
} Gathering;

static int
get_part(PyObject *tuple, Py_ssize_t width, Part *part)
{
    PyObject *cells, *content, *bits, *places;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a part is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "OOOnO", &cells, &content, &bits, &part->first, &places) ||
        get_buffer(cells, &part->cells) < 0 || get_buffer(content, &part->content) < 0 ||
        get_buffer(bits, &part->bits) < 0 || get_buffer(places, &part->places) < 0)
        return -1;
    part->cell_count = width ? part->cells.len / width : part->cells.len / 4 - 1;
    return 0;
}

static int64_t
number_at(const Py_buffer *numbers, Py_ssize_t i)
{
    int64_t number;
    memcpy(&number, (const uint8_t *)numbers->buf + 8 * i, 8);
    return number;
}

/* Copy the cells to their targets, or for texts and binaries note where they are and how long.
 * Returns 0 when something leads outside. */
static int
take_cells(Gathering *g)
{
    Py_ssize_t nth = 0, width = g->width;
    int32_t *lengths = (int32_t *)g->cells + 1;
    for (Py_ssize_t p = 0; p < g->part_count; p++) {
        const Part *part = &g->parts[p];
        const uint8_t *cells = part->cells.buf, *bits = part->bits.buf;
        Py_ssize_t count = part->places.len / 8;
        for (Py_ssize_t i = 0; i < count; i++, nth++) {
            int64_t from = number_at(&part->places, i), to = number_at(&g->targets, nth);
            if (from < 0 || from >= part->cell_count || to < 0 || to >= g->row_count)
                return 0;
#ifdef __GNUC__
            int64_t later = i + 16 < count ? number_at(&part->places, i + 16) : -1;
            if (later >= 0 && later < part->cell_count)
                __builtin_prefetch(cells + later * (width ? width : 4));
#endif
            if (bits != NULL) {
                if (part->first < 0 || part->first > 8 * part->bits.len - 1 - from)
                    return 0;
                Py_ssize_t bit = part->first + from;
                if (!(bits[bit >> 3] >> (bit & 7) & 1))
                    g->bits[to >> 3] &= (uint8_t)~(1 << (to & 7));
            }
            if (width == 8)
                memcpy(g->cells + 8 * to, cells + 8 * from, 8);
            else if (width == 4)
                memcpy(g->cells + 4 * to, cells + 4 * from, 4);
            else if (width)
                memcpy(g->cells + width * to, cells + width * from, width);
            else {
                int32_t start, end;
                memcpy(&start, cells + 4 * from, 4);
                memcpy(&end, cells + 4 * from + 4, 4);
                if (start < 0 || end < start || end > part->content.len)
                    return 0;
                g->starts[to] = (const uint8_t *)part->content.buf + start;
                lengths[to] = end - start;
                g->content_bytes += end - start;
#ifdef __GNUC__
                __builtin_prefetch(g->starts[to]);
#endif
            }
        }
    }
    return 1;
}

/* Turn lengths into offsets, and copy what they are the lengths of. */
static void
copy_content(const Gathering *g, uint8_t *to)
{
    int32_t *ends = (int32_t *)g->cells, at = 0;
    for (Py_ssize_t i = 0; i < g->row_count; i++) {
        int32_t length = ends[i + 1];
        if (length)
            memcpy(to + at, g->starts[i], length);
        at += length;
        ends[i + 1] = at;
    }
}

static PyObject *
zeros(Py_ssize_t size, int byte, uint8_t **at)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
    if (bytes != NULL) {
        *at = (uint8_t *)PyBytes_AsString(bytes);
        memset(*at, byte, size);
    }
    return bytes;
}

PyDoc_STRVAR(gather_doc,
             "gather(width, parts, targets)\n\n"
             "Return the cells, the content and the bits of a column: row n of all parts is row\n"
             "targets[n]. parts: cells, content, bits, first bit, places. None when something leads\n"
             "outside of its buffer, or is too long for offsets of 32 bits.");

static PyObject *
gather(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (wrong_count("gather", count, 3))
        return NULL;
    Gathering g = {.width = PyLong_AsSsize_t(args[0])};
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_Check(args[1]) || g.width < 0 || g.width > INT32_MAX)
        return PyErr_Format(PyExc_TypeError, "parts are a list, and a width is not negative");
    /* A list could be changed by what is called while it is read. */
    PyObject *parts = PyList_AsTuple(args[1]);
    if (parts == NULL)
        return NULL;
    PyObject *cells = NULL, *content = NULL, *bits = NULL, *result = NULL;
    Py_ssize_t asked = 0;
    int has_bits = 0, is_inside;
    g.part_count = PyTuple_Size(parts);
    g.parts = PyMem_Calloc(g.part_count ? g.part_count : 1, sizeof(Part));
    if (g.parts == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t p = 0; p < g.part_count; p++) {
        if (get_part(PyTuple_GetItem(parts, p), g.width, &g.parts[p]) < 0)
            goto done;
        asked += g.parts[p].places.len / 8;
        has_bits |= g.parts[p].bits.obj != NULL;
    }
    if (PyObject_GetBuffer(args[2], &g.targets, PyBUF_SIMPLE) < 0)
        goto done;
    g.row_count = g.targets.len / 8;
    if (asked != g.row_count || g.row_count > INT32_MAX) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    cells = zeros(g.width ? g.width * g.row_count : 4 * (g.row_count + 1), 0, &g.cells);
    bits = has_bits ? zeros((g.row_count + 7) / 8, 0xFF, &g.bits) : Py_NewRef(Py_None);
    if (!g.width)
        g.starts = PyMem_Calloc(g.row_count + 1, sizeof(uint8_t *));
    if (cells == NULL || bits == NULL || (!g.width && g.starts == NULL)) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    is_inside = take_cells(&g);
    Py_END_ALLOW_THREADS
    if (!is_inside || g.content_bytes > INT32_MAX) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    content = g.width ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(NULL, g.content_bytes);
    if (content == NULL)
        goto done;
    if (!g.width) {
        uint8_t *to = (uint8_t *)PyBytes_AsString(content);
        Py_BEGIN_ALLOW_THREADS
        copy_content(&g, to);
        Py_END_ALLOW_THREADS
    }
    result = PyTuple_Pack(3, cells, content, bits);
done:
    for (Py_ssize_t p = 0; g.parts != NULL && p < g.part_count; p++) {
        release(&g.parts[p].cells);
        release(&g.parts[p].content);
        release(&g.parts[p].bits);
        release(&g.parts[p].places);
    }
    release(&g.targets);
    PyMem_Free(g.parts);
    PyMem_Free(g.starts);
    Py_DECREF(parts);
    Py_XDECREF(cells);
    Py_XDECREF(content);
    Py_XDECREF(bits);
    return result;
}

/* ---- The module ----------------------------------------------------------------------------- */

#define SLOTS_OF(name, kind)                                                                       \
    static PyType_Slot name##_slots[] = {                                                          \
        {Py_tp_doc, (void *)name##_doc},          {Py_tp_new, name##_new},                         \
        {Py_tp_dealloc, kind##_dealloc},          {Py_tp_traverse, kind##_traverse},               \
        {Py_tp_clear, kind##_clear},              {Py_tp_methods, name##_methods},                 \
        {0, NULL},                                                                                 \
    }
#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC)

SLOTS_OF(writer, rows);
SLOTS_OF(reader, rows);
SLOTS_OF(batch, rows);
SLOTS_OF(file, file);
SLOTS_OF(integer, integer);

static PyType_Spec specs[] = {
    {"neve._kernel.RowWriter", sizeof(Rows), 0, FLAGS, writer_slots},
    {"neve._kernel.RowReader", sizeof(Rows), 0, FLAGS, reader_slots},
    {"neve._kernel.BatchRows", sizeof(Rows), 0, FLAGS, batch_slots},
    {"neve._kernel.FileRows", sizeof(FileRows), 0, FLAGS, file_slots},
    {"neve._kernel.IntegerKey", sizeof(IntegerKey), 0, FLAGS, integer_slots},
};

static PyMethodDef functions[] = {
    {"crc32c_extend", (PyCFunction)(void (*)(void))crc32c_extend, METH_FASTCALL, crc32c_extend_doc},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, gather_doc},
    {"keyed_row", (PyCFunction)(void (*)(void))keyed_row, METH_FASTCALL, keyed_row_doc},
    {"put_record", (PyCFunction)(void (*)(void))put_record, METH_FASTCALL, put_record_doc},
    {"read_puts", (PyCFunction)(void (*)(void))read_puts, METH_FASTCALL, read_puts_doc},
    {NULL, NULL, 0, NULL},
};

static int
fill_module(PyObject *module)
{
    make_crc_table();
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("sse4.2"))
        extend_crc = crc_by_instruction;
#endif
    if (PyModule_AddIntMacro(module, REVISION) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, &specs[i], NULL);
        if (type == NULL)
            return -1;
        int failed = PyModule_AddType(module, (PyTypeObject *)type);
        Py_DECREF(type);
        if (failed)
            return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill_module},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "neve._kernel",
    .m_doc = "The optional compiled kernel; see neve/_kernel.c.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__kernel(void)
{
    return PyModuleDef_Init(&definition);
}
