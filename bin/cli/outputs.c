#include "bin/cli/outputs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "model/parts/part.h"

/* What a path leads to: a file, or a name in a folder where none is yet. */
struct place {
    bool  known, there;
    dev_t dev;
    ino_t ino; /* of the file, or of the folder */
    char  folder[4096], name[256]; /* links resolved */
};

/* Split, with the links of the folder resolved. */
static bool split(struct place *p, const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int n = snprintf(folder, sizeof folder, "%.*s.", (int)(name - path), path);
    if (n >= (int)sizeof folder || strlen(name) >= sizeof p->name)
        return false;
    char *real = realpath(folder, NULL);
    bool good = real && strlen(real) < sizeof p->folder;
    if (good) {
        strcpy(p->folder, real);
        strcpy(p->name, name);
    }
    free(real);
    return good;
}

/* The links at the end of a path, whether they lead to a file or not. */
static bool follow(struct place *p, const char *path)
{
    char at[4096 + 256], to[4096];
    if (!split(p, path))
        return false;
    for (int i = 0; i < 40; i++) {
        snprintf(at, sizeof at, "%s/%s", p->folder, p->name);
        ssize_t n = readlink(at, to, sizeof to - 1);
        if (n < 0)
            return true;
        to[n] = 0;
        if (to[0] != '/') {
            int m = snprintf(at, sizeof at, "%s/%s", p->folder, to);
            if (m >= (int)sizeof at)
                return false;
        } else {
            snprintf(at, sizeof at, "%s", to);
        }
        if (!split(p, at))
            return false;
    }
    return false;
}

static void place_of(struct place *p, const char *path)
{
    struct stat st;
    memset(p, 0, sizeof *p);
    if (!path || !strcmp(path, "-")) /* which is a stream to some */
        return;
    p->there = !stat(path, &st);
    p->known = p->there ? S_ISREG(st.st_mode) : true;
    if (p->known && !follow(p, path))
        p->known = p->there;
    if (p->known && !p->there && stat(p->folder, &st))
        p->known = false;
    p->dev = st.st_dev;
    p->ino = st.st_ino;
}

static bool same(const struct place *a, const struct place *b)
{
    return a->known && b->known && a->dev == b->dev && a->ino == b->ino &&
           a->there == b->there && (a->there || !strcmp(a->name, b->name));
}

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

bool outputs_of_model(const char *name)
{
    static const char *const end[] = {
        ".safetensors", ".index.json", "config.json", ".model",
        ".jinja", ".pack", "tokenizer.json", "SHA256SUMS" };
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (ends(name, end[i]))
            return true;
    return false;
}

/* Is it one of those that the model in this folder is read from? */
static bool of_folder(const char *model, const struct place *p)
{
    bool found = false;
    DIR *d = p->known && p->there ? opendir(model) : NULL;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        struct stat st;
        found = outputs_of_model(e->d_name) &&
                !fstatat(dirfd(d), e->d_name, &st, 0) &&
                st.st_dev == p->dev && st.st_ino == p->ino;
    }
    if (d)
        closedir(d);
    return found;
}

/* Is it a file of sluice pack or spread, which may be all that there is of a
 * model? */
static bool is_coded(const struct place *p)
{
    char path[sizeof p->folder + sizeof p->name + 1], begin[8] = "";
    snprintf(path, sizeof path, "%s/%s", p->folder, p->name);
    return p->there &&
           file_first(path, 0, begin, sizeof begin) == sizeof begin &&
           (!memcmp(begin, SIDECAR_MAGIC, sizeof begin) ||
            !memcmp(begin, PART_MAGIC, sizeof begin));
}

/* Does its name belong to the model that its folder holds, be it there or
 * not? */
static bool of_any_model(const struct place *p)
{
    char path[sizeof p->folder + 64];
    if (p->known && is_coded(p))
        return true;
    if (!p->known || !outputs_of_model(p->name))
        return false;
    if (ends(p->folder, ".packed"))
        return true; /* coded weights */
    snprintf(path, sizeof path, "%s/config.json", p->folder);
    if (access(path, F_OK))
        return false;
    bool shards = false;
    DIR *d = opendir(p->folder);
    for (struct dirent *e; d && !shards && (e = readdir(d));)
        shards = ends(e->d_name, ".safetensors") ||
                 ends(e->d_name, ".safetensors.index.json");
    if (d)
        closedir(d);
    return shards;
}

/* Is `name` PREFIX.N? */
static bool is_numbered(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return !strncmp(name, prefix, n) && name[n] == '.' && name[n + 1] &&
           !name[n + 1 + strspn(name + n + 1, "0123456789")];
}

