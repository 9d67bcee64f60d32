#include "model/sim/machine.h"

#include <errno.h>
#include <string.h>

#include "compute/kern.h"
#include "compute/team.h"
#include "io/reader.h"
#include "model/ckpt/shards.h"
#include "model/k3/rates.h"
#include "model/k3/threads.h"

enum {
    MAX_BYTES = 256 << 20,
    LEAST_BYTES = 1 << 20,
    IN_FLIGHT_BYTES = 32 << 20,
    LATENCY_NS = 100 * 1000, /* of a drive whose rate was measured */
};

int machine_kernels(struct forecast_machine *m, uint32_t threads,
                    uint64_t memory_bytes, bool coded, struct error *error)
{
    const uint32_t many = RATES_ROWS_MAX;
    enum rates_form trunk = coded ? RATES_CODED : RATES_BF16;
    struct kern kern;
    struct team *team;
    struct rates *r;
    int err = team_open(&team, k3_threads_or_default(threads));
    if (err)
        return error_set(error, err, "the threads could not be started");
    kern_init(&kern, ISA_COUNT - 1);
    m->threads = team_threads(team);
    uint64_t bytes = memory_bytes < MAX_BYTES ? memory_bytes : MAX_BYTES;
    do { /* the process may have less than the budget (ulimit -v) */
        err = rates_open(&r, &kern, team, bytes, coded);
        bytes /= 4;
    } while (err == -ENOMEM && bytes >= LEAST_BYTES);
    if (err) {
        error_set(error, err, "no memory to time the kernels");
    } else {
        m->trunk_bytes = rates_of(r, trunk, 1);
        /* two bytes and two operations a weight */
        m->trunk_ops = rates_of(r, trunk, many) * many;
        m->expert_bytes = rates_of(r, RATES_MXFP4, 1);
        m->expert_ops = rates_of(r, RATES_MXFP4, many) * many * 2 * 8 / 4.25;
        rates_close(r);
    }
    team_close(team);
    return err;
}

uint32_t machine_of_reader(struct paced_drive *drive,
                           const struct reader_facts *f)
{
    for (uint32_t d = 0; d < f->drives; d++) {
        const struct reader_drive_facts *is = &f->drive[d];
        uint64_t rate = is->paced_bytes_per_s ? is->paced_bytes_per_s
                                              : is->raw_bytes_per_s;
        if (!rate)
            return 0;
        drive[d] = (struct paced_drive){ rate, LATENCY_NS };
    }
    return f->drives;
}

double machine_bytes_per_s(const struct forecast_machine *m)
{
    double all = 0;
    for (uint32_t d = 0; d < m->drives; d++)
        all += (double)m->drive[d].bytes_per_s;
    return all;
}

/* The files of parts as a list, for shards_free. */
static int list_parts(struct shards *s, const struct parts *p)
{
    *s = (struct shards){ .path = calloc(p->files, sizeof *s->path) };
    for (uint32_t f = 0; s->path && f < p->files; f++) {
        s->path[f] = strdup(parts_path(p, f));
        if (!s->path[f])
            break;
        s->count++;
    }
    return s->count == p->files ? 0 : -ENOMEM;
}

int machine_drives(struct forecast_machine *m, const char *dir,
                   const struct parts *parts, const char *method,
                   struct error *error)
{
    struct shards s;
    struct reader *r = NULL;
    struct reader_facts f;
    uint32_t bad = 0;
    int err = parts ? list_parts(&s, parts) : shards_list(&s, dir, error);
    if (err) {
        shards_free(&s);
        return error_set(error, err, "no memory to measure the drives");
    }
    struct reader_options o = {
        .method = method, .paths = (const char *const *)s.path,
        .files = s.count, .in_flight_bytes = IN_FLIGHT_BYTES };
    err = reader_open(&r, &o, &bad);
    if (err) {
        error_set(error, err, "%s: %s", bad < s.count ? s.path[bad] : dir,
                  strerror(-err));
    } else {
        reader_facts(r, &f);
        m->drives = machine_of_reader(m->drive, &f);
    }
    reader_close(r);
    shards_free(&s);
    return err;
}
