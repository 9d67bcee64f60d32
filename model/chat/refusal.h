/* refusal.h - why a request is not supported: the field and a sentence.
 */
#ifndef MODEL_CHAT_REFUSAL_H
#define MODEL_CHAT_REFUSAL_H

/* What batches and servers call `code`. */
#define REFUSED_INVALID     "invalid_request"
#define REFUSED_UNKNOWN     "unknown_field"
#define REFUSED_UNSUPPORTED "unsupported"

struct refusal {
    const char *code;
    char field[160];    /* as in messages[2].content; "" for all of it */
    char sentence[320]; /* without the field's name; both may be cut inside
                         * a character */
};

/* Both return -EINVAL; `code` is REFUSED_INVALID, or what is set afterwards. */
int refusal_set(struct refusal *r, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The field `name` of message number `index`, from 0. */
int refusal_of_message(struct refusal *r, unsigned index, const char *name,
                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
