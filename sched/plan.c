#include "sched/plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    PAGE = 4096,
    RING_TILES = 48, /* the ring, in largest tiles: evens out a layer of K3
                      * whatever the ratio of its reads to its compute */
    ROW_SHARE = 8,       /* rows may take an eighth above the floor */
    STAGING_SHARE = 16,
};

struct drive_bytes {
    uint64_t total, chosen;
    uint64_t stretch; /* most bytes in a row before another drive's turn */
};

/* Of all drives. */
struct trunk_bytes {
    uint64_t always, rest; /* resident at every budget; the others */
    uint64_t largest;      /* tile of the others */
};

static struct trunk_bytes sum_drives(const struct plan_input *in,
                                     struct drive_bytes *drive)
{
    struct trunk_bytes sum = { 0 };
    uint64_t stretch = 0;
    memset(drive, 0, in->drives * sizeof *drive);
    for (uint32_t t = 0; t < in->tile_count; t++) {
        const struct plan_tile *tile = &in->tiles[t];
        assert(tile->drive < in->drives);
        struct drive_bytes *d = &drive[tile->drive];
        if (tile->always) {
            sum.always += tile->frame_bytes;
            continue;
        }
        sum.rest += tile->frame_bytes;
        if (tile->frame_bytes > sum.largest)
            sum.largest = tile->frame_bytes;
        bool goes_on = t && in->tiles[t - 1].drive == tile->drive;
        stretch = tile->frame_bytes + (goes_on ? stretch : 0);
        if (stretch > d->stretch)
            d->stretch = stretch;
        d->total += tile->frame_bytes;
    }
    return sum;
}

/* RING_TILES of the largest tile, or what the caller wants at least, but never
 * more than all that streams. */
static uint64_t smallest_ring(const struct plan_input *in,
                              const struct trunk_bytes *trunk)
{
    uint64_t bytes = trunk->largest * RING_TILES;
    if (bytes < in->ring_min_bytes)
        bytes = in->ring_min_bytes / PAGE * PAGE;
    return bytes < trunk->rest ? bytes : trunk->rest;
}

/* Divide `bytes` of resident trunk over the drives so that what each still
 * reads for a row takes equally long: pour it where the bytes last longest. */
static void share_drives(const struct plan_input *in,
                         struct drive_bytes *drive, uint64_t bytes)
{
    const uint64_t spoon = bytes / 1024 + 1;
    while (bytes) {
        uint32_t worst = 0;
        double longest = -1;
        for (uint32_t d = 0; d < in->drives; d++) {
            double rate = in->rate[d] > 0 ? in->rate[d] : 1;
            double left = ((double)(drive[d].total - drive[d].chosen) +
                           in->expert_bytes[d]) / rate;
            if (left > longest && drive[d].chosen < drive[d].total) {
                longest = left;
                worst = d;
            }
        }
        if (longest < 0)
            return;
        uint64_t part = spoon < bytes ? spoon : bytes;
        uint64_t room = drive[worst].total - drive[worst].chosen;
        part = part < room ? part : room;
        drive[worst].chosen += part;
        bytes -= part;
    }
}

/* Choose resident tiles evenly over the circle, drive by drive: a tile is taken
 * whenever the bytes passed so far, times the share, are ahead of the bytes
 * taken. Returns the bytes taken. */
static uint64_t choose(const struct plan_input *in, struct drive_bytes *drive,
                       bool *resident)
{
    uint64_t taken = 0;
    for (uint32_t d = 0; d < in->drives; d++) {
        uint64_t passed = 0, own = 0;
        double share = drive[d].total ? (double)drive[d].chosen /
                                            (double)drive[d].total
                                      : 0;
        for (uint32_t t = 0; t < in->tile_count; t++) {
            const struct plan_tile *tile = &in->tiles[t];
            if (tile->drive != d || tile->always || resident[t])
                continue;
            passed += tile->frame_bytes;
            if (own + tile->frame_bytes <= drive[d].chosen &&
                (double)(own + tile->frame_bytes / 2) <=
                    share * (double)passed) {
                resident[t] = true;
                own += tile->frame_bytes;
            }
        }
        taken += own;
    }
    return taken;
}

static void take_first(const struct plan_input *in, struct drive_bytes *drive,
                       bool *resident, uint64_t *left, uint64_t *taken)
{
    uint64_t want = 0;
    for (uint32_t t = 0; t < in->tile_count; t++)
        if (in->tiles[t].first && !in->tiles[t].always)
            want += in->tiles[t].frame_bytes;
    if (want > *left / 4) /* the rest earns more when memory is short */
        return;
    for (uint32_t t = 0; t < in->tile_count; t++)
        if (in->tiles[t].first && !in->tiles[t].always) {
            resident[t] = true;
            drive[in->tiles[t].drive].total -= in->tiles[t].frame_bytes;
        }
    *left -= want;
    *taken += want;
}

/* What a longer ring is worth. Several drives work at one time only where it
 * reaches from the tiles of one to those of the next: it must bridge a stretch
 * of all but one. */
static uint64_t ring_more(const struct plan_input *in,
                          const struct drive_bytes *drive, uint64_t extra,
                          uint64_t left, uint64_t trunk)
{
    double streamed = 1 - (double)left / (double)trunk;
    uint64_t longest = 0, sum = 0, max = extra / 2;
    for (uint32_t d = 0; d < in->drives; d++) {
        sum += drive[d].stretch;
        longest = drive[d].stretch > longest ? drive[d].stretch : longest;
    }
    uint64_t more = (uint64_t)(streamed * (double)(sum - longest));
    return (more < max ? more : max) / PAGE * PAGE;
}

