#include "bin/batch/context.h"

#include <errno.h>

#include "bin/cli/session.h"
#include "model/k3/threads.h"

/* 1: it fits; 0: it does not. */
static int fits(uint32_t context, const struct config *c,
                const struct forecast_options *f, struct error *error)
{
    struct forecast_options g = *f;
    struct k3_shape shape;
    uint32_t threads = k3_threads_or_default(f->o.threads);
    g.o.context = context;
    g.sequence_heap = (uint64_t)FORECAST_POSITION_HEAP * context;
    struct k3_options o = forecast_session(&g, 1);
    uint32_t rows = o.rows < BATCH_CONTEXT_ROWS ? o.rows : BATCH_CONTEXT_ROWS;
    k3_option_defaults(&o);
    struct error said = { 0 };
    int err = k3_shape_of(&shape, NULL, c, &o, threads, &said);
    if (err == -ENOBUFS) /* below the floor: it does not fit */
        return 0;
    if (err)
        return error_set(error, err, "%s", said.text);
    err = k3_shape_plan(&shape, c, &o, threads);
    uint32_t planned = shape.plan.rows;
    k3_shape_free(&shape);
    return !err && planned >= rows ? 1 : err && err != -ENOBUFS ? err : 0;
}

int batch_context(uint32_t *out, uint64_t wanted, uint32_t least,
                  const struct config *c, const struct forecast_options *f,
                  struct error *error)
{
    uint32_t high = wanted < SESSION_CONTEXT_MAX ? (uint32_t)wanted
                                                 : SESSION_CONTEXT_MAX;
    *out = least;
    if (high <= least)
        return 0;
    int good = fits(high, c, f, error);
    if (good)
        *out = high;
    while (!good && high - *out > 1) { /* *out holds or is `least` */
        uint32_t middle = *out + (high - *out) / 2;
        int here = fits(middle, c, f, error);
        if (here < 0)
            return here;
        if (here)
            *out = middle;
        else
            high = middle;
    }
    return good < 0 ? good : 0;
}
