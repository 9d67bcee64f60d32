/* cmd_plan.c - sluice plan: what stays in memory, what streams and how long a
 * token takes, from the config. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/json.h"
#include "bin/cmd.h"
#include "bin/report/outlook.h"
#include "model/ckpt/cuts.h"
#include "model/ckpt/figure.h"

enum { DEFAULT_ROWS = 256,
       NETWORK_BYTES = 1250000000, NETWORK_NS = 30000 /* 10 GbE */ };

#define GIB 0x1p30

static void print_part(const char *name, uint64_t bytes, const char *about)
{
    printf("  %-16s %9s GiB%s%s\n", name, figure((double)bytes / GIB).text,
           about[0] ? "  " : "", about);
}

static void print_plan(const struct outlook *l)
{
    const struct plan *p = &l->now.plan;
    char text[128];
    printf("%s, %s a layer, %u of them a token\n\n",
           figure_count(l->c.layers, "layer").text,
           figure_count(l->c.experts, "expert").text, l->c.top_k);
    /* tables grow with the memory, so a larger plan has a higher floor */
    uint64_t least = l->rung[0].cost.plan.floor_bytes;
    printf("memory: %s GiB; the floor is %s GiB (%" PRIu64 " bytes)\n",
           figure_chosen((double)p->budget_bytes / GIB).text,
           figure((double)least / GIB).text, least);
    print_part("program", p->program_bytes, "");
    snprintf(text, sizeof text, "one sequence, %s",
             figure_count(l->o.context, "position").text);
    print_part("state", p->state_bytes, text);
    if (p->guest_bytes)
        print_part("drafter", p->guest_bytes, l->drafting.kind);
    snprintf(text, sizeof text, "%s a pass",
             figure_count(p->rows, "row").text);
    print_part("scratch", p->scratch_bytes, text);
    print_part("ring", p->ring_bytes, p->ring_bytes ? "" : "nothing streams");
    snprintf(text, sizeof text, "%s",
             figure_count(p->staging_frames, "frame").text);
    print_part("staging", p->staging_bytes, text);
    double trunk = (double)(p->resident_payload_bytes +
                            p->streamed_payload_bytes);
    snprintf(text, sizeof text, "%s %% of trunk and lm_head",
             figure_points((double)p->resident_payload_bytes / trunk).text);
    print_part("resident", p->resident_bytes, text);
    snprintf(text, sizeof text, "%s of %u experts",
             figure_count(p->expert_frames, "frame").text,
             config_moe_layers(&l->c) * l->c.experts);
    print_part("experts", p->cache_bytes, text);
    printf("\na token reads %s GB: trunk %s, experts %s, an embedding "
           "row;\nit takes %s s at %s\n\n",
           figure((double)l->now.read_bytes / 1e9).text,
           figure((double)l->now.trunk_bytes / 1e9).text,
           figure((double)l->now.expert_bytes / 1e9).text,
           figure(l->now_is.seconds).text, l->here.name);
    if (l->sidecars.used || l->parts)
        printf("coded weights are used: these bytes stand for %s GB; the "
               "trunk takes %s GB\nfor %s (%s)\n\n",
               figure((double)l->now.decoded_bytes / 1e9).text,
               figure((double)l->now.trunk_stored_bytes / 1e9).text,
               figure((double)l->now.trunk_decoded_bytes / 1e9).text,
               figure((double)l->now.trunk_stored_bytes /
                      (double)l->now.trunk_decoded_bytes).text);
    if (l->now.packed_skip)
        printf("coded %s are on a drive so slow that the shards are read "
               "faster:\nthey are not used\n\n",
               l->now.packed_skip == SIDECAR_SCALES  ? "scales"
               : l->now.packed_skip == SIDECAR_TRUNK ? "weights of the trunk"
                                                     : "weights");
    if (p->decoded_tiles)
        printf("%u resident tiles are kept decoded, since that computes "
               "faster\n\n", p->decoded_tiles);
}

static void print_advice_on_state(const struct outlook *l)
{
    char text[PLAN_STATE_TEXT];
    plan_state_text(text, &l->state);
    printf("%s\n\n", text);
}

static void print_ladder(const struct outlook *l, bool given)
{
    printf("  memory    resident    expert  GB read    s a token at\n"
           "  GiB       %% of trunk  frames  a token ");
    for (uint32_t k = 0; k < l->columns; k++)
        printf("%*s", l->column[k].drives > 1 ? 20 : 9, l->column[k].name);
    putchar('\n');
    for (uint32_t i = 0; i < l->rungs; i++) {
        const struct outlook_rung *r = &l->rung[i];
        const struct plan *p = &r->cost.plan;
        double trunk = (double)(p->resident_payload_bytes +
                                p->streamed_payload_bytes);
        bool here = given && p->budget_bytes == l->now.plan.budget_bytes;
        printf("%c %-9s %10s %7u %8s ", here ? '>' : ' ',
               figure_chosen((double)p->budget_bytes / GIB).text,
               figure_points((double)p->resident_payload_bytes / trunk).text,
               p->expert_frames,
               figure((double)r->cost.read_bytes / 1e9).text);
        for (uint32_t k = 0; k < l->columns; k++) {
            int width = l->column[k].drives > 1 ? 20 : 9;
            printf("%*s", width, figure(r->seconds[k]).text);
        }
        putchar('\n');
    }
}

