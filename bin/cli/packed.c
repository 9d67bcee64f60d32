#include "bin/cli/packed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int packed_find(struct sidecars *out, const char *packed, const char *model,
                const struct config *c, struct error *error)
{
    struct ckpt *k;
    struct stat st;
    bool automatic = !strcmp(packed, "auto");
    memset(out, 0, sizeof *out);
    char *beside = sidecar_folder(model);
    bool there = beside && !stat(beside, &st);
    free(beside);
    if (!strcmp(packed, "off") || (automatic && !there))
        return 0;
    int err = ckpt_open(&k, model, c, automatic ? NULL : error);
    if (err)
        return automatic ? 0 : err;
    err = sidecars_open(out, packed, model, c, k, NULL, NULL, error);
    ckpt_close(k);
    return err;
}
