/* store_answers.c - answers that nobody has fetched, over the end of a server.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/serve/store/store_internal.h"

enum { CHOICES_MAX = 4096, IDS_MAX = 1 << 24 };

#define HEAD "sluice serve: an answer, version 1\n"

static void path_of(const struct store *s, const uint8_t name[32],
                    char path[STORE_PATH])
{
    char hex[65];
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", name[i]);
    store_path(s, "answers", hex, "", path);
}

int store_answer_keep(struct store *s, const uint8_t name[32],
                      const struct store_answer *a, struct error *error)
{
    char path[STORE_PATH];
    struct buffer text = { 0 };
    path_of(s, name, path);
    buffer_format(&text, HEAD "%s %" PRId64 " %" PRIu32 "\n", a->id,
                  a->created, a->choices);
    for (uint32_t i = 0; i < a->choices; i++) {
        const struct store_choice *c = &a->choice[i];
        buffer_format(&text, "%" PRIu32 " %d %" PRIu32, c->index, c->finish,
                      c->count);
        for (uint32_t j = 0; j < c->count; j++)
            buffer_format(&text, " %" PRIu32, c->ids[j]);
        buffer_text(&text, "\n");
    }
    buffer_text(&text, ".\n");
    int err = text.failed ? error_set(error, -ENOMEM, "no memory for an answer")
                          : store_write(path, text.bytes, text.count, error);
    buffer_free(&text);
    return err;
}

static bool read_choice(FILE *f, struct store_choice *c)
{
    if (fscanf(f, "%" SCNu32 " %d %" SCNu32, &c->index, &c->finish,
               &c->count) != 3 || c->count > IDS_MAX)
        return false;
    c->ids = calloc(c->count + 1, sizeof *c->ids);
    for (uint32_t i = 0; c->ids && i < c->count; i++)
        if (fscanf(f, " %" SCNu32, &c->ids[i]) != 1)
            return false;
    return c->ids;
}

static bool read_answer(FILE *f, struct store_answer *a)
{
    char line[sizeof HEAD], end[2] = "";
    uint32_t choices;
    if (!fgets(line, sizeof line, f) || strcmp(line, HEAD) ||
        fscanf(f, "%35s %" SCNd64 " %" SCNu32, a->id, &a->created,
               &choices) != 3 || choices > CHOICES_MAX)
        return false;
    a->choice = calloc(choices + 1, sizeof *a->choice);
    while (a->choice && a->choices < choices)
        if (!read_choice(f, &a->choice[a->choices++]))
            return false;
    return a->choice && fscanf(f, " %1[.]", end) == 1;
}

bool store_answer_take(struct store *s, const uint8_t name[32],
                       struct store_answer *out)
{
    char path[STORE_PATH];
    *out = (struct store_answer){ 0 };
    path_of(s, name, path);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool good = read_answer(f, out);
    fclose(f);
    unlink(path); /* from here on it is in memory */
    if (!good)
        store_answer_free(out);
    return good;
}

void store_answer_free(struct store_answer *a)
{
    for (uint32_t i = 0; a->choice && i < a->choices; i++)
        free(a->choice[i].ids);
    free(a->choice);
    *a = (struct store_answer){ 0 };
}

void store_expire_answers(struct store *s, int64_t before)
{
    char path[STORE_PATH];
    struct stat st;
    store_path(s, "answers", "", "", path);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (*e->d_name == '.' || strlen(e->d_name) >= STORE_ID + 8)
            continue;
        store_path(s, "answers", e->d_name, "", path);
        if (!stat(path, &st) && st.st_mtime < before)
            unlink(path);
    }
    if (dir)
        closedir(dir);
}
