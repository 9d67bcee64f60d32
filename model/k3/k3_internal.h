/* k3_internal.h - the engine's session, and the steps it computes. */
#ifndef MODEL_K3_K3_INTERNAL_H
#define MODEL_K3_K3_INTERNAL_H

#include "compute/kern.h"
#include "compute/team.h"
#include "io/arena.h"
#include "model/ckpt/mirrors.h"
#include "model/k3/coded.h"
#include "model/k3/flow.h"
#include "model/k3/guest.h"
#include "model/k3/rates.h"
#include "model/k3/shape.h"
#include "model/k3/share_states.h"
#include "model/k3/shared.h"
#include "model/k3/weights.h"
#include "model/state/state.h"

/* The vectors of the current layer, copied out of their tile so that it can
 * leave the ring. */
struct layer_vectors {
    uint8_t *buffer; /* k3_vectors_bytes */
    uint64_t used;   /* bytes of it */
    const uint8_t *at[T_COUNT]; /* by role; NULL: the layer has none */
    uint64_t bytes[T_COUNT];
};

/* All float scratch of a pass, [rows][...]. Buffers of attention and of the MLP
 * share memory where k3_scratch_layout says so. */
struct scratch {
    float *snapshots;        /* [snapshot][rows][hidden] */
    float *sum, *mix, *x;    /* [rows][hidden] */
    float *x_packed;         /* "packed": in the order that products read */
    float *out;              /* of a half of the layer, [rows][hidden] */
    float *logits;           /* [logit rows][vocab] */
    float *taps;             /* [rows][taps][hidden], see guest.h */
    /* KDA */
    float *raw[3];           /* q, k, v before the convolution [rows][width] */
    float *conv[3];          /* after it; conv[0] becomes the output */
    float *decay, *kda_gate; /* [rows][width] */
    float *beta;             /* [rows][kda_heads] */
    float *fa, *fa_packed;   /* [rows][kda_dim] */
    /* MLA */
    float *query_latent, *query_latent_packed; /* [rows][q_rank] */
    float *query;            /* [rows][heads*(nope + rope)] */
    float *key_latent;       /* [rows][kv_rank + rope] */
    float *attended;         /* [rows][heads*v_dim] */
    float *mla_gate;         /* the same */
    float *attended_packed;  /* input of o_proj, of KDA and MLA */
    /* MLP, dense or shared */
    float *mlp_gate, *mlp_up; /* [rows][inter] */
    float *activated;        /* the same, packed */
    float *shared;           /* [rows][hidden] */
    /* Experts */
    float *latent, *latent_packed; /* their input, [rows][latent] */
    float *scores;           /* [rows][experts] */
    float *partial;          /* [rows][top_k][latent] */
    float *reduced, *reduced_packed; /* weighted sum, normed [rows][latent] */
    float *gather;           /* [gather_floats]: of all processes */
    uint64_t gather_floats;
    uint32_t *ids;           /* [rows][top_k]: flow.ids */
    float *weights;          /* [rows][top_k] */
    uint32_t *row_of, *rank_of; /* [rows*top_k]: see sort_rows in moe.c */
    uint32_t *first_of, *item_of; /* [experts + 1], [experts] */
    /* Of the experts computed together, [K3_EXPERT_ROWS][...]: input, w1 and
     * w3 products, activation, output. */
    float *expert_x, *expert_g, *expert_u, *expert_a, *expert_y;
    uint8_t *worker;         /* [threads][worker_bytes] */
    uint64_t worker_bytes;
    uint8_t *decoded;        /* [threads][decoded_bytes]: rows of coded weights
                              * where a kernel takes bf16 only */
    uint64_t decoded_bytes;
    uint8_t *embed;          /* frames of embedding rows */
    uint64_t embed_frame_bytes;
    /* Draft rows' inputs, kept for k3_accept:
     * [kda layer][draft][6*width + kda_heads]. */
    float *drafts;
    /* The names that steps have for the above. */
    float *buffer[BUFFERS];
};

struct gate;
struct said;

struct k3 {
    struct flow    flow;
    struct config  c;
    struct k3_options o;
    struct kern    kern;
    struct ckpt   *ckpt;  /* NULL with parts */
    struct parts  *parts; /* or NULL */
    struct owned   owned; /* with parts and several processes */
    struct weights weights; /* where all of them are */
    struct expert_form form;
    struct sidecars sidecars; /* coded weights that are used */
    struct coded  *coded;     /* or NULL */
    double         drive_rate[DRIVES_MAX]; /* what o.drive_rate points to */
    struct decode_time decode; /* what o.decode points to, if anything */
    uint64_t       expert_read_bytes; /* of one, on average */
    uint64_t       mended;    /* blocks and objects that were read once more */
    struct mirrors mirrors;
    uint32_t       coded_notes;
    char           coded_note[4][480]; /* sidecars that are not used, and why */
    struct arena  *arena;
    struct reader *reader;
    struct team   *team;
    struct gate   *gate; /* or NULL */
    struct state_shape shape;
    struct state_share state_share; /* what shape.share points to, or none */
    struct state_walk  walk;
    uint8_t       *state; /* [sequences][shape.bytes] */
    uint8_t       *guest; /* its memory; NULL: there is none */
    bool           guest_resident;
    bool           open;
    struct said   *said;  /* what the other processes have to do next */
    struct k3_machine *machine; /* [ranks] or NULL */
    int            told;  /* the error that all processes know of */
    struct scratch s;
    struct layer_vectors vectors, model_vectors;
    uint32_t      *index_in_kind; /* [layers]: among KDA or MLA layers */
    /* The current pass. */
    uint32_t       depth; /* snapshots taken */
    bool           fresh; /* the residual sum is empty: a snapshot was taken */
    uint32_t       logit_row[K3_ROWS_MAX], logit_rows; /* that want logits */
    struct error  *error;
};

