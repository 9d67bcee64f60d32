/* reply.h - what a model says, to a message: thoughts, content, calls.
 *
 * A reply goes on where the prompt stopped, in the think channel or in the
 * response:
 *
 *     THOUGHTS close(think) open(response) CONTENT close(response)
 *     open(tools) open(call tool=F index=1) open(argument key=K type=T) VALUE
 *     close(argument) ... close(call) ... close(tools) close(message)
 *     <|end_of_msg|>
 *
 * It is read by token ids, never by their text, which the model may also print.
 * Models break this form in known ways: separators and closing tags are missing
 * or written as text, the answer stands in the think channel, a reply is cut
 * off anywhere. What they plainly meant is read; a call that is not whole is
 * never given; no mark of the structure gets into a text; no text is lost but
 * what stands between tags that have none.
 *
 *     reply_init -> { reply_push ... } -> reply_end -> reply_free
 *
 * After each id `event` has all that is settled since the id before. Put
 * together the events are the message, with two exceptions: when the answer
 * stood in the think channel (`moved`), all of it comes once more as content;
 * and a call that is dropped was shown in part.
 *
 * Bytes    the reply's text twice.
 * Threads  one reply, one thread.
 * Errors   -ENOMEM.
 * Cost     linear in the text.
 */
#ifndef MODEL_CHAT_REPLY_H
#define MODEL_CHAT_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/json/buffer.h"
#include "model/text/tok.h"
#include "model/text/tok_stream.h"

enum { REPLY_STOPS_MAX = 16, REPLY_HEAD_MAX = 4096 };

enum reply_region {
    REPLY_THINK,
    REPLY_RESPONSE,
    REPLY_BETWEEN, /* blanks are held, other text is content */
    REPLY_TOOLS,
    REPLY_CALL,
    REPLY_ARGUMENT,
    REPLY_JSON, /* all arguments of a call in one text */
};

enum reply_reason { REPLY_STOP, REPLY_LENGTH, REPLY_CALLS };

enum reply_kind { REPLY_THOUGHT_TEXT, REPLY_CONTENT_TEXT, REPLY_CALL_BEGINS,
                  REPLY_CALL_ARGUMENTS };

struct reply_event {
    enum reply_kind kind;
    uint32_t call;        /* its place in the message, if it is kept */
    size_t   begin, bytes; /* in event_text: UTF-8; the name of a call that
                            * begins */
};

struct reply_call {
    struct buffer name, arguments; /* a JSON text, as far as the model kept to
                                    * the form */
};

/* A stop string, the caller's, and how much of it the content ends with. */
struct reply_stop {
    const char *text;
    size_t      bytes, matched;
    uint32_t   *fallback; /* the longest beginning that each ends with */
};

struct reply_options {
    bool chat;      /* false: every id is text, and content */
    bool in_answer; /* begin in the response, not in thoughts */
    bool calls;     /* tools were offered: without, calls are dropped */
    bool one_call;  /* end after the first */
};

struct reply {
    /* The message. UTF-8: what is none is U+FFFD. */
    struct buffer thoughts, content;
    struct reply_call *call;
    uint32_t calls;
    enum reply_reason reason; /* once done */
    bool     done;            /* nothing more is read */
    bool     stopped;         /* by a stop string */
    bool     moved;           /* the answer was in the think channel */
    uint32_t used;            /* ids that were read, with the one that ends */
    uint32_t thought_ids;     /* of them in the think channel */

    /* Settled by the last id, or by reply_end. */
    struct reply_event *event;
    uint32_t events;
    struct buffer event_text;

    /* The rest is the reader's. */
    const struct tok    *tok;
    struct reply_options options;
    enum reply_region    region, before; /* before: of a value outside a call */
    bool     implied;      /* only the prompt opened the think channel */
    bool     outside;      /* in a value outside of any call */
    bool     in_head, closing;
    bool     called;       /* there was a call, whatever became of it */
    bool     in_call, has_json, skipping; /* skipping: a value nobody wants */
    bool     is_text;      /* the value is a string */
    bool     failed;       /* memory */
    uint32_t arguments;    /* of this call */
    struct buffer head, held, value, type, scratch;
    struct reply_call    now;
    struct tok_stream    half_thought, half_content, half_value;
    size_t   shown;        /* bytes of the content */
    struct reply_stop    stop[REPLY_STOPS_MAX];
    uint32_t stops, call_room, event_room;
    int      open_id, close_id, sep_id;
    uint32_t first_special;
};

/* tok NULL: ids have no text. */
void reply_init(struct reply *r, const struct tok *tok,
                const struct reply_options *options);
/* At most REPLY_STOPS_MAX, none empty; the text stays where it is. Only the
 * content is searched, and cut before the first that is complete. */
int  reply_add_stop(struct reply *r, const char *text, size_t bytes);
/* One more id. 1 when the reply is done: it ended, or came to a stop string,
 * or has its one call. */
int  reply_push(struct reply *r, uint32_t id);
/* Where the text of the next id would go; REPLY_TOOLS inside a tag. */
enum reply_region reply_place(const struct reply *r);
/* No more ids: the reply was cut off, REPLY_LENGTH, or an end id came that was
 * not pushed. Nothing if it is done. */
int  reply_end(struct reply *r, bool cut);
/* As after reply_init and reply_add_stop. */
void reply_restart(struct reply *r);
void reply_free(struct reply *r);

/* "stop", "length", "tool_calls". */
const char *reply_reason_name(enum reply_reason reason);

#endif