static void print_cause(const struct outlook *l)
{
    const struct pass_times *t = &l->now_is;
    struct figure used = figure_percent(t->io_mean_s / t->seconds);
    switch (pass_cause(t)) {
    case CAUSE_COMPUTE:
        printf("compute takes the time (%s of %s s): faster memory and "
               "more cores\nhelp, drives do not\n", figure(t->compute_s).text,
               figure(t->seconds).text);
        return;
    case CAUSE_TURNS:
        printf("one drive at a time takes the time: a drive reads %s %% of "
               "it, each drive %s %%\n", figure_percent(t->any_share).text,
               used.text);
        return;
    case CAUSE_ONE_DRIVE:
        printf("one drive takes the time: it reads %s %% of it, each drive "
               "%s %% on average\n", figure_percent(t->io_s / t->seconds).text,
               used.text);
        return;
    case CAUSE_ROUTER:
        printf("waiting for the router takes the time: experts are known when "
               "it has run,\nand drives read %s %% of the time\n", used.text);
        return;
    case CAUSE_BYTES:
        printf("bytes take the time: drives read %s %% of it\n", used.text);
        return;
    default:
        printf("reads and compute take about as long: %s s of compute in "
               "%s s\n", figure(t->compute_s).text, figure(t->seconds).text);
    }
}

static void print_drives(const struct outlook *l)
{
    struct figure gbps = figure_chosen(
        (double)l->here.drive[l->here.drives - 1].bytes_per_s / 1e9);
    if (l->here.drives > 1 && l->here.layout == K3_SHARDS)
        printf("  the model in parts over these drives saves %s s a token,\n"
               "  a copy of it on each (--mirror) %s s\n",
               figure(fmax(l->parts_s, 0)).text,
               figure(fmax(l->mirrors_s, 0)).text);
    if (l->drive_s < 0)
        printf("  another drive of %s GB/s costs %s s a token: its ring "
               "takes the memory\n  of resident trunk\n", gbps.text,
               figure(-l->drive_s).text);
    else
        printf("  another drive of %s GB/s saves %s s a token\n", gbps.text,
               figure(l->drive_s).text);
    if (l->here.layout == K3_SHARDS)
        printf("  another drive and the model in parts save %s s a token\n",
               figure(fmax(l->drive_parts_s, 0)).text);
}

static void print_advice(const struct outlook *l)
{
    const struct plan *p = &l->now.plan;
    double gib = (double)l->more_bytes / GIB;
    putchar('\n');
    print_cause(l);
    printf("\nbest buy next, from %s GiB and %s (%s s a token):\n",
           figure_chosen((double)p->budget_bytes / GIB).text, l->here.name,
           figure(l->now_is.seconds).text);
    if (!p->streamed_tiles)
        puts("  the trunk is resident; more memory would hold more experts, "
             "which\n  sluice replay can measure");
    else
        printf("  %s GiB more memory saves %s s a token, %s s a GiB\n",
               figure_chosen(gib).text, figure(l->more_s).text,
               figure(l->more_s / gib).text);
    print_drives(l);
    if (l->batch)
        plan_batch_print(l->batch);
    if (l->nodes.nodes)
        plan_nodes_print(&l->nodes);
    puts("\nassumes:");
    for (uint32_t i = 0; i < l->notes; i++)
        printf("  %s\n", l->note[i]);
}

static const char *read_layout(void *arg, const char *value)
{
    enum k3_layout *layout = arg;
    for (int i = 0; i < OUTLOOK_LAYOUTS; i++)
        if (!strcmp(value, outlook_layout((enum k3_layout)i))) {
            *layout = (enum k3_layout)i;
            return NULL;
        }
    return "is none of shards, parts and mirrors";
}

static const char *read_network(void *arg, const char *value)
{
    struct k3_network *n = arg;
    struct session_args read = { 0 };
    const char *wrong = session_drive(&read, value);
    if (!wrong)
        *n = (struct k3_network){ (double)read.drive[0].bytes_per_s,
                                  read.drive[0].latency_ns };
    return wrong;
}

