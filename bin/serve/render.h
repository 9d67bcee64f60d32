/* render.h - what was said of a request, as an API writes it: events of a
 * stream, or one JSON text at the end.
 *
 *     render_begin -> { render_more ... } -> render_free
 *
 * Threads  the room's lock: it reads a work.
 * Errors   the buffer's.
 */
#ifndef BIN_SERVE_RENDER_H
#define BIN_SERVE_RENDER_H

#include "bin/serve/work.h"

struct render {
    enum api api;
    bool     stream;
    bool     progress; /* the client asked for such events */
    bool     begun, over;
    size_t   event;    /* of the work: the next one */
    uint32_t chunks;   /* responses: sequence_number of the next */
    /* anthropic and responses: the part of the message that is being written.
     */
    uint32_t part;     /* its index */
    int      part_kind; /* an enum work_kind; -1: none is open */
    uint32_t call;     /* its number, of a call */
    struct buffer name; /* responses: of that call */
    struct buffer kept; /* responses: the part so far */
    struct buffer items; /* responses: finished parts, as JSON */
};

void render_begin(struct render *r, enum api api, bool stream);
/* Append what is there and was not given yet, at most about `room` bytes.
 * `over`: nothing more will come. */
void render_more(struct render *r, const struct work *w,
                 const struct batch_rules *rules, struct buffer *out,
                 size_t room);
/* The whole of a response that is DONE, as JSON on one line. */
void render_response(const struct work *w, struct buffer *out);
/* What keeps a silent connection alive: a comment in a stream, else a blank. */
void render_tick(const struct render *r, struct buffer *out);
void render_free(struct render *r);

/* ---- one API each: the beginning of a stream, an event, its end, and the
 * JSON text of the whole; the last two of a request that is DONE ---- */
struct render_api {
    void (*begin)(struct render *r, const struct work *w, struct buffer *out);
    void (*event)(struct render *r, const struct work *w,
                  const struct work_event *e, struct buffer *out);
    void (*end)(struct render *r, const struct work *w, struct buffer *out);
    void (*whole)(struct render *r, const struct work *w,
                  const struct batch_rules *rules, struct buffer *out);
};
extern const struct render_api render_openai, render_anthropic,
    render_responses;

/* The bytes of an event. */
static inline const char *render_text(const struct work *w,
                                      const struct work_event *e)
{
    return e->bytes ? w->text.bytes + e->begin : "";
}

#endif
