/* tok.h - text to token ids and back, from the released files.
 *
 * `tiktoken.model` lists the ordinary tokens, byte strings, by rank; the rank
 * is the id. The 256 ids that follow are special tokens: those that
 * `tokenizer_config.json` names, the rest <|reserved_token_ID|>. There is no
 * list of merges: of all neighbours, those whose joined bytes have the lowest
 * rank join first.
 *
 *     tok_open -> { tok_encode, tok_piece, tok_special ... } -> tok_close
 *
 * Bytes    about 5 MB for the 163,584 tokens of K3, and 7 MB more during open.
 *          Encoding takes up to 60 bytes a byte of the longest piece, which
 *          has at most 50,001 characters; nearly all have fewer than 20.
 * Threads  read-only after open: any number may encode at once.
 * Errors   open: the kernel's for a file that cannot be read, -EBADMSG for one
 *          that is not what the format says, -ENOMEM. The sentence names the
 *          file and the line.
 * Cost     linear in the text (n log n in the longest piece).
 */
#ifndef MODEL_TOK_H
#define MODEL_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/why.h"

struct tok;

/* Ids in a growing array; all zero is an empty list. */
struct id_list {
    uint32_t *ids;
    size_t    count, capacity;
};

enum { TOK_SPECIALS = 256 }; /* special ids, after the last rank */

int tok_open(struct tok **out, const char *dir, struct why *why);
void tok_close(struct tok *t);

/* One more than the largest id: ordinary tokens and specials. */
uint32_t tok_vocab(const struct tok *t);

/* Append the ids of `text` to `out`, which the caller owns. With `structural`,
 * special tokens are recognised by their text, the longest one at the earliest
 * place; without, as is right for everything a user wrote, they are ordinary
 * characters. Nothing is added before or after. Text that is not UTF-8 is
 * encoded all the same, each wrong byte by itself: decoding gives the same
 * bytes back. Returns 0 or -ENOMEM, and then `out` is as it was. */
int tok_encode(const struct tok *t, const char *text, size_t bytes,
               bool structural, struct id_list *out);

/* The bytes of one token: *bytes points to them, the length is returned. They
 * are not terminated, may hold NUL and may begin or end inside a character. An
 * id that does not exist has 0 bytes; no other has. */
size_t tok_piece(const struct tok *t, uint32_t id, const char **bytes);

/* The id of the special token with this text, or -1. */
int tok_special(const struct tok *t, const char *text);

/* Does this id end a generation: [EOS], <|end_of_msg|>, [PAD], or the
 * tokenizer's own `eos_token`. */
bool tok_is_stop(const struct tok *t, uint32_t id);

/* Append one id. Returns 0 or -ENOMEM. */
int id_list_push(struct id_list *list, uint32_t id);
void id_list_free(struct id_list *list);

#endif
