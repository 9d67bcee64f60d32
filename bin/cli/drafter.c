#include "bin/cli/drafter.h"

#include <inttypes.h>
#include <stdio.h>

#include "bin/cli/opt.h"
#include "bin/cli/outputs.h"
#include "bin/cli/session.h"
#include "model/ckpt/figure.h"
#include "model/dspark/dspark.h"
#include "model/dspark/inspect.h"

int drafter_doctor(const char *dir)
{
    struct dspark_about a;
    struct error error = { 0 };
    if (dspark_inspect(&a, dir, &error)) {
        printf("fail  drafter   %s\n", error.text);
        return 1;
    }
    const struct dspark_config *c = &a.config;
    printf("ok    drafter   %s, for a model of %" PRIu32 " layers, hidden size "
           "%" PRIu32 ", %" PRIu32 " ids\n", dspark_kind_name(c->kind),
           a.model_layers, c->hidden, c->vocab);
    printf("ok    tensors   %" PRIu32 ", %s GB of which %s are read\n",
           a.tensors, figure((double)a.file_bytes / 1e9).text,
           figure((double)a.used_bytes / 1e9).text);
    printf("ok    taps      %s, after layers",
           c->mixed ? "what the next layer reads" : "running sums");
    for (uint32_t i = 0; i < c->taps; i++)
        printf("%s %" PRIu32, i ? "," : "", c->tap[i]);
    printf("\nuse: run MODEL --drafter %s, and plan the same\nnext: %s verify "
           "'%s'\n", shown(dir).text, opt_program, shown(dir).text);
    return 0;
}

int drafter_verify(const char *dir)
{
    struct dspark_about a;
    struct error error = { 0 };
    if (dspark_verify(dir, &error) || dspark_inspect(&a, dir, &error)) {
        fprintf(stderr, "sluice: %s\n", error.text);
        return 1;
    }
    printf("%s: a drafter, %s: %" PRIu32 " tensors, %s GB, all values "
           "finite\n", shown(dir).text, dspark_kind_name(a.config.kind),
           a.tensors,
           figure((double)a.file_bytes / 1e9).text);
    return 0;
}

int drafter_memory(uint64_t *one, uint64_t *more, const char *dir,
                   const struct config *model, uint32_t context,
                   uint32_t threads, struct error *error)
{
    uint64_t bytes[2] = { 0 };
    for (uint32_t i = 0; i < 2; i++) {
        struct dspark_options o = { .context = context, .sequences = 1 + i,
                                    .threads = threads };
        struct dspark *d;
        int err = dspark_open(&d, dir, model, &o, error);
        if (err)
            return err;
        bytes[i] = dspark_guest(d)->bytes;
        dspark_close(d);
    }
    *one = bytes[0];
    *more = bytes[1] - bytes[0];
    return 0;
}
