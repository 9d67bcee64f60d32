/* routes.h - every path that is served, in one table.
 */
#ifndef BIN_SERVE_ROUTES_H
#define BIN_SERVE_ROUTES_H

#include "bin/serve/call.h"

enum route_kind {
    ROUTE_PLAIN,
    ROUTE_OPEN,   /* answers without a key */
    ROUTE_UPLOAD, /* its body is multipart/form-data, with a file */
};

struct route {
    const char *method;
    const char *path; /* {id} stands for one part of it */
    enum api    api;  /* of its errors */
    enum route_kind kind;
    void (*run)(struct call *c);
    const char *about;
};

/* Ended by a method that is NULL. */
extern const struct route routes[];

/* The route, or NULL with *e: 404, or 405. Fills `id`, and the API that errors
 * at this path have. */
const struct route *route_find(const char *method, const char *path,
                               char id[STORE_ID], enum api *api,
                               struct api_error *e);

/* route_chat.c */
void route_chat(struct call *c);
void route_completion(struct call *c);
void route_messages(struct call *c);
void route_count_tokens(struct call *c);
void route_responses(struct call *c);
void route_response_get(struct call *c);
void route_response_delete(struct call *c);
/* route_info.c */
void route_models(struct call *c);
void route_model(struct call *c);
void route_tokenize(struct call *c);
void route_detokenize(struct call *c);
void route_health(struct call *c);
void route_metrics(struct call *c);
void route_queue(struct call *c);
void route_cancel(struct call *c);
/* route_files.c */
void route_file_make(struct call *c);
void route_file_list(struct call *c);
void route_file_get(struct call *c);
void route_file_content(struct call *c);
void route_file_delete(struct call *c);
void route_batch_make(struct call *c);
void route_batch_list(struct call *c);
void route_batch_get(struct call *c);
void route_batch_cancel(struct call *c);
/* page.c */
void route_page(struct call *c);

#endif
