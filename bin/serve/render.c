#include "bin/serve/render.h"

#include <string.h>

static const struct render_api *const apis[] = {
    [API_OPENAI] = &render_openai,
    [API_ANTHROPIC] = &render_anthropic,
    [API_RESPONSES] = &render_responses,
};

void render_begin(struct render *r, enum api api, bool stream)
{
    *r = (struct render){ .api = api, .stream = stream, .part_kind = -1 };
}

/* A failure in the middle of a stream. */
static void put_error(struct render *r, const struct work *w,
                      struct buffer *out)
{
    if (r->api != API_OPENAI)
        buffer_text(out, "event: error\ndata: ");
    else
        buffer_text(out, "data: ");
    api_error_body(out, r->api, &w->error);
    buffer_text(out, "\n\n");
}

static void more_of_stream(struct render *r, const struct work *w,
                           struct buffer *out, size_t room)
{
    const struct render_api *api = apis[r->api];
    if (!r->begun)
        api->begin(r, w, out);
    r->begun = true;
    while (r->event < w->events && out->count < room)
        api->event(r, w, &w->event[r->event++], out);
    if (r->event < w->events || !work_over(w))
        return;
    if (w->state == WORK_DONE)
        api->end(r, w, out);
    else
        put_error(r, w, out);
    r->over = true;
}

void render_more(struct render *r, const struct work *w,
                 const struct batch_rules *rules, struct buffer *out,
                 size_t room)
{
    if (r->over)
        return;
    if (r->stream) {
        more_of_stream(r, w, out, room);
        return;
    }
    if (!work_over(w))
        return;
    if (w->state == WORK_DONE)
        apis[r->api]->whole(r, w, rules, out);
    r->over = true;
}

void render_tick(const struct render *r, struct buffer *out)
{
    buffer_text(out, r->stream ? ": waiting\n\n" : " ");
}

void render_free(struct render *r)
{
    buffer_free(&r->name);
    buffer_free(&r->kept);
    buffer_free(&r->items);
}
