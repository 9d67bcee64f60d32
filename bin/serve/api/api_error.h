/* api_error.h - why a client gets no answer: a status, and the body that the
 * API of its request has for errors.
 *
 * Threads  any number.
 */
#ifndef BIN_SERVE_API_API_ERROR_H
#define BIN_SERVE_API_API_ERROR_H

#include "model/ckpt/error.h"
#include "model/json/buffer.h"

enum api { API_OPENAI, API_ANTHROPIC, API_RESPONSES };

struct api_error {
    int         status;      /* of HTTP; 0: no error */
    const char *code;        /* a constant, as OpenAI's clients know them */
    unsigned    retry_after; /* seconds; 0: not said */
    char        field[160];  /* "": none */
    char        text[480];
};

/* Returns -1. The first sentence stays. */
int  api_fail(struct api_error *e, int status, const char *code,
              const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The object of the body, or of an event in a stream. */
void api_error_body(struct buffer *out, enum api api,
                    const struct api_error *e);
/* A text as JSON, whatever bytes are in it. */
void api_text(struct buffer *out, const char *text);

#endif
