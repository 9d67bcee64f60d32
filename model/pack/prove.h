/* prove.h - everything in a sidecar, decoded and compared with its shard.
 *
 *     prove_sidecar (any sidecar, any time)
 *
 * Threads  as many as `jobs` say; `found` is called by one at a time.
 * Errors   errnos, -ENOMEM with a sentence. What is wrong with the sidecar is
 *          not an error but a finding.
 * Cost     reads the file and what it was made from.
 */
#ifndef MODEL_PACK_PROVE_H
#define MODEL_PACK_PROVE_H

#include "model/pack/sidecar.h"
#include "model/pack/work.h"

struct kern;

struct prove_options {
    uint32_t jobs; /* from 1 to WORK_JOBS_MAX; half of them wait for drives */
    const struct kern *kern;
    /* What is wrong, a sentence without the path. */
    void (*found)(void *arg, const char *text);
    void (*progress)(void *arg, uint64_t bytes); /* just done; or NULL */
    void  *arg;
};

/* Bytes that proving it reads, of both files. */
uint64_t prove_bytes(const struct sidecar *s);
/* Bytes of memory that each job takes. */
uint64_t prove_job_bytes(const struct sidecar *s);
int prove_sidecar(const struct sidecar *s, const char *shard,
                  const struct prove_options *o, struct error *error);

#endif
