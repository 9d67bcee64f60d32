#include "bin/serve/routes.h"

#include <string.h>

const struct route routes[] = {
    { "POST", "/v1/chat/completions", API_OPENAI, ROUTE_PLAIN, route_chat,
      "answer a conversation" },
    { "POST", "/v1/completions", API_OPENAI, ROUTE_PLAIN, route_completion,
      "go on with a text" },
    { "POST", "/v1/messages", API_ANTHROPIC, ROUTE_PLAIN, route_messages,
      "answer a conversation, as Anthropic's API does" },
    { "POST", "/v1/messages/count_tokens", API_ANTHROPIC, ROUTE_PLAIN,
      route_count_tokens, "the length of its prompt" },
    { "POST", "/v1/responses", API_RESPONSES, ROUTE_PLAIN, route_responses,
      "answer a conversation, as OpenAI's Responses API does" },
    { "GET", "/v1/responses/{id}", API_RESPONSES, ROUTE_PLAIN,
      route_response_get, "such an answer, kept" },
    { "DELETE", "/v1/responses/{id}", API_RESPONSES, ROUTE_PLAIN,
      route_response_delete, "forget it" },
    { "GET", "/v1/models", API_OPENAI, ROUTE_PLAIN, route_models,
      "the names of the model" },
    { "GET", "/v1/models/{id}", API_OPENAI, ROUTE_PLAIN, route_model,
      "one of them" },
    { "POST", "/tokenize", API_OPENAI, ROUTE_PLAIN, route_tokenize,
      "a text or a conversation to ids" },
    { "POST", "/detokenize", API_OPENAI, ROUTE_PLAIN, route_detokenize,
      "ids to a text" },
    { "POST", "/v1/files", API_OPENAI, ROUTE_UPLOAD, route_file_make,
      "keep a file" },
    { "GET", "/v1/files", API_OPENAI, ROUTE_PLAIN, route_file_list,
      "the files" },
    { "GET", "/v1/files/{id}", API_OPENAI, ROUTE_PLAIN, route_file_get,
      "one of them" },
    { "GET", "/v1/files/{id}/content", API_OPENAI, ROUTE_PLAIN,
      route_file_content, "its bytes" },
    { "DELETE", "/v1/files/{id}", API_OPENAI, ROUTE_PLAIN, route_file_delete,
      "remove it" },
    { "POST", "/v1/batches", API_OPENAI, ROUTE_PLAIN, route_batch_make,
      "answer the lines of a file" },
    { "GET", "/v1/batches", API_OPENAI, ROUTE_PLAIN, route_batch_list,
      "the batches" },
    { "GET", "/v1/batches/{id}", API_OPENAI, ROUTE_PLAIN, route_batch_get,
      "how far one is" },
    { "POST", "/v1/batches/{id}/cancel", API_OPENAI, ROUTE_PLAIN,
      route_batch_cancel, "stop it" },
    { "GET", "/", API_OPENAI, ROUTE_OPEN, route_page, "the page" },
    { "GET", "/page.css", API_OPENAI, ROUTE_OPEN, route_page, "its looks" },
    { "GET", "/page.js", API_OPENAI, ROUTE_OPEN, route_page, "its program" },
    { "GET", "/health", API_OPENAI, ROUTE_OPEN, route_health,
      "200 when requests are answered, else 503" },
    { "GET", "/metrics", API_OPENAI, ROUTE_PLAIN, route_metrics,
      "for Prometheus" },
    { "GET", "/queue", API_OPENAI, ROUTE_PLAIN, route_queue,
      "what runs, what waits, what the machine does" },
    { "POST", "/queue/{id}/cancel", API_OPENAI, ROUTE_PLAIN, route_cancel,
      "cancel a request" },
    { NULL, NULL, 0, 0, NULL, NULL },
};

/* Does a path have the form of a route; its {id} goes to `id`. */
static bool matches(const char *form, const char *path, char id[STORE_ID])
{
    while (*form && *path) {
        if (*form == '{') {
            size_t n = strcspn(path, "/");
            if (!n || n >= STORE_ID)
                return false;
            memcpy(id, path, n);
            id[n] = 0;
            path += n;
            form = strchr(form, '}') + 1;
        } else if (*form++ != *path++) {
            return false;
        }
    }
    return !*form && !*path;
}

const struct route *route_find(const char *method, const char *path,
                               char id[STORE_ID], enum api *api,
                               struct api_error *e)
{
    bool there = false;
    *api = API_OPENAI;
    if (!strcmp(method, "HEAD"))
        method = "GET";
    for (const struct route *r = routes; r->method; r++) {
        if (!matches(r->path, path, id))
            continue;
        *api = r->api;
        if (!strcmp(r->method, method))
            return r;
        there = true;
    }
    if (there)
        api_fail(e, 405, "method_not_allowed",
                 "this path is not for this method");
    else
        api_fail(e, 404, "not_found", "there is no such path");
    return NULL;
}
