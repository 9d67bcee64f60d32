/* said.h - a line of an output: which line of the input it answers, and how.
 *
 *     batch_said_read -> { batch_said_key } -> batch_said_free
 *
 * Threads  one.
 * Errors   see below.
 */
#ifndef BIN_BATCH_SAID_H
#define BIN_BATCH_SAID_H

#include <stdbool.h>

#include "bin/batch/keys.h"
#include "model/json/jv.h"

struct batch_said {
    bool     answers; /* it has a response */
    bool     failed;  /* it has an error */
    bool     by_line; /* known by `line`, not by `id` */
    uint64_t line;    /* its number in the input then */
    const struct jv *id;
    uint64_t hash;    /* the first half of its sluice_hash; 0: none */
    struct jv_doc doc;
};

/* 0; 1: the line is blank; -EBADMSG: no batch wrote it; -ENOMEM. To be freed
 * after 0 alone. */
int  batch_said_read(struct batch_said *s, const char *text, size_t bytes);
void batch_said_free(struct batch_said *s);
/* Its key, as that of the line it answers. NULL as batch_keys_at. */
struct batch_key *batch_said_key(struct batch_keys *keys,
                                 const struct batch_said *s);

bool batch_is_blank(const char *text, size_t bytes);
/* The key of an input line by its id, and by its number. */
struct batch_key *batch_key_of_id(struct batch_keys *keys,
                                  const struct jv *id);
struct batch_key *batch_key_of_line(struct batch_keys *keys, uint64_t line);

#endif
