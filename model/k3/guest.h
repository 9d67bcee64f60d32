/* guest.h - another network beside K3: it reads hidden states of K3's rows, and
 * shares its memory, threads and drives.
 *
 * The guest says in k3_options what it needs; k3_open plans for it, opens its
 * file and takes its memory; k3_lend hands out what it works with. It works
 * between passes, on the thread that calls k3_pass.
 *
 *     k3_options.guest -> k3_open -> k3_lend -> { k3_pass, k3_taps,
 *     stream_post on lent.stream, k3_head }
 *
 * Taps     Of every row of a pass, draft rows too, the states after some
 *          layers, before any norm: the running sum, which begins again at each
 *          snapshot, or, with `mixed`, what the next layer reads of it and the
 *          snapshots (after the last layer, what the head reads).
 * Bytes    the guest's memory is part of the arena and of the budget.
 * Threads  that of the pass.
 * Errors   a guest's loads are posted with load.alone, so that a read of its
 *          that fails is not a failure of the stream.
 */
#ifndef MODEL_K3_GUEST_H
#define MODEL_K3_GUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/ckpt.h"
#include "model/ckpt/error.h"

struct flow;
struct k3;
struct kern;
struct team;
struct stream;
struct k3_options;

struct k3_guest {
    const char     *path; /* of its weights */
    const uint32_t *tap;  /* [taps] layers, ascending */
    uint32_t taps;
    bool     mixed;
    uint64_t bytes;       /* of memory, at least */
    uint64_t resident_bytes; /* more, with which it reads no weights again: it
                              * gets them if the whole trunk is resident, too */
    uint32_t loads;       /* max posted at one time */
};

/* Floats of a row's taps, for the scratch of a pass. */
uint64_t k3_tap_floats(const struct k3_options *o, uint32_t hidden);

struct k3_lent {
    const struct kern *kern;
    struct team   *team;
    struct stream *stream;
    uint8_t       *memory;   /* guest.bytes, and resident_bytes if: */
    bool           resident;
    uint32_t       file;     /* guest.path, as segments name it */
    const struct flow *flow; /* for flow_embedding_row */
    const _Atomic bool *cancel; /* a pass was told to end */
};
void k3_lend(struct k3 *k, struct k3_lent *out);

/* A row's states in the last pass, [taps][hidden], until the next pass. */
const float *k3_taps(const struct k3 *k, uint32_t row);

/* y = W x for the rows of the head in this tile, whose frame the caller has:
 * y [rows][vocab], xp packed [rows][hidden]. -EBADMSG: values are not finite,
 * or coded bytes are damaged. */
int k3_head(struct k3 *k, uint32_t tile, const uint8_t *frame, float *y,
            const float *xp, uint32_t rows, struct error *error);

#endif
