#include "model/ckpt/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ckpt/mistaken.h"
#include "model/ckpt/slurp.h"

#define ULL(x) ((unsigned long long)(x))

static int bad(struct error *error, const char *path, const char *name,
               const char *what)
{
    return error_set(error, -EBADMSG, "%s: tensor %s: %s", path, name, what);
}

static int read_dtype(enum tensor_dtype *out, json_t *value)
{
    const char *text = json_string_value(value);
    for (int d = 0; text && d < DTYPE_COUNT; d++)
        if (!strcmp(text, tensor_dtype_name((enum tensor_dtype)d))) {
            *out = (enum tensor_dtype)d;
            return 0;
        }
    return -1;
}

/* Read the shape and compute its bytes. Returns -1 if it is no shape or needs
 * more than 62 bits of bytes. */
static int read_shape(struct tensor_dims *out, uint64_t *bytes,
                      enum tensor_dtype dtype, json_t *value)
{
    if (!json_is_array(value) || json_array_size(value) > TENSOR_DIMS_MAX)
        return -1;
    *out = (struct tensor_dims){ .count = (uint32_t)json_array_size(value) };
    *bytes = tensor_dtype_bytes(dtype);
    for (uint32_t i = 0; i < out->count; i++) {
        json_t *item = json_array_get(value, i);
        json_int_t size = json_integer_value(item);
        if (!json_is_integer(item) || size < 0)
            return -1;
        out->size[i] = (uint64_t)size;
        if (__builtin_mul_overflow(*bytes, out->size[i], bytes) ||
            *bytes >> 62)
            return -1;
    }
    return 0;
}

static int read_entry(struct safetensors_entry *e, const char *name,
                      json_t *value, uint64_t header_bytes, const char *path,
                      struct error *error)
{
    uint64_t bytes;
    e->name = name;
    if (!json_is_object(value))
        return bad(error, path, name, "its entry is not an object");
    if (read_dtype(&e->dtype, json_object_get(value, "dtype")))
        return bad(error, path, name, "its dtype is not one of F32, BF16, U8");
    if (read_shape(&e->dims, &bytes, e->dtype, json_object_get(value, "shape")))
        return bad(error, path, name,
                   "its shape is not a list of up to 4 sizes");
    json_t *offsets = json_object_get(value, "data_offsets");
    json_t *first = json_array_get(offsets, 0);
    json_t *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) ||
        !json_is_integer(last))
        return bad(error, path, name, "its data_offsets are not two numbers");
    json_int_t begin = json_integer_value(first);
    json_int_t end = json_integer_value(last);
    if (begin < 0 || end < begin || end >> 62)
        return error_set(error, -EBADMSG,
                         "%s: tensor %s: its data_offsets %lld, %lld are not a "
                         "range",
                         path, name, (long long)begin, (long long)end);
    if ((uint64_t)(end - begin) != bytes)
        return error_set(error, -EBADMSG,
                         "%s: tensor %s: its data_offsets span %lld bytes, its "
                         "shape needs %llu",
                         path, name, (long long)(end - begin), ULL(bytes));
    e->offset_bytes = header_bytes + (uint64_t)begin;
    e->length_bytes = bytes;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->offset_bytes != y->offset_bytes)
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return (x->length_bytes > y->length_bytes) -
           (x->length_bytes < y->length_bytes);
}

static int check_places(struct safetensors *s, const char *path,
                        struct error *error)
{
    qsort(s->entry, s->count, sizeof *s->entry, by_offset);
    const struct safetensors_entry *last = NULL;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct safetensors_entry *e = &s->entry[i];
        if (e->offset_bytes < s->end_bytes)
            return error_set(error, -EBADMSG, "%s: tensors %s and %s overlap",
                             path, last ? last->name : "", e->name);
        s->end_bytes = e->offset_bytes + e->length_bytes;
        last = e;
    }
    if (s->end_bytes > s->file_bytes)
        return error_set(error, -ENODATA,
                         "%s: has %llu bytes where its tensors need %llu (the "
                         "last is %s): truncated or damaged",
                         path, ULL(s->file_bytes), ULL(s->end_bytes),
                         last->name);
    return 0;
}

