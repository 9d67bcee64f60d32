/* batch_internal.h - sluice batch: what its two files share. */
#ifndef BIN_BATCH_INTERNAL_H
#define BIN_BATCH_INTERNAL_H

#include "bin/batch/feed.h"
#include "bin/batch/logits.h"
#include "bin/batch/partial.h"
#include "bin/batch/show.h"
#include "bin/cli/session.h"
#include "bin/report/watch.h"
#include "model/ckpt/identity.h"
#include "model/knobs.h"
#include "model/pack/sidecars.h"
#include "model/sim/forecast.h"

struct batch_args {
    struct session_args s;
    const char *in, *out, *check, *resume, *progress;
    int64_t every_ns; /* of --progress */
    uint64_t max, sequences;
    bool        in_order, lenient, retry;
};

struct batch_cmd {
    struct batch_args a;
    const char *model;
    int argc;                /* of the command line, for the report */
    char **argv;
    double open_s;
    uint64_t memory;         /* the budget */
    struct batch_feed feed;
    struct sluice_text *text; /* NULL: the model has no tokenizer */
    char        name[256]; /* the last part of `model` */
    char        identity[IDENTITY_TEXT_BYTES];
    struct config c;
    struct sidecars sidecars; /* what the session will find too */
    struct parts *parts;      /* the same; or NULL */
    struct sluice *s;
    uint32_t    sequences; /* requests that run at one time */
    struct watch_files watch;
    struct batch_logits logits;
    struct batch_partial partial;
    struct batch_show show;
    struct forecast forecast; /* of the number of sequences there are */
    struct batch_job *first; /* read, and not asked yet, a chain */
    bool noted;              /* a sentence about the prefix cache */
    bool share;              /* prompts that begin alike are read once */
    uint32_t held;           /* and kept for those that come later */
    struct batch_job *asked; /* those that the session has */
    uint64_t given;          /* ids that an earlier process had found */
    bool over;               /* the input came to its end */
    bool forms;              /* the session keeps texts to forms */
    struct error error;      /* the first */
};

/* ---- batch_open.c ---- */

/* The lines, and the first of them that is to be answered: without one, the
 * weights need not be opened. */
int batch_open_feed(struct batch_cmd *b);
/* Read what prompts are compared with, to b->first. 0 or an error. */
int batch_look_ahead(struct batch_cmd *b);
/* The session, with as many sequences as are fastest. */
int batch_open_model(struct batch_cmd *b);
/* --check: what will be refused to stdout, and the passes and their time;
 * feed.refused. */
int batch_check_job(struct batch_cmd *b);

#endif
