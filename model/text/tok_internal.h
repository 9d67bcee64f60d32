/* tok_internal.h - what the files of the tokenizer share.
 *
 * Errors   as in tok.h. Threads: read-only after tok_open.
 */
#ifndef MODEL_TEXT_TOK_INTERNAL_H
#define MODEL_TEXT_TOK_INTERNAL_H

#include "model/text/tok.h"
#include "model/text/tok_class.h"

enum {
    TOK_NONE = -1,            /* no rank, no id */
    TOK_RANKS_MAX = 1 << 24,  /* tokens in tiktoken.model */
    TOK_PIECE_MAX = 3072,     /* bytes of a token; K3's longest has 256 */
    TOK_STOPS_MAX = 4
};

struct tok_special {
    const char *text;
    uint32_t    bytes, id;
};

struct tok {
    struct tok_class *class;
    char             *blob;      /* all ordinary tokens, by rank */
    uint32_t         *begin;     /* [ranks + 1] offsets in blob */
    uint32_t          ranks;
    uint32_t          piece_max; /* bytes of the longest ordinary token */
    struct tok_slot  *slots;     /* [slot_mask + 1] hash of bytes to rank */
    uint32_t          slot_mask;
    int32_t           byte_rank[256];
    char             *special_blob;
    struct tok_special special[TOK_SPECIALS]; /* by id - ranks */
    uint16_t          sorted[TOK_SPECIALS];   /* by text, as memcmp orders */
    uint8_t           starts[256];            /* 1: begins a special token */
    uint32_t          stops[TOK_STOPS_MAX];
    uint32_t          stop_count; /* entries of stops */
};

struct tok_slot {
    int32_t  rank; /* TOK_NONE: free */
    uint32_t hash;
};

/* tok_ranks.c: read tiktoken.model into blob .. byte_rank. */
int tok_ranks_load(struct tok *t, const char *path, struct error *error);
/* The rank of a byte string, bytes > 0, or TOK_NONE. */
int32_t tok_ranks_find(const struct tok *t, const char *text, size_t bytes);

/* tok_special.c: read tokenizer_config.json into special_blob .. stops. */
int tok_special_load(struct tok *t, const char *path, struct error *error);
/* The first special token in [text, end): where it is, and its *id; or NULL. */
const char *tok_special_search(const struct tok *t, const char *text,
                               const char *end, uint32_t *id);

/* As tok_encode. *steps grows by the characters read, ranks looked up and heap
 * entries moved, so that a test can count the cost. */
int tok_encode_counting(const struct tok *t, const char *text, size_t bytes,
                        bool structural, struct id_list *out, uint64_t *steps);

#endif
