/* tok_bpe.h - byte pair encoding of one piece of text.
 *
 * If the piece is a token, it is that token. Otherwise it starts as single
 * bytes. The two neighbours whose joined bytes have the lowest rank are joined,
 * the leftmost of equals, until no two neighbours form a token.
 *
 *     all zero -> { tok_bpe_piece ... } -> tok_bpe_free
 *
 * Bytes    the scratch grows to 60 bytes a byte of the longest piece.
 * Threads  one scratch, one thread.
 * Errors   -ENOMEM.
 * Cost     n log n in the bytes of the piece: a linked list of the parts and a
 *          heap of the pairs.
 */
#ifndef MODEL_TEXT_TOK_BPE_H
#define MODEL_TEXT_TOK_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "model/text/tok.h"

/* A part of the piece, at the index of its first byte. */
struct tok_bpe_part {
    uint32_t next, prev; /* indexes of the neighbours */
    int32_t  rank;       /* of this part joined with the next; -1: none */
};

struct tok_bpe {
    struct tok_bpe_part *part; /* [capacity + 1] */
    uint64_t            *heap; /* [2 * capacity] rank << 32 | first byte */
    size_t               heap_count;
    size_t               capacity; /* bytes of the longest piece that fits */
    uint64_t             steps;    /* look-ups and heap moves so far */
};

/* Append the tokens of one piece, bytes > 0, to `out`. */
int tok_bpe_piece(const struct tok *t, struct tok_bpe *b, const char *text,
                  size_t bytes, struct id_list *out);
void tok_bpe_free(struct tok_bpe *b);

#endif
