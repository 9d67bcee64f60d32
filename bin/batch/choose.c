#include "bin/batch/choose.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3/coded.h"
#include "model/sim/machine.h"
#include "model/sim/token_cost.h"

enum { KERNELS_SHARE = 4 }; /* of the memory, to time the kernels in */

/* A drive that cannot be measured. */
static const struct paced_drive unknown = { 3000000000, 100000 };

int choose_measure(struct forecast_options *f, const struct session_args *a,
                   const char *model, const struct config *c,
                   struct error *error)
{
    struct forecast_machine *m = &f->machine;
    uint64_t bytes = f->o.memory_bytes / KERNELS_SHARE;
    if (bytes > token_weight_bytes(c))
        bytes = token_weight_bytes(c);
    int err = machine_kernels(m, f->o.threads, bytes,
                              f->o.parts || coded_files(f->o.sidecars), error);
    m->drives = a->drives;
    memcpy(m->drive, a->drive, a->drives * sizeof *a->drive);
    if (!err && !a->drives)
        err = machine_drives(m, model, f->o.parts, a->io, error);
    if (!m->drives) {
        m->drive[0] = unknown;
        m->drives = 1;
    }
    return err;
}

uint32_t choose_sequences(struct forecast *out,
                          const struct forecast_options *f,
                          const struct config *c, struct k3_options *one,
                          uint64_t requests, uint64_t asked,
                          struct error *error)
{
    struct k3_shape shape;
    uint32_t max = CHOOSE_MAX, best;
    if (asked)
        max = (uint32_t)asked;
    else if (requests && requests < max)
        max = (uint32_t)requests;
    struct forecast *curve = calloc(max, sizeof *curve);
    k3_option_defaults(one);
    int err = curve ? k3_shape_of(&shape, NULL, c, one, f->machine.threads,
                                  error)
                    : error_set(error, -ENOMEM, "no memory for a forecast");
    if (err) {
        free(curve);
        return 0;
    }
    struct forecast_options all = *f;
    all.one = asked != 0;
    forecast_curve(curve, max, &shape, c, &all, error);
    best = asked ? max - 1 : forecast_best(curve, max);
    if (!error->code && (best == max || !curve[best].fits))
        error_set(error, -ENOBUFS,
                  "a memory budget of %" PRIu64 " bytes has "
                  "no room for %" PRIu32 " sequences of %" PRIu32 " positions: "
                  "the floor is %" PRIu64 " bytes",
                  f->o.memory_bytes, best == max ? 1 : best + 1, f->o.context,
                  curve[best == max ? 0 : best].plan.floor_bytes);
    else if (!error->code)
        *out = curve[best];
    k3_shape_free(&shape);
    free(curve);
    return error->code ? 0 : best + 1;
}
