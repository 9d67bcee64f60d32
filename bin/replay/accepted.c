#include "bin/cli/outputs.h"
#include "bin/replay/accepted.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "bin/cli/json.h"
#include "bin/cli/session.h"
#include "model/ckpt/figure.h"
#include "model/sim/drafted.h"

static void print_one(const char *path, const struct drafted *d, double chance)
{
    printf("%s\n%s of one sequence after the other; a draft is "
           "right with chance %s\n"
           "drafts  ids a pass  experts a pass  experts an id  GB an id   "
           "gain\n", shown(path).text,
           figure_count(d->rows, "row").text, figure_chosen(chance).text);
    for (uint32_t n = 0; n <= DRAFTED_MAX && d->ids[n] > 0; n++) {
        double bytes = drafted_bytes(d, n);
        printf("%6u %11s %15s %14s", n, figure(d->ids[n]).text,
               figure(d->experts[n]).text,
               figure(d->experts[n] / d->ids[n]).text);
        if (bytes > 0)
            printf(" %9s %6s\n", figure(bytes / 1e9).text,
                   figure(drafted_bytes(d, 0) / bytes).text);
        else
            printf(" %9s %6s\n", "-", "-");
    }
}

static json_t *to_json(const char *path, const struct drafted *d)
{
    json_t *lines = json_array();
    for (uint32_t n = 0; n <= DRAFTED_MAX && d->ids[n] > 0; n++)
        json_array_append_new(
            lines, json_pack("{s:i, s:f, s:f, s:f}", "drafts", n,
                             "ids_per_pass", d->ids[n], "experts_per_pass",
                             d->experts[n], "bytes_per_id",
                             drafted_bytes(d, n)));
    json_t *o = json_object();
    json_object_set_new(o, "trace", json_bytes(path));
    json_object_set_new(o, "drafts", lines);
    return o;
}

int replay_accepted(double chance, const char *const *paths, int count,
                    bool repair, bool json)
{
    json_t *all = json ? json_array() : NULL;
    for (int i = 0; i < count; i++) {
        struct drafted d;
        struct error error = { 0 };
        if (drafted_run(&d, paths[i], repair, chance, &error)) {
            json_decref(all);
            return session_failed(NULL, &error);
        }
        if (json)
            json_array_append_new(all, to_json(paths[i], &d));
        else
            print_one(paths[i], &d, chance);
    }
    return json ? json_print(all, JSON_INDENT(1)) : 0;
}
