#include "bin/report/report_drafts.h"

#include "model/ckpt/figure.h"

#include <inttypes.h>
#include <stdio.h>

/* Rows and accepted ones up to the last place that had any. */
static json_t *places(const struct batch_drafts *d)
{
    json_t *rows = json_array(), *accepted = json_array();
    uint32_t n = DRAFT_FIXED_MAX;
    while (n && !d->drafted[n - 1])
        n--;
    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(rows, json_integer((json_int_t)d->drafted[i]));
        json_array_append_new(accepted,
                              json_integer((json_int_t)d->accepted[i]));
    }
    return json_pack("{s:o, s:o}", "rows", rows, "accepted", accepted);
}

void report_drafts(json_t *report, const struct sluice *s)
{
    const struct batch_counts *c = knobs_counts(s);
    const struct dspark *d = knobs_drafter(s);
    json_t *from = places(&c->source[BATCH_FROM_DRAFTER]);
    if (d) {
        struct dspark_facts f;
        dspark_facts(d, &f);
        json_t *taken = json_pack(
            "{s:s, s:I, s:I, s:I, s:f, s:b, s:I, s:I, s:b}", "kind",
            dspark_kind_name(dspark_config(d)->kind), "drafts",
            (json_int_t)f.drafts, "sweeps", (json_int_t)f.sweeps, "read_bytes",
            (json_int_t)f.read_bytes, "seconds", (double)f.ns / 1e9,
            "resident", f.resident, "draft_bytes", (json_int_t)f.sweep_bytes,
            "memory_bytes", (json_int_t)f.memory_bytes, "failed",
            dspark_failure(d) != NULL);
        json_object_update(from, taken);
        json_decref(taken);
    }
    json_object_set_new(report, "drafts",
                        json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "rows",
                                  (json_int_t)c->drafted, "accepted",
                                  (json_int_t)c->accepted, "forced_ids",
                                  (json_int_t)c->forced, "text",
                                  places(&c->source[BATCH_FROM_TEXT]), "form",
                                  places(&c->source[BATCH_FROM_FORM]),
                                  "drafter", from));
}

void report_drafts_say(const struct sluice *s)
{
    const struct dspark *d = knobs_drafter(s);
    const struct batch_drafts *from =
        &knobs_counts(s)->source[BATCH_FROM_DRAFTER];
    uint64_t rows = 0, right = 0;
    struct dspark_facts f;
    if (!d)
        return;
    dspark_facts(d, &f);
    for (uint32_t i = 0; i < DSPARK_BLOCK; i++) {
        rows += from->drafted[i];
        right += from->accepted[i];
    }
    fprintf(stderr, "drafter: %s, %s, %" PRIu64 " right; read %s GB (%s), %s "
            "s\n", figure_count(f.drafts, "draft").text,
            figure_count(rows, "row").text, right,
            figure((double)f.read_bytes / 1e9).text,
            f.resident ? "resident" : "streamed",
            figure((double)f.ns / 1e9).text);
}