/* A worker's room for decoded rows. */
static inline uint8_t *k3_decoded(const struct k3 *k, unsigned worker)
{
    return k->s.decoded + worker * k->s.decoded_bytes;
}

/* open.c: the path of a file of the reader: shards, sidecars, the guest's. */
const char *k3_file_path(const struct k3 *k, uint32_t file);

/* scratch.c */
struct scratch_size {
    uint64_t fixed_bytes, row_bytes;
};
/* Bytes of all scratch: with no row, and what each row adds. */
void k3_scratch_size(const struct config *c, const struct k3_options *o,
                     uint32_t threads, struct scratch_size *out);
/* Cut `base` (k3_scratch_size's bytes for `rows`) into the buffers. */
void k3_scratch_cut(struct scratch *s, uint8_t *base, const struct config *c,
                    const struct k3_options *o, uint32_t threads,
                    uint32_t rows);

/* pass.c */
extern const struct flow_ops k3_ops;

/* product.c: the sentence for a tensor whose values, or products, are not
 * finite; returns -EBADMSG. */
int k3_tensor_failed(struct k3 *k, int layer, enum tensor_role role);
/* flow_ops.failed */
int k3_read_failed(void *arg, int err, const struct step *s,
                   const struct tile_piece *piece);
/* out = W in, for the rows of one piece. */
int k3_product(struct k3 *k, const struct step *s,
               const struct tile_piece *piece, const uint8_t *frame);
/* The same for any input and output: y [rows][ldy], xp packed. */
int k3_product_of(struct k3 *k, const struct tile_piece *piece,
                  const uint8_t *frame, float *y, size_t ldy, const float *xp,
                  uint32_t rows);
/* Pack rows in parallel. */
void k3_pack(struct k3 *k, float *packed, const float *x, uint32_t rows,
             size_t cols);

/* guest.c: which tap the state after a layer is, running sum or mixed; -1:
 * none. And where a row's goes. */
int  k3_tap_of(const struct k3 *k, int32_t layer, bool mixed);
float *k3_tap_row(struct k3 *k, uint32_t row, int tap);
/* Keep the running sums after a layer, if they are a tap. */
void k3_tap_sum(struct k3 *k, int32_t layer);

/* product.c: packed = pack(situ(g, u)) for rows of n columns; g is
 * overwritten. */
void k3_situ(struct k3 *k, float *packed, float *g, const float *u,
             uint32_t rows, size_t n);
/* The same in g alone, of columns `own`: a gather packs. */
void k3_situ_own(struct k3 *k, float *g, const float *u, uint32_t rows,
                 size_t n, struct row_range own);

/* kda.c, mla.c, moe.c: the ops of their steps; see enum step_op. */
void k3_recur(struct k3 *k, uint32_t layer);
int  k3_norm_query(struct k3 *k, uint32_t layer);
int  k3_store(struct k3 *k, uint32_t layer);
int  k3_attend(struct k3 *k, const struct tile_piece *piece,
               const uint8_t *frame);
void k3_gate_attention(struct k3 *k);
int  k3_route(struct k3 *k, const struct tile_piece *piece,
              const uint8_t *frame);
void k3_choose(struct k3 *k, uint32_t layer);
void k3_requested(void *arg, const struct step *s);
int  k3_experts(void *arg, const struct step *s,
                const struct expert_batch *batch);
int  k3_experts_down(void *arg, const struct step *s,
                     const struct expert_batch *batch);
void k3_reduce(struct k3 *k);
int  k3_norm_experts(struct k3 *k, uint32_t layer);
void k3_add_shared(struct k3 *k);

/* shared.c: with other processes; all do nothing where there are none. */
int  k3_shared_open(struct k3 *k, struct error *error);
void k3_shared_close(struct k3 *k);
/* Wait for all, and hear how it goes: `err`, or what another one says. */
int  k3_meet(struct k3 *k, int err, uint64_t value, const char *what,
             struct error *error);
/* STEP_GATHER. */
int  k3_gather(struct k3 *k, const struct step *s);
/* The columns of a wave of experts that their w1 and w3 gave, packed. */
int  k3_gather_experts(struct k3 *k, uint32_t rows);
/* Of the rows of a pass and what it gave. */
uint64_t k3_hash(const struct k3 *k);
/* From rank 0 to the others, before their next pass or at once. */
enum said_op { SAID_RESET, SAID_COPY, SAID_ACCEPT, SAID_READAHEAD, SAID_PASS,
               SAID_SAVE, SAID_LOAD, SAID_QUIESCE, SAID_CLOSE };
int  k3_say(struct k3 *k, enum said_op op, uint64_t a, uint64_t b,
            struct error *error);
/* Let rank 0 know what each has done. */
void k3_gather_machines(struct k3 *k);

/* While an engine is opened, and with what went wrong so far: rank 0
 * has the options; all have one model; all can make the same passes. */
int  k3_announce(const struct k3 *k, struct error *error);
int  k3_agree_model(struct k3 *k, int err, struct error *error);
int  k3_agree_plan(struct k3 *k, struct k3_shape *s, int err,
                   struct error *error);

/* gate.c: the next layer's own router, computed early for prefetches. NULL in
 * *out when the prefetcher is not `gate`. -ENOMEM. */
int  k3_gate_open(struct gate **out, struct k3 *k, struct error *error);
void k3_gate_close(struct gate *g);
/* Copy the vectors of a MoE layer that the gate needs, while they are in
 * k->vectors. */
void k3_gate_keep(struct k3 *k, uint32_t layer);

#endif
