/* tok_bpe.h - one piece of text to tokens, by joining neighbours.
 *
 * A piece that is a token is that token. Otherwise it starts as single bytes,
 * and again and again the two neighbours join whose bytes together have the
 * lowest rank, the leftmost of equals, until no two neighbours are a token.
 *
 *     all zero -> { tok_bpe_piece ... } -> tok_bpe_free
 *
 * Bytes    the scratch grows to 60 bytes a byte of the longest piece.
 * Threads  one scratch, one thread.
 * Errors   -ENOMEM.
 * Cost     n log n in the bytes of the piece: a list of what is left and a heap
 *          of what could join.
 */
#ifndef MODEL_TOK_BPE_H
#define MODEL_TOK_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "model/tok.h"

/* A part of the piece, kept at the index of its first byte. */
struct tok_bpe_part {
    uint32_t next, prev; /* first bytes of the neighbours */
    int32_t  rank;       /* of this part and the next one joined */
};

struct tok_bpe {
    struct tok_bpe_part *part; /* [capacity + 1] */
    uint64_t            *heap; /* [2 * capacity] rank << 32 | first byte */
    size_t               heap_count;
    size_t               capacity; /* bytes of a piece that fit */
    uint64_t             steps;    /* look-ups and heap moves, ever */
};

/* Append the tokens of one piece, bytes > 0, to `out`. */
int tok_bpe_piece(const struct tok *t, struct tok_bpe *b, const char *text,
                  size_t bytes, struct id_list *out);
void tok_bpe_free(struct tok_bpe *b);

#endif