/* Is `other` one of the files PREFIX.N? */
static bool among(const char *prefix, const struct place *other)
{
    struct place p = { 0 };
    bool found = false;
    if (!other->known || !split(&p, prefix))
        return false;
    if (!strcmp(p.folder, other->folder) && is_numbered(other->name, p.name))
        return true;
    DIR *d = other->there ? opendir(p.folder) : NULL;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        struct stat st;
        found = is_numbered(e->d_name, p.name) &&
                !fstatat(dirfd(d), e->d_name, &st, 0) &&
                st.st_dev == other->dev && st.st_ino == other->ino;
    }
    if (d)
        closedir(d);
    return found;
}

static bool clash(const struct output_file *a, const struct output_file *b)
{
    struct place p, q;
    if (!a->path || !b->path || (a->read && b->read))
        return false;
    if (!strncmp(a->option, "std", 3) && !strncmp(b->option, "std", 3))
        return false; /* whoever joined them knows */
    place_of(&p, a->path);
    place_of(&q, b->path);
    if (a->numbered && b->numbered)
        return same(&p, &q);
    if (a->numbered)
        return among(a->path, &q);
    return b->numbered ? among(b->path, &p) : same(&p, &q);
}

int outputs_check(const struct output_file *files, size_t count,
                  const char *model, struct error *error)
{
    struct place program;
    place_of(&program, "/proc/self/exe");
    for (size_t i = 0; i < count; i++) {
        const struct output_file *f = &files[i];
        struct place at;
        place_of(&at, f->numbered ? NULL : f->path);
        if (!f->read && ((model && of_folder(model, &at)) || of_any_model(&at)))
            return error_set(error, -EINVAL,
                             "%s %s is a file of %s model: it "
                             "would be overwritten",
                             f->option, f->path, model ? "the" : "a");
        if (!f->read && same(&program, &at))
            return error_set(error, -EINVAL, "%s %s is this program",
                             f->option, f->path);
        for (size_t j = 0; j < i; j++) {
            if (!clash(f, &files[j]))
                continue;
            const struct output_file *said = files[j].numbered ? &files[j] : f;
            return error_set(error, -EINVAL, "%s and %s are the same file, "
                             "%s%s", files[j].option, f->option, said->path,
                             said->numbered ? ".N" : "");
        }
    }
    return 0;
}

int outputs_writable(const char *path, const char *what, struct error *error)
{
    struct stat st;
    struct output o = { .path = path, .what = what };
    if (!path)
        return 0;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
        if (S_ISDIR(st.st_mode)) /* opening would disturb a pipe */
            return output_failed(&o, EISDIR, error);
        return access(path, W_OK) ? output_failed(&o, errno, error) : 0;
    }
    if (!stat(path, &st)) /* opening may empty it, in a fixed folder */
        return access(path, W_OK) ? output_failed(&o, errno, error) : 0;
    int err = replace_open(&o.r, path, 0);
    if (err)
        return output_failed(&o, -err, error);
    replace_abort(&o.r);
    return 0;
}

/* ---- one output ---- */

int output_failed(const struct output *o, int code, struct error *error)
{
    return error_set(error, -code, "%s: %s could not be written: %s", o->path,
                     o->what, strerror(code));
}

static int open_with(struct output *o, const char *path, const char *what,
                     int flags, struct error *error)
{
    *o = (struct output){ .path = path, .what = what };
    if (!path)
        return 0;
    int err = replace_open(&o->r, path, flags);
    if (err)
        return output_failed(o, -err, error);
    int fd = fcntl(o->r.fd, F_DUPFD_CLOEXEC, 0);
    o->f = fd < 0 ? NULL : fdopen(fd, "w");
    if (o->f)
        return 0;
    err = errno;
    if (fd >= 0)
        close(fd);
    replace_abort(&o->r);
    return output_failed(o, err, error);
}

int output_open(struct output *o, const char *path, const char *what,
                struct error *error)
{
    return open_with(o, path, what, 0, error);
}

int output_open_beside(struct output *o, const char *path, const char *what,
                       struct error *error)
{
    return open_with(o, path, what, O_NOFOLLOW, error);
}

int output_publish(struct output *o, struct error *error)
{
    if (!o->f)
        return 0;
    int err = fflush(o->f) ? -errno : replace_publish(&o->r);
    return err ? output_failed(o, -err, error) : 0;
}

int output_close(struct output *o, bool keep, struct error *error)
{
    if (!o->f)
        return 0;
    errno = 0;
    bool bad = ferror(o->f);
    bad |= fflush(o->f) != 0;
    int code = !bad ? 0 : errno ? errno : EIO;
    if (fclose(o->f) && !code)
        code = errno ? errno : EIO;
    o->f = NULL;
    if (code || !keep)
        replace_abort(&o->r);
    else
        code = -replace_commit(&o->r, false);
    return code && keep ? output_failed(o, code, error) : 0;
}

struct shown shown(const char *path)
{
    struct shown s;
    struct error said = { 0 };
    error_set(&said, 0, "%s", path);
    snprintf(s.text, sizeof s.text, "%s", said.text);
    return s;
}

const char *outputs_temporary(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}
