#include "model/decode/prefix_index.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "io/replace.h"

enum { INDEX_BYTES_MAX = 64 << 20, LINE_BYTES = 160 };

void prefix_entry_name(char out[PREFIX_NAME_BYTES],
                       const struct prefix_entry *e)
{
    size_t n = 0;
    for (int i = 0; i < PREFIX_KEY_BYTES; i++)
        n += (size_t)snprintf(out + n, PREFIX_NAME_BYTES - n, "%02x",
                              e->key[i]);
    snprintf(out + n, PREFIX_NAME_BYTES - n, "-%" PRIu32 ".seq", e->positions);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                                 : -1;
}

/* The key and the positions out of a name. */
static bool parse_name(struct prefix_entry *e, const char *name)
{
    char again[PREFIX_NAME_BYTES];
    *e = (struct prefix_entry){ .uses = 1 };
    for (int i = 0; i < PREFIX_KEY_BYTES; i++) {
        int high = digit(name[2 * i]);
        int low = high < 0 ? -1 : digit(name[2 * i + 1]);
        if (low < 0)
            return false;
        e->key[i] = (uint8_t)(high << 4 | low);
    }
    const char *rest = name + 2 * PREFIX_KEY_BYTES;
    if (*rest != '-')
        return false;
    uint64_t positions = strtoull(rest + 1, NULL, 10);
    if (!positions || positions > UINT32_MAX)
        return false;
    e->positions = (uint32_t)positions;
    prefix_entry_name(again, e);
    return !strcmp(again, name);
}

struct prefix_entry *prefix_index_add(struct prefix_index *x,
                                      const struct prefix_entry *e)
{
    struct prefix_entry *bigger =
        realloc(x->entry, (x->count + 1) * sizeof *bigger);
    if (!bigger)
        return NULL;
    x->entry = bigger;
    uint32_t at = x->count;
    while (at && x->entry[at - 1].positions < e->positions)
        at--;
    memmove(&x->entry[at + 1], &x->entry[at],
            (x->count - at) * sizeof *bigger);
    x->entry[at] = *e;
    x->count++;
    x->bytes += e->bytes;
    return &x->entry[at];
}

void prefix_index_remove(struct prefix_index *x, struct prefix_entry *e)
{
    uint32_t at = (uint32_t)(e - x->entry);
    assert(at < x->count);
    x->bytes -= e->bytes;
    x->count--;
    memmove(e, e + 1, (x->count - at) * sizeof *e);
}

struct prefix_entry *prefix_index_find(const struct prefix_index *x,
                                       const uint8_t key[PREFIX_KEY_BYTES],
                                       uint32_t positions)
{
    for (uint32_t i = 0; i < x->count; i++)
        if (x->entry[i].positions == positions &&
            !memcmp(x->entry[i].key, key, PREFIX_KEY_BYTES))
            return &x->entry[i];
    return NULL;
}

struct prefix_entry *prefix_index_victim(const struct prefix_index *x)
{
    assert(x->count);
    struct prefix_entry *min = x->entry;
    for (uint32_t i = 1; i < x->count; i++)
        if (x->entry[i].value < min->value)
            min = &x->entry[i];
    return min;
}

void prefix_index_value(const struct prefix_index *x, struct prefix_entry *e)
{
    double bytes = e->bytes ? (double)e->bytes : 1;
    e->value = x->clock + (double)e->uses * e->seconds / bytes;
}

/* ---- the folder ---- */

static int read_folder(struct prefix_index *x, const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return -errno;
    int err = 0;
    for (struct dirent *f; !err && (f = readdir(d));) {
        struct prefix_entry e;
        struct stat st;
        if (!parse_name(&e, f->d_name) ||
            fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            continue;
        e.bytes = (uint64_t)st.st_size;
        e.seconds = (double)e.positions; /* not known: as long as it is */
        err = prefix_index_add(x, &e) ? 0 : -ENOMEM;
    }
    closedir(d);
    return err;
}

static char *read_text(const char *dir)
{
    char *path, *text = NULL;
    struct stat st;
    if (asprintf(&path, "%s/index", dir) < 0)
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    free(path);
    if (fd < 0)
        return NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 &&
        st.st_size < INDEX_BYTES_MAX)
        text = calloc(1, (size_t)st.st_size + 1);
    if (text && read(fd, text, (size_t)st.st_size) != st.st_size) {
        free(text);
        text = NULL;
    }
    close(fd);
    return text;
}

static bool sane(double v)
{
    return isfinite(v) && v >= 0;
}

/* Take the statistics of entries that are there. */
static void read_statistics(struct prefix_index *x, char *text)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[PREFIX_NAME_BYTES];
        uint64_t uses;
        double seconds, value;
        struct prefix_entry e;
        if (sscanf(line, "clock %lf", &value) == 1 && sane(value))
            x->clock = value;
        if (sscanf(line, "%63s %" SCNu64 " %lf %lf", name, &uses, &seconds,
                   &value) != 4 ||
            !parse_name(&e, name) || !sane(seconds) || !sane(value))
            continue;
        struct prefix_entry *found =
            prefix_index_find(x, e.key, e.positions);
        if (!found)
            continue;
        found->uses = uses;
        found->seconds = seconds;
        found->value = value;
    }
}

int prefix_index_read(struct prefix_index *x, const char *dir)
{
    *x = (struct prefix_index){ 0 };
    int err = read_folder(x, dir);
    if (err) {
        prefix_index_free(x);
        return err;
    }
    for (uint32_t i = 0; i < x->count; i++)
        prefix_index_value(x, &x->entry[i]);
    char *text = read_text(dir);
    if (text)
        read_statistics(x, text);
    free(text);
    return 0;
}

/* Is the file at this path an index, or none at all? */
static bool is_ours(const char *path)
{
    static const char begin[] = "clock ";
    char text[sizeof begin - 1];
    int got = file_first(path, O_NOFOLLOW, text, sizeof text);
    return !got || got == -ENOENT ||
           (got == sizeof text && !memcmp(text, begin, got));
}

int prefix_index_write(const struct prefix_index *x, const char *dir)
{
    char *path, line[LINE_BYTES], name[PREFIX_NAME_BYTES];
    struct replace r;
    if (asprintf(&path, "%s/index", dir) < 0)
        return -ENOMEM;
    int err = is_ours(path) ? replace_open(&r, path, O_NOFOLLOW) : -EEXIST;
    free(path);
    if (err)
        return err;
    int n = snprintf(line, sizeof line, "clock %.17g\n", x->clock);
    if (write(r.fd, line, (size_t)n) != n)
        err = errno ? -errno : -EIO;
    for (uint32_t i = 0; i < x->count && !err; i++) {
        const struct prefix_entry *e = &x->entry[i];
        prefix_entry_name(name, e);
        n = snprintf(line, sizeof line, "%s %" PRIu64 " %.17g %.17g\n", name,
                     e->uses, e->seconds, e->value);
        if (write(r.fd, line, (size_t)n) != n)
            err = errno ? -errno : -EIO;
    }
    if (!err)
        return replace_commit(&r, false);
    replace_abort(&r);
    return err;
}

void prefix_index_free(struct prefix_index *x)
{
    free(x->entry);
    *x = (struct prefix_index){ 0 };
}
