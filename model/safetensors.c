#include "model/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/slurp.h"

#define ULL(x) ((unsigned long long)(x))

static int bad(struct why *why, const char *path, const char *name,
               const char *what)
{
    return why_set(why, -EBADMSG, "%s: tensor %s: %s", path, name, what);
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

/* The shape, and the bytes it takes. Returns -1 when it is no shape or its
 * size does not fit in 62 bits. */
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
                      struct why *why)
{
    uint64_t bytes;
    e->name = name;
    if (!json_is_object(value))
        return bad(why, path, name, "its description is not an object");
    if (read_dtype(&e->dtype, json_object_get(value, "dtype")))
        return bad(why, path, name, "its dtype is not one of F32, BF16, U8");
    if (read_shape(&e->dims, &bytes, e->dtype, json_object_get(value, "shape")))
        return bad(why, path, name,
                   "its shape is not a list of up to 4 possible sizes");
    json_t *offsets = json_object_get(value, "data_offsets");
    json_t *first = json_array_get(offsets, 0);
    json_t *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) ||
        !json_is_integer(last))
        return bad(why, path, name, "its data_offsets are not two numbers");
    json_int_t begin = json_integer_value(first);
    json_int_t end = json_integer_value(last);
    if (begin < 0 || end < begin || end >> 62)
        return why_set(why, -EBADMSG,
                       "%s: tensor %s: its data_offsets %lld, %lld are not a "
                       "range",
                       path, name, (long long)begin, (long long)end);
    if ((uint64_t)(end - begin) != bytes)
        return why_set(why, -EBADMSG,
                       "%s: tensor %s: its data_offsets span %lld bytes, its "
                       "shape takes %llu",
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
                        struct why *why)
{
    qsort(s->entry, s->count, sizeof *s->entry, by_offset);
    const struct safetensors_entry *last = NULL;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct safetensors_entry *e = &s->entry[i];
        if (e->offset_bytes < s->end_bytes)
            return why_set(why, -EBADMSG, "%s: tensors %s and %s overlap", path,
                           last ? last->name : "", e->name);
        s->end_bytes = e->offset_bytes + e->length_bytes;
        last = e;
    }
    if (s->end_bytes > s->file_bytes)
        return why_set(why, -ENODATA,
                       "%s: has %llu bytes where its tensors need %llu (the "
                       "last is %s): truncated or damaged",
                       path, ULL(s->file_bytes), ULL(s->end_bytes), last->name);
    return 0;
}

int safetensors_parse(struct safetensors *out, const char *text, size_t length,
                      uint64_t file_bytes, const char *path, struct why *why)
{
    json_error_t at;
    *out = (struct safetensors){ .file_bytes = file_bytes,
                                 .header_bytes = 8 + length,
                                 .end_bytes = 8 + length };
    out->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    if (!out->root)
        return why_set(why, -EBADMSG, "%s: its header is not JSON: %s", path,
                       at.text);
    int error = 0;
    if (!json_is_object(out->root))
        error = why_set(why, -EBADMSG, "%s: its header is not a JSON object",
                        path);
    else if (!(out->entry = calloc(json_object_size(out->root) + 1,
                                   sizeof *out->entry)))
        error = why_set(why, -ENOMEM, "%s: no memory", path);
    const char *name;
    json_t *value;
    if (!error)
        json_object_foreach(out->root, name, value)
        {
            if (!strcmp(name, "__metadata__"))
                continue;
            error = read_entry(&out->entry[out->count], name, value,
                               out->header_bytes, path, why);
            if (error)
                break;
            out->count++;
        }
    if (!error)
        error = check_places(out, path, why);
    if (error)
        safetensors_close(out);
    return error;
}

int safetensors_open(struct safetensors *out, const char *path,
                     uint64_t header_max_bytes, struct why *why)
{
    uint64_t size;
    uint8_t raw[8];
    *out = (struct safetensors){ 0 };
    int fd = slurp_open(path, &size, why);
    if (fd < 0)
        return fd;
    char *text = NULL;
    uint64_t length = 0;
    int error = 0;
    if (size < sizeof raw)
        error = why_set(why, -ENODATA,
                        "%s: has %llu bytes, too few for a header: truncated",
                        path, ULL(size));
    else
        error = slurp_at(fd, raw, sizeof raw, 0, path, why);
    if (error)
        goto done;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | raw[i];
    if (length < 2 || length > header_max_bytes)
        error = why_set(why, -EBADMSG,
                        "%s: a header of %llu bytes, where 2 to %llu are "
                        "possible",
                        path, ULL(length), ULL(header_max_bytes));
    else if (length > size - sizeof raw)
        error = why_set(why, -ENODATA,
                        "%s: has %llu bytes where its header alone needs %llu: "
                        "truncated or damaged",
                        path, ULL(size), ULL(length + sizeof raw));
    else if (!(text = malloc((size_t)length)))
        error = why_set(why, -ENOMEM, "%s: no memory for its header of %llu "
                                      "bytes",
                        path, ULL(length));
    else
        error = slurp_at(fd, text, (size_t)length, sizeof raw, path, why);
    if (!error)
        error = safetensors_parse(out, text, (size_t)length, size, path, why);
done:
    free(text);
    close(fd);
    return error;
}

void safetensors_close(struct safetensors *s)
{
    free(s->entry);
    if (s->root)
        json_decref(s->root);
    *s = (struct safetensors){ 0 };
}