int safetensors_parse(struct safetensors *out, const char *text, size_t length,
                      uint64_t file_bytes, const char *path,
                      struct error *error)
{
    json_error_t at;
    *out = (struct safetensors){ .file_bytes = file_bytes,
                                 .header_bytes = 8 + length,
                                 .end_bytes = 8 + length };
    out->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    if (!out->root)
        return error_set(error, -EBADMSG, "%s: its header is not JSON: %s",
                         path, at.text);
    int code = 0;
    if (!json_is_object(out->root))
        code = error_set(error, -EBADMSG, "%s: its header is not a JSON object",
                         path);
    else if (!(out->entry = calloc(json_object_size(out->root) + 1,
                                   sizeof *out->entry)))
        code = error_set(error, -ENOMEM, "%s: no memory", path);
    const char *name;
    json_t *value;
    if (!code)
        json_object_foreach(out->root, name, value)
        {
            if (!strcmp(name, "__metadata__"))
                continue;
            code = read_entry(&out->entry[out->count], name, value,
                              out->header_bytes, path, error);
            if (code)
                break;
            out->count++;
        }
    if (!code)
        code = check_places(out, path, error);
    if (code)
        safetensors_close(out);
    return code;
}

/* A page or a message in the place of the file says more than its size. */
static int refuse_page(int fd, const char *path, uint64_t size,
                       struct error *error)
{
    char text[512];
    size_t length = size < sizeof text ? (size_t)size : sizeof text;
    if (slurp_at(fd, text, length, 0, path, NULL))
        return 0;
    const char *what = mistaken_for(text, length);
    return what ? error_set(error, -EBADMSG, "%s: is %s", path, what) : 0;
}

int safetensors_open(struct safetensors *out, const char *path,
                     uint64_t header_max_bytes, struct error *error)
{
    uint64_t size;
    uint8_t raw[8];
    *out = (struct safetensors){ 0 };
    int fd = slurp_open(path, &size, error);
    if (fd < 0)
        return fd;
    char *text = NULL;
    uint64_t length = 0;
    int code = 0;
    if (size < sizeof raw)
        code = error_set(error, -ENODATA,
                         "%s: has %llu bytes, too few for a header: truncated",
                         path, ULL(size));
    else
        code = slurp_at(fd, raw, sizeof raw, 0, path, error);
    if (code)
        goto done;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | raw[i];
    if (length < 2 || length > header_max_bytes || length > size - sizeof raw)
        code = refuse_page(fd, path, size, error);
    if (code)
        goto done;
    if (length < 2 || length > header_max_bytes)
        code = error_set(error, -EBADMSG,
                         "%s: a header of %llu bytes, where 2 to %llu are "
                         "possible",
                         path, ULL(length), ULL(header_max_bytes));
    else if (length > size - sizeof raw)
        code =
            error_set(error, -ENODATA,
                      "%s: has %llu bytes where its header alone needs %llu: "
                      "truncated or damaged",
                      path, ULL(size), ULL(length + sizeof raw));
    else if (!(text = malloc((size_t)length)))
        code = error_set(error, -ENOMEM,
                         "%s: no memory for its header of %llu "
                         "bytes",
                         path, ULL(length));
    else
        code = slurp_at(fd, text, (size_t)length, sizeof raw, path, error);
    if (!code)
        code = safetensors_parse(out, text, (size_t)length, size, path, error);
done:
    free(text);
    close(fd);
    return code;
}

void safetensors_close(struct safetensors *s)
{
    free(s->entry);
    if (s->root)
        json_decref(s->root);
    *s = (struct safetensors){ 0 };
}
