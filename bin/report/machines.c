#include "bin/report/machines.h"

#include <inttypes.h>
#include <stdio.h>

#include "bin/cli/json.h"
#include "model/ckpt/figure.h"
#include "model/k3/shared.h"

void machines_report(json_t *report, const struct k3 *k)
{
    uint32_t count;
    const struct k3_machine *m = k3_machines(k, &count);
    json_t *list = m ? json_array() : NULL;
    for (uint32_t r = 0; m && r < count; r++, m++) {
        json_t *o = json_object();
        json_object_set_new(o, "host", json_string(m->host));
        set_int(o, "read_bytes", m->read_bytes);
        set_int(o, "trunk_bytes", m->trunk_bytes);
        set_int(o, "expert_bytes", m->expert_bytes);
        set_int(o, "resident_read_bytes", m->resident_bytes);
        set_real(o, "device_bytes_per_s", m->bytes_per_s);
        set_int(o, "passes", m->passes);
        set_int(o, "rows", m->rows);
        set_seconds(o, "pass_s", m->pass_ns);
        set_seconds(o, "wait_drives_s", m->wait_drive_ns);
        set_seconds(o, "wait_ranks_s", m->wait_ns);
        set_seconds(o, "network_s", m->gather_ns);
        set_int(o, "gathers", m->gathers);
        set_int(o, "sent_bytes", m->sent_bytes);
        set_int(o, "received_bytes", m->received_bytes);
        set_int(o, "budget_bytes", m->budget_bytes);
        set_int(o, "planned_bytes", m->planned_bytes);
        json_array_append_new(list, o);
    }
    if (list) {
        json_object_set_new(report, "machines", list);
        json_object_set_new(report, "layers",
                            json_integer(k3_config(k)->layers));
    }
}

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

void machines_say(const json_t *report)
{
    const json_t *list = json_object_get(report, "machines"), *o;
    size_t i, slowest = 0;
    if (!list)
        return;
    fprintf(stderr, "rank  %-20s  GB/pass  drives s  ranks s  network s  "
                    "KB/row/layer\n", "host");
    json_array_foreach(list, i, o) {
        double passes = number(o, "passes"), rows = number(o, "rows");
        double layers = number(report, "layers");
        fprintf(stderr, "%4zu  %-20.20s  %7s  %8s  %7s  %9s  %12s\n",
                i, json_string_value(json_object_get(o, "host")),
                figure(passes > 0 ? number(o, "read_bytes") / passes / 1e9
                                  : 0).text,
                figure(number(o, "wait_drives_s")).text,
                figure(number(o, "wait_ranks_s")).text,
                figure(number(o, "network_s")).text,
                figure(rows > 0 ? number(o, "received_bytes") / rows / layers /
                                      1e3
                                : 0).text);
        if (number(o, "wait_ranks_s") <
            number(json_array_get(list, slowest), "wait_ranks_s"))
            slowest = i;
    }
    o = json_array_get(list, slowest);
    fprintf(stderr, "rank %zu (%s) was the slowest: it waited for the others "
                    "%s s of %s\n", slowest,
            json_string_value(json_object_get(o, "host")),
            figure(number(o, "wait_ranks_s")).text,
            figure(number(o, "pass_s")).text);
}