/* Check what was asked for, and say it. */
static int plan(const struct opt_command *cmd, struct outlook_args *a,
                const char *model)
{
    struct k3_options o;
    struct error error = { 0 };
    if (a->compute_s < 0)
        return opt_usage_error(cmd, "--compute is not negative");
    if (a->nodes == 1 || a->nodes > CUTS_PARTS_MAX)
        return opt_usage_error(cmd, "--nodes is from 2 to %d",
                               CUTS_PARTS_MAX);
    const char *wrong = session_options(&a->s, &o);
    if (wrong)
        return opt_usage_error(cmd, "%s", wrong);
    struct outlook *l = calloc(1, sizeof *l);
    if (!l) {
        fputs("sluice: no memory for a plan\n", stderr);
        return 1;
    }
    l->o = o;
    l->o.logits = 1; /* as a run without --logits */
    int bad = 0, err = outlook_fill(l, model, a, &error);
    if (!err && a->json) {
        bad = json_print(outlook_json(l), JSON_INDENT(1));
    } else if (!err) {
        print_plan(l);
        print_advice_on_state(l);
        if (l->drafter)
            plan_drafter_print(&l->drafting);
        print_ladder(l, !l->small);
        print_advice(l);
    }
    outlook_free(l);
    free(l);
    return err ? session_failed(model, &error) : bad;
}

int cmd_plan(int argc, char **argv)
{
    struct outlook_args a = { .network = { NETWORK_BYTES, NETWORK_NS } };
    session_defaults(&a.s);
    a.s.rows = DEFAULT_ROWS;
    const struct opt table[] = {
        { "memory", 'm', OPT_SIZE, &a.s.memory, "SIZE",
          "memory of a run, like 32G; default: what a run would take here, or "
          "the floor if that is more", NULL },
        { "context", 'c', OPT_UINT, &a.s.context, "N",
          "the longest sequence, prompt and new tokens; default 4096", NULL },
        { "threads", 't', OPT_UINT, &a.s.threads, "N",
          "compute threads; default: one a physical core here", NULL },
        { "rows", 0, OPT_UINT, &a.s.rows, "N",
          "max rows in a pass; default 256, fewer if memory is short",
          NULL },
        { "policy", 0, OPT_TEXT, &a.s.policy, "NAME",
          "of the run, as in sluice run; default dhd", NULL },
        { "prefetch", 0, OPT_TEXT, &a.s.prefetch, "NAME",
          "of the run, as in sluice run; default auto", NULL },
        { "simulate-drive", 0, OPT_CALL, &a.s, "GBPS[,US]",
          "a drive of GBPS GB/s and US microseconds of latency; repeat for "
          "more", session_drive },
        { "device", 0, OPT_CALL, &a.s, "GBPS[,US]", NULL, session_drive },
        PARTS_OPTION(&a.s.parts),
        { "layout", 0, OPT_CALL, &a.layout, "shards|parts|mirrors",
          "how several drives share the model: a shard on one drive, a part of "
          "every tensor on each, or a copy of it all (--mirror); default "
          "shards", read_layout },
        { "packed", 0, OPT_TEXT, &a.s.packed, "auto|off|require|DIR",
          "coded weights of the run, as in sluice run; default auto", NULL },
        { "resident", 0, OPT_CALL, &a.s, "auto|coded|decoded",
          "how resident coded weights are kept, as in sluice run; default auto",
          session_resident },
        { "compute", 0, OPT_REAL, &a.compute_s, "SECONDS",
          "compute time of a token; default: its weights at 100 GB/s", NULL },
        { "drafter", 0, OPT_TEXT, &a.s.drafter, "DIR",
          "a trained drafter of the run, as in sluice run, and what it is "
          "worth; its config and header are enough", NULL },
        { "batch", 0, OPT_FLAG, &a.batch, NULL,
          "also the tokens a second for 1 to 256 sequences", NULL },
        { "nodes", 0, OPT_UINT, &a.nodes, "N",
          "also one model shared by N such machines (mpirun), and as many "
          "copies of the program", NULL },
        { "network", 0, OPT_CALL, &a.network, "GBPS[,US]",
          "between these machines; default 1.25,30: 10 GbE", read_network },
        { "json", 0, OPT_FLAG, &a.json, NULL, "print JSON", NULL },
        NAMES_RUN,
    };
    const struct opt_command cmd = {
        "sluice plan MODEL [-m SIZE] [--simulate-drive GBPS[,US]]... [options]",
        "Say what would stay in memory, what would stream, and how long a "
        "token would take. Needs only the model's config.json.",
        table, sizeof table / sizeof *table };
    const char *model = NULL;
    int ended = opt_parse_one(&cmd, argc, argv, &model,
                              "plan needs the folder of a model");
    if (ended >= 0)
        return ended;
    return plan(&cmd, &a, model);
}
