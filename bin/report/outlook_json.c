/* outlook_json.c - what sluice plan says, as JSON. */
#include "bin/cli/json.h"
#include "bin/report/outlook.h"
#include "bin/report/report.h"

static json_t *cost_object(const struct token_cost *t)
{
    json_t *o = json_object();
    set_int(o, "read_bytes_per_token", t->read_bytes);
    set_int(o, "trunk_bytes_per_token", t->trunk_bytes);
    set_int(o, "expert_bytes_per_token", t->expert_bytes);
    set_int(o, "embed_bytes_per_token", t->embed_bytes);
    set_int(o, "decoded_bytes_per_token", t->decoded_bytes);
    set_int(o, "trunk_stored_bytes", t->trunk_stored_bytes);
    set_int(o, "trunk_decoded_bytes", t->trunk_decoded_bytes);
    set_int(o, "coded_not_used", t->packed_skip); /* bits: 1 trunk, 2 scales */
    return o;
}

/* A name for the drives; no forecast is made from it. */
static double sum_gbps(const struct outlook_drives *k)
{
    double gbps = 0;
    for (uint32_t d = 0; d < k->drives; d++)
        gbps += (double)k->drive[d].bytes_per_s / 1e9;
    return gbps;
}

static json_t *gbps_array(const struct outlook_drives *k)
{
    json_t *list = json_array();
    for (uint32_t d = 0; d < k->drives; d++)
        json_array_append_new(
            list, json_real((double)k->drive[d].bytes_per_s / 1e9));
    return list;
}

static json_t *ladder_array(const struct outlook *l)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < l->rungs; i++) {
        const struct outlook_rung *r = &l->rung[i];
        json_t *o = report_plan(&r->cost.plan);
        json_t *cost = cost_object(&r->cost), *forecast = json_array();
        json_object_update(o, cost);
        json_decref(cost);
        for (uint32_t k = 0; k < l->columns; k++)
            json_array_append_new(
                forecast, json_pack("{s:i, s:f, s:f}", "drives",
                                    (int)l->column[k].drives, "gbps",
                                    sum_gbps(&l->column[k]),
                                    "seconds_per_token", r->seconds[k]));
        json_object_set_new(o, "forecast", forecast);
        json_array_append_new(array, o);
    }
    return array;
}

json_t *outlook_json(const struct outlook *l)
{
    /* The plan twice: its fields in the root, and as the object that a report
     * has. */
    json_t *root = report_plan(&l->now.plan), *cost = cost_object(&l->now);
    json_t *assumes = json_array();
    json_object_update(root, cost);
    json_decref(cost);
    json_object_set_new(root, "plan", report_plan(&l->now.plan));
    json_object_set_new(root, "threads", json_integer(l->o.threads));
    json_object_set_new(root, "context", json_integer(l->o.context));
    set_real(root, "gbps", sum_gbps(&l->here));
    json_object_set_new(root, "drive_gbps", gbps_array(&l->here));
    json_object_set_new(root, "layout",
                        json_string(outlook_layout(l->here.layout)));
    json_object_set_new(root, "drives", json_integer(l->here.drives));
    set_real(root, "io_s", l->now.io_s);
    set_real(root, "compute_s", l->compute_s);
    set_real(root, "seconds_per_token", l->now_is.seconds);
    json_object_set_new(root, "cause",
                        json_string(cause_name(pass_cause(&l->now_is))));
    set_real(root, "drives_used_share",
             l->now_is.io_mean_s / l->now_is.seconds);
    set_real(root, "any_drive_busy_share", l->now_is.any_share);
    json_object_set_new(root, "state", plan_state_json(&l->state));
    json_object_set_new(root, "ladder", ladder_array(l));
    json_object_set_new(
        root, "best_buy",
        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "more_memory_bytes",
                  (json_int_t)l->more_bytes, "more_memory_saves_s", l->more_s,
                  "another_drive_saves_s", l->drive_s, "parts_save_s",
                  l->parts_s, "another_drive_and_parts_save_s",
                  l->drive_parts_s, "mirrors_save_s", l->mirrors_s));
    if (l->batch)
        json_object_set_new(root, "batch", plan_batch_json(l->batch));
    if (l->nodes.nodes)
        json_object_set_new(root, "nodes", plan_nodes_json(&l->nodes));
    for (uint32_t i = 0; i < l->notes; i++)
        json_array_append_new(assumes, json_bytes(l->note[i]));
    json_object_set_new(root, "assumes", assumes);
    if (l->drafter)
        json_object_set_new(root, "drafter", plan_drafter_json(&l->drafting));
    return root;
}
