#include "bin/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[DOCTOR_VERDICTS] = { "ok", "warn", "fail" };

void doctor_add(struct doctor *d, enum verdict verdict, const char *name,
                const char *fix, const char *format, ...)
{
    if (d->lines == DOCTOR_LINES_MAX)
        return;
    struct doctor_line *l = &d->line[d->lines++];
    va_list args;
    l->verdict = verdict;
    snprintf(l->name, sizeof l->name, "%s", name);
    snprintf(l->fix, sizeof l->fix, "%s", fix ? fix : "");
    va_start(args, format);
    vsnprintf(l->text, sizeof l->text, format, args);
    va_end(args);
    d->count[verdict]++;
    if (d->quiet)
        return;
    printf("%-5s %-12s %s\n", names[verdict], l->name, l->text);
    if (l->fix[0])
        printf("%18s fix: %s\n", "", l->fix);
    fflush(stdout);
}

void doctor_free(struct doctor *d)
{
    for (uint32_t i = 0; i < d->paths; i++)
        free(d->path[i]);
    free(d->path);
    parts_close(d->opened);
    config_free(&d->config);
}

void doctor_read(char *out, size_t size, const char *path)
{
    FILE *f = fopen(path, "r");
    out[0] = 0;
    if (!f)
        return;
    if (!fgets(out, (int)size, f))
        out[0] = 0;
    out[strcspn(out, "\n")] = 0;
    fclose(f);
}

/* ---- mounts ---- */

/* Take the field at *s, up to a space; mountinfo writes \040 for a space. */
static void take_field(char *out, size_t size, const char **s)
{
    size_t n = 0;
    while (**s && **s != ' ' && **s != '\n') {
        unsigned value;
        char c = *(*s)++;
        if (c == '\\' && sscanf(*s, "%3o", &value) == 1) {
            c = (char)value;
            *s += 3;
        }
        if (n + 1 < size)
            out[n++] = c;
    }
    out[n] = 0;
    if (**s == ' ')
        (*s)++;
}

static bool below(const char *path, const char *point)
{
    size_t n = strlen(point);
    if (!strcmp(point, "/"))
        return true;
    return !strncmp(path, point, n) && (!path[n] || path[n] == '/');
}

int mount_find(struct mount_point *out, const char *mountinfo,
               const char *path)
{
    size_t best = 0;
    const char *line = mountinfo;
    while (line && *line) {
        char skipped[64], point[4096];
        const char *s = line;
        for (int i = 0; i < 4; i++)
            take_field(skipped, sizeof skipped, &s);
        take_field(point, sizeof point, &s);
        const char *end = strchr(line, '\n');
        const char *dash = strstr(s, " - ");
        /* A later mount on the same point hides the one before. */
        if (dash && (!end || dash < end) && below(path, point) &&
            strlen(point) >= best) {
            best = strlen(point);
            s = dash + 3;
            take_field(out->type, sizeof out->type, &s);
            take_field(out->source, sizeof out->source, &s);
        }
        line = end ? end + 1 : NULL;
    }
    return best ? 0 : -1;
}
