#include "bin/batch/said.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bin/batch/hash.h"
#include "model/json/mark.h"

bool batch_is_blank(const char *text, size_t bytes)
{
    while (bytes && (*text == ' ' || *text == '\t' || *text == '\r')) {
        text++;
        bytes--;
    }
    return !bytes;
}

struct batch_key *batch_key_of_id(struct batch_keys *keys,
                                  const struct jv *id)
{
    char number[40];
    int64_t value;
    if (!jv_integer(id, &value))
        return batch_keys_at(keys, id->text, id->bytes);
    /* No text can be the same: NUL stands before it. */
    int n = snprintf(number, sizeof number, "%ci%" PRId64, 0, value);
    return batch_keys_at(keys, number, (size_t)n);
}

struct batch_key *batch_key_of_line(struct batch_keys *keys, uint64_t line)
{
    char number[40];
    int n = snprintf(number, sizeof number, "%cl%" PRIu64, 0, line);
    return batch_keys_at(keys, number, (size_t)n);
}

int batch_said_read(struct batch_said *s, const char *text, size_t bytes)
{
    int64_t number;
    size_t skip;
    *s = (struct batch_said){ 0 };
    text_mark(text, bytes, &skip); /* of an editor */
    text += skip;
    bytes -= skip;
    if (batch_is_blank(text, bytes))
        return 1;
    int err = jv_parse(&s->doc, text, bytes, JV_STRICT, NULL);
    if (err)
        return err;
    const struct jv *root = s->doc.root, *name = jv_get(root, "id");
    const struct jv *said = jv_get(root, "error");
    const struct jv *response = jv_get(root, "response");
    const struct jv *hash = jv_get(root, "sluice_hash");
    bool known = jv_is_type(name, JV_STRING) &&
                 sscanf(name->text, "batch_req_%" SCNu64, &s->line) == 1;
    if (!known || (!said && !response)) {
        jv_free(&s->doc);
        return -EBADMSG;
    }
    s->id = jv_get(root, "custom_id");
    s->answers = jv_is_type(response, JV_OBJECT);
    s->failed = !jv_is_empty(said);
    s->by_line =
        (!jv_is_type(s->id, JV_STRING) && !jv_integer(s->id, &number)) ||
        jv_is(jv_get(said, "code"), BATCH_DUPLICATE);
    if (jv_is_type(hash, JV_STRING))
        s->hash = batch_hash_short(hash->text, hash->bytes);
    return 0;
}

void batch_said_free(struct batch_said *s)
{
    jv_free(&s->doc);
}

struct batch_key *batch_said_key(struct batch_keys *keys,
                                 const struct batch_said *s)
{
    return s->by_line ? batch_key_of_line(keys, s->line)
                      : batch_key_of_id(keys, s->id);
}
