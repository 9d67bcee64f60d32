/* config_load.c - config.json, or what a download left in its place. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/config.h"
#include "model/ckpt/download.h"
#include "model/ckpt/mistaken.h"
#include "model/ckpt/slurp.h"

enum { MISTAKEN_FIELDS = 6 }; /* fewer, and it may be an error message */
#define CONFIG_BYTES_MAX (16u << 20)

int config_load(struct config *out, const char *dir, struct error *error)
{
    char path[4096];
    char *text;
    size_t length;
    memset(out, 0, sizeof *out);
    int n = snprintf(path, sizeof path, "%s/config.json", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(error, -ENAMETOOLONG,
                         "%.200s...: the path is too long", dir);
    struct error local = { 0 };
    char other[4096];
    int code = slurp_file(&text, &length, path, CONFIG_BYTES_MAX, &local);
    if (code == -ENOENT && download_snapshot(other, sizeof other, dir))
        return error_set(error, code, "%s: has no config.json; %s has one: "
                         "give that folder", dir, other);
    if (code)
        return error_set(error, code, "%s", local.text);
    json_error_t at;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    const char *mistaken = mistaken_for(text, length);
    free(text);
    if (mistaken && (!root || json_object_size(root) < MISTAKEN_FIELDS)) {
        json_decref(root);
        return error_set(error, -EBADMSG, "%s: is %s", path, mistaken);
    }
    if (!root)
        return error_set(error, -EBADMSG, "%s: line %d: %s", path, at.line,
                         at.text);
    code = config_parse(out, root, path, error);
    json_decref(root);
    return code;
}

void config_free(struct config *c)
{
    free(c->is_mla);
    memset(c, 0, sizeof *c);
}
