/* tok.h - text to token ids and back, from the released files.
 *
 * tiktoken.model lists the ordinary tokens, which are byte strings, by rank;
 * the rank is the id. The next 256 ids are special tokens:
 * tokenizer_config.json names some, the others are <|reserved_token_ID|>. There
 * is no list of merges: the two neighbours whose joined bytes have the lowest
 * rank are joined first.
 *
 *     tok_open -> { tok_encode, tok_piece, tok_special ... } -> tok_close
 *
 * Bytes    about 5 MB for the 163,584 tokens of K3, and 7 MB more during open.
 *          Encoding takes up to 60 bytes a byte of the longest piece: at most
 *          50,001 characters, rarely more than 20.
 * Threads  read-only after open: any number may encode at once.
 * Errors   open: errnos of the files, -EBADMSG: against the format, -ENOMEM.
 *          The sentence names the file and the line.
 * Cost     linear in the text; n log n in the longest piece.
 */
#ifndef MODEL_TEXT_TOK_H
#define MODEL_TEXT_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/error.h"

struct tok;

/* A growing array of ids. All zero is an empty list. */
struct id_list {
    uint32_t *ids;             /* [capacity], of which `count` are used */
    size_t    count, capacity;
};

enum { TOK_SPECIALS = 256 }; /* special ids, after the last rank */

/* Read the two files in folder `dir`. */
int tok_open(struct tok **out, const char *dir, struct error *error);
void tok_close(struct tok *t);

/* How many ids there are, ordinary and special. */
uint32_t tok_vocab(const struct tok *t);

/* Append the ids of `text` to `out`, which the caller owns. With `structural`,
 * the text of a special token becomes its id: the earliest in the text, of
 * several there the longest. Without, it is ordinary text, as it has to be for
 * everything a user wrote. Nothing is added before or after. Bytes that are not
 * UTF-8 are encoded one by one; decoding gives them back. Returns 0, or -ENOMEM
 * with `out` unchanged. */
int tok_encode(const struct tok *t, const char *text, size_t bytes,
               bool structural, struct id_list *out);

/* Point *bytes to the bytes of a token and return their number. They have no
 * NUL at the end, may contain NUL, and may begin or end inside a character. 0:
 * there is no such id. They live until tok_close. */
size_t tok_piece(const struct tok *t, uint32_t id, const char **bytes);

/* The id of the special token with this text, or -1. */
int tok_special(const struct tok *t, const char *text);

/* Whether the id ends a generation: [EOS], <|end_of_msg|>, [PAD], or the
 * eos_token of the config. */
bool tok_is_stop(const struct tok *t, uint32_t id);

/* Append one id. Returns 0 or -ENOMEM. */
int id_list_push(struct id_list *list, uint32_t id);
void id_list_free(struct id_list *list);

#endif
