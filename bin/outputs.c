#include "bin/outputs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a path leads to: a file, or a name in a folder where none is yet. */
struct place {
    bool        known;
    dev_t       dev;
    ino_t       ino; /* of the file, or of the folder */
    const char *name; /* NULL: the file is there */
};

static struct place place_of(const char *path)
{
    struct stat st;
    char folder[4096];
    struct place p = { 0 };
    const char *slash;
    if (!path || !strcmp(path, "-")) /* which is a stream to some */
        return p;
    if (!stat(path, &st)) {
        p.known = S_ISREG(st.st_mode);
    } else {
        slash = strrchr(path, '/');
        p.name = slash ? slash + 1 : path;
        int n = snprintf(folder, sizeof folder, "%.*s.",
                         (int)(p.name - path), path);
        p.known = n < (int)sizeof folder && !stat(folder, &st);
    }
    if (p.known) {
        p.dev = st.st_dev;
        p.ino = st.st_ino;
    }
    return p;
}

static bool same(const struct place *a, const struct place *b)
{
    return a->known && b->known && a->dev == b->dev && a->ino == b->ino &&
           !a->name == !b->name && (!a->name || !strcmp(a->name, b->name));
}

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Is it one of those that a model is read from? */
static bool of_model(const char *model, const struct place *p)
{
    static const char *const end[] = { ".safetensors", ".index.json",
                                       "config.json", ".model" };
    bool found = false;
    DIR *d = p->known && !p->name ? opendir(model) : NULL;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        struct stat st;
        for (size_t i = 0; i < sizeof end / sizeof *end && !found; i++)
            found = ends(e->d_name, end[i]) &&
                    !fstatat(dirfd(d), e->d_name, &st, 0) &&
                    st.st_dev == p->dev && st.st_ino == p->ino;
    }
    if (d)
        closedir(d);
    return found;
}

int outputs_check(const struct output_file *files, size_t count,
                  const char *model, struct why *why)
{
    for (size_t i = 0; i < count; i++) {
        const struct output_file *f = &files[i];
        struct place at = place_of(f->path);
        if (!f->read && model && of_model(model, &at))
            return why_set(why, -EINVAL, "%s %s is a file of the model: it "
                           "would be overwritten", f->option, f->path);
        for (size_t j = 0; j < i; j++) {
            struct place other = place_of(files[j].path);
            if ((f->read && files[j].read) || !same(&at, &other))
                continue;
            return why_set(why, -EINVAL, "%s and %s are the same file, %s",
                           files[j].option, f->option, f->path);
        }
    }
    return 0;
}

static int unwritable(struct why *why, const char *path, const char *what,
                      int error)
{
    return why_set(why, -error, "%s: %s could not be written: %s", path, what,
                   strerror(error));
}

int outputs_writable(const char *path, const char *what, struct why *why)
{
    struct stat st;
    if (!path)
        return 0;
    if (!stat(path, &st)) { /* opening would disturb a pipe */
        if (S_ISDIR(st.st_mode))
            return unwritable(why, path, what, EISDIR);
        return access(path, W_OK) ? unwritable(why, path, what, errno) : 0;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return unwritable(why, path, what, errno);
    close(fd);
    unlink(path);
    return 0;
}