/* Memory of one expert frame, with its place in the tables. */
static uint64_t frame_cost(const struct plan_input *in)
{
    return in->expert_frame_bytes + in->frame_heap_bytes;
}

/* Keep tiles decoded, in their order, up to the first that does not fit. */
static uint64_t take_decoded(struct plan *p, const struct plan_input *in,
                             uint64_t left)
{
    uint64_t taken = 0;
    for (uint32_t t = 0; t < in->tile_count; t++) {
        const struct plan_tile *tile = &in->tiles[t];
        if (!tile->decoded_bytes)
            continue;
        uint64_t more = tile->decoded_bytes - tile->frame_bytes;
        if (taken + more > left)
            break;
        taken += more;
        p->decoded_tiles++;
    }
    p->resident_bytes += taken;
    return taken;
}

/* What is above the floor buys more of everything, in the order of the head
 * comment. */
static void divide_rest(struct plan *p, const struct plan_input *in,
                        uint64_t trunk, struct drive_bytes *drive,
                        bool *resident)
{
    uint64_t left = in->budget_bytes - p->floor_bytes, extra = left;
    if (in->rows > p->rows && in->row_bytes) {
        uint64_t more = extra / ROW_SHARE / in->row_bytes;
        more = more < in->rows - p->rows ? more : in->rows - p->rows;
        p->rows += (uint32_t)more;
        p->scratch_bytes += more * in->row_bytes;
        left -= more * in->row_bytes;
    }
    if (in->expert_layers) {
        uint64_t more = extra / STAGING_SHARE / frame_cost(in);
        more = more < in->top_k ? more : in->top_k;
        p->staging_frames += (uint32_t)more;
        left -= more * frame_cost(in);
    }
    if (left + p->ring_bytes >= trunk) { /* all of it: no ring is needed */
        for (uint32_t t = 0; t < in->tile_count; t++)
            resident[t] = true;
        p->resident_bytes += trunk;
        left = left + p->ring_bytes - trunk;
        p->ring_bytes = 0;
        left -= take_decoded(p, in, left);
    } else {
        uint64_t more = ring_more(in, drive, extra, left, trunk);
        left -= more;
        p->ring_bytes += more;
        take_first(in, drive, resident, &left, &p->resident_bytes);
        share_drives(in, drive, left);
        uint64_t taken = choose(in, drive, resident);
        p->resident_bytes += taken;
        left -= taken;
    }
    if (in->keeps_experts && in->expert_frame_bytes && !p->ring_bytes) {
        uint64_t frames = left / frame_cost(in);
        p->expert_frames = (uint32_t)(frames < in->expert_blocks
                                          ? frames
                                          : in->expert_blocks);
    }
}

int plan_make(struct plan *p, bool *resident, const struct plan_input *in)
{
    assert(in->scratch_bytes % PAGE == 0 && in->row_bytes % PAGE == 0);
    assert(in->sequences >= 1 && in->budget_bytes <= INT64_MAX);
    assert(!in->expert_layers || (in->top_k && in->expert_frame_bytes));
    assert(in->drives >= 1 && in->drives <= DRIVES_MAX);
    struct drive_bytes drive[DRIVES_MAX];
    struct trunk_bytes trunk = sum_drives(in, drive);
    memset(p, 0, sizeof *p);
    p->budget_bytes = in->budget_bytes;
    p->program_bytes = in->program_bytes;
    p->guest_bytes = in->guest_bytes;
    p->sequences = in->sequences;
    p->state_bytes = in->state_bytes * in->sequences;
    p->rows = in->rows < in->sequences ? in->rows : in->sequences;
    p->scratch_bytes = in->scratch_bytes +
                       (p->rows ? p->rows : 1) * in->row_bytes;
    p->ring_bytes = smallest_ring(in, &trunk);
    p->staging_frames = in->expert_layers ? in->top_k : 0;
    p->resident_bytes = trunk.always;
    p->floor_bytes = p->program_bytes + p->guest_bytes + p->state_bytes +
                     p->scratch_bytes +
                     p->ring_bytes + p->resident_bytes +
                     p->staging_frames * frame_cost(in);
    for (uint32_t t = 0; t < in->tile_count; t++)
        resident[t] = in->tiles[t].always;
    if (in->budget_bytes < p->floor_bytes)
        return -ENOBUFS;
    divide_rest(p, in, trunk.rest, drive, resident);
    p->program_bytes += ((uint64_t)p->staging_frames + p->expert_frames) *
                        in->frame_heap_bytes;
    p->staging_bytes = p->staging_frames * in->expert_frame_bytes;
    p->cache_bytes = p->expert_frames * in->expert_frame_bytes;
    p->total_bytes = p->program_bytes + p->guest_bytes + p->state_bytes +
                     p->scratch_bytes +
                     p->ring_bytes + p->resident_bytes + p->staging_bytes +
                     p->cache_bytes;
    for (uint32_t t = 0; t < in->tile_count; t++) {
        if (resident[t]) {
            p->resident_payload_bytes += in->tiles[t].payload_bytes;
        } else {
            p->streamed_payload_bytes += in->tiles[t].payload_bytes;
            p->streamed_tiles++;
        }
    }
    assert(p->total_bytes <= in->budget_bytes);
    return 0;
}
