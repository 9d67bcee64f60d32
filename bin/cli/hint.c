#include "bin/cli/hint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/opt.h"
#include "bin/cli/outputs.h"
#include "model/ckpt/download.h"
#include "model/pack/sidecar.h"

enum kind { OTHER, OF_FOLDER, OF_MODEL };

/* What a sentence is about: the folder itself, one of its files that a model
 * has, or anything else. */
static enum kind kind_of(const char *text, const char *folder)
{
    char name[256];
    size_t n = folder ? strlen(folder) : 0;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (!n || strncmp(text, folder, n))
        return OTHER;
    text += n;
    if (*text == ':')
        return OF_FOLDER;
    if (*text != '/' && folder[n - 1] != '/')
        return OTHER; /* "m2/x" is not in m */
    text += strspn(text, "/");
    n = strcspn(text, ": ");
    if (!n || n >= sizeof name)
        return OTHER;
    memcpy(name, text, n);
    name[n] = 0;
    return !strchr(name, '/') && outputs_of_model(name) ? OF_MODEL : OTHER;
}

static bool about_memory(char *out, const char *begin, const char *end)
{
    if (opt_takes("memory"))
        snprintf(out, HINT_BYTES, "%s%s", begin,
                 opt_takes("context") ? end : "");
    return opt_takes("memory");
}

static bool about_damage(char *out, const char *model, const char *text)
{
    char *packed = model ? sidecar_folder(model) : NULL;
    bool coded = packed && kind_of(text, packed) == OF_MODEL;
    free(packed);
    if (coded)
        snprintf(out, HINT_BYTES, "%s pack '%.1000s' makes it again",
                 opt_program, model);
    else if (kind_of(text, model) != OF_MODEL)
        return false;
    else if (download_is_synthetic(model))
        snprintf(out, HINT_BYTES, "%s synth makes a new one", opt_program);
    else
        snprintf(out, HINT_BYTES, "compare the file with the published one, "
                 "download it again");
    return true;
}

bool hint_for(char out[HINT_BYTES], const char *model,
              const struct error *error)
{
    switch (error->code) {
    case -ENOBUFS:
        return about_memory(out, "give it more with --memory",
                            ", or a smaller --context");
    case -ENOMEM:
        return about_memory(out, "try a smaller --memory", " or --context");
    case -EMFILE:
        snprintf(out, HINT_BYTES, "raise the limit of open files: ulimit -n "
                 "4096");
        return true;
    case -EIO:
        snprintf(out, HINT_BYTES, "look at the drive: dmesg, smartctl -a");
        return true;
    case -ENODATA:
    case -EBADMSG:
        return about_damage(out, model, error->text);
    case -ENOENT:
    case -ENOTDIR:
        if (kind_of(error->text, model) == OTHER)
            return false;
        snprintf(out, HINT_BYTES, "%s doctor '%.1000s' says what is missing",
                 opt_program, model);
        return true;
    default:
        return false;
    }
}
