#include "bin/batch/look.h"

#include <errno.h>
#include <string.h>

#include "bin/batch/in.h"
#include "bin/batch/job_internal.h"
#include "bin/cli/session.h"

/* A prompt has at most so many ids more than its line has bytes. */
enum { FRAME_IDS = 64 };

static int look_at(struct batch_need *need, const char *text, size_t bytes,
                   const struct batch_rules *rules)
{
    struct batch_job j;
    struct request q;
    struct error said = { 0 };
    int err = batch_job_read(&j, 1, text, bytes, &said);
    if (!err)
        err = job_request(&j, rules, &q, &said);
    if (!err) {
        uint64_t room = q.max ? q.max : rules->max, ids = 0;
        need->forms |= q.form != REQUEST_FREE ||
                       (q.is_chat && chat_keeps_calls(&q.chat));
        if (bytes + FRAME_IDS + room > rules->context)
            err = job_longest(&j, rules, &q, &ids, &said);
        if (!err && ids + room > need->positions)
            need->positions = ids + room;
    }
    batch_job_free(&j);
    return err == -EINVAL ? 0 : err;
}

int batch_look(struct batch_need *need, const char *path,
               const struct batch_rules *rules, struct error *error)
{
    struct batch_in in;
    const char *text;
    size_t bytes;
    *need = (struct batch_need){ 0 };
    if (!strcmp(path, "-"))
        return 0;
    int got = batch_in_open(&in, path, error);
    while (!got && in.lines) {
        got = batch_in_next(&in, true, &text, &bytes);
        if (got == 1)
            got = look_at(need, text, bytes, rules);
        else if (got == -EMSGSIZE)
            got = 0;
        if (!got && session_signal())
            got = -ECANCELED;
    }
    batch_in_close(&in);
    if (!got || got == -ENODATA)
        return 0;
    return error->code ? error->code
                       : error_set(error, got, "%s: %s", path, strerror(-got));
}
