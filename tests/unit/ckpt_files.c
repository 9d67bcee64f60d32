#include "tests/unit/ckpt_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/tools/synth.h"

static void need(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "# cannot set up: %s\n", what);
    exit(1);
}

char *ckpt_files_place(void)
{
    char around[] = "/tmp/sluice-test-XXXXXX", *dir;
    need(mkdtemp(around) != NULL, around);
    need(asprintf(&dir, "%s/model", around) > 0, "memory");
    return dir;
}

char *ckpt_files_make(void)
{
    static const struct synth_setting settings[] = {
        { "num_hidden_layers", "3" },
        { "num_experts", "11" },
        { "vocab_size", "512" },
    };
    struct synth_facts facts;
    struct error error = { 0 };
    struct synth_options o = { .dir = ckpt_files_place(),
                               .preset = "tiny",
                               .setting = settings,
                               .settings = 3 };
    need(!synth_write(&o, &facts, &error), error.text);
    return (char *)o.dir;
}

void ckpt_files_remove(char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    while (d && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            if (unlinkat(dirfd(d), e->d_name, 0))
                unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    if (d)
        closedir(d);
    rmdir(dir);
    *strrchr(dir, '/') = 0;
    rmdir(dir);
    free(dir);
}

char *ckpt_files_read(const char *dir, const char *name, size_t *length)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    need(f != NULL, path);
    fseek(f, 0, SEEK_END);
    *length = (size_t)ftell(f);
    rewind(f);
    char *bytes = calloc(*length + 1, 1);
    need(bytes && fread(bytes, 1, *length, f) == *length, path);
    fclose(f);
    return bytes;
}

void ckpt_files_write(const char *dir, const char *name, const void *bytes,
                      size_t length)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    need(f && fwrite(bytes, 1, length, f) == length && !fclose(f), path);
}
