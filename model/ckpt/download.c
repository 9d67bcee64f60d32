#include "model/ckpt/download.h"

#include <dirent.h>
#include <fcntl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "model/ckpt/shards.h"
#include "model/ckpt/slurp.h"

enum { PIECE_BYTES = 64 << 10, PATH_BYTES = 4096, CONFIG_BYTES_MAX = 16 << 20,
       NOTE_SAMPLES = 4 };

static const char *const endings[] = {
    ".aria2", ".part",    ".incomplete", ".crdownload", ".!qB",
    ".!ut",   ".partial", ".download",   ".opdownload",
};
enum { ENDINGS = sizeof endings / sizeof *endings };

static bool is_control(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < ENDINGS; i++) {
        size_t m = strlen(endings[i]);
        if (n > m && !strcmp(name + n - m, endings[i]))
            return true;
    }
    return false;
}

/* The first in the order of names, so that the answer is always the same. */
static bool look_in(char *out, size_t size, const char *dir)
{
    char best[256] = "";
    struct dirent *entry;
    DIR *d = opendir(dir);
    while (d && (entry = readdir(d)))
        if (is_control(entry->d_name) && strlen(entry->d_name) < sizeof best &&
            (!best[0] || strcmp(entry->d_name, best) < 0))
            strcpy(best, entry->d_name);
    if (d)
        closedir(d);
    if (best[0])
        snprintf(out, size, "%s/%s", dir, best);
    return best[0];
}

bool download_unfinished(char *out, size_t size, const char *path)
{
    static const char *const places[] = { "", "/.cache/huggingface/download",
                                          "/../../blobs" };
    char other[PATH_BYTES];
    struct stat st;
    out[0] = 0;
    if (stat(path, &st))
        return false;
    if (S_ISDIR(st.st_mode)) {
        for (int i = 0; i < 3; i++) {
            snprintf(other, sizeof other, "%s%s", path, places[i]);
            if (look_in(out, size, other))
                return true;
        }
        return false;
    }
    for (int i = 0; i < ENDINGS; i++) {
        snprintf(other, sizeof other, "%s%s", path, endings[i]);
        if (!stat(other, &st)) {
            snprintf(out, size, "%s", other);
            return true;
        }
    }
    return false;
}

static bool is_zero(const char *bytes, size_t length)
{
    return !bytes[0] && !memcmp(bytes, bytes + 1, length - 1);
}

bool download_has_zeros(const char *path, uint32_t samples,
                        uint64_t *offset_bytes)
{
    uint64_t size;
    struct timespec now;
    bool found = false;
    char *piece = malloc(PIECE_BYTES);
    int fd = slurp_open(path, &size, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t state = (uint64_t)now.tv_nsec * 2654435761u | 1;
    for (uint32_t i = 0; piece && fd >= 0 && size >= PIECE_BYTES && !found &&
                         i < samples; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        /* one in each of as many parts, anywhere in it */
        uint64_t part = (size - PIECE_BYTES) / samples;
        uint64_t at = part * i + (part ? state % part : 0);
        if (slurp_at(fd, piece, PIECE_BYTES, at, path, NULL))
            break;
        found = is_zero(piece, PIECE_BYTES);
        *offset_bytes = at;
    }
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    free(piece);
    return found;
}

void download_note(char out[DOWNLOAD_NOTE_BYTES], const char *dir)
{
    struct shards shards;
    char control[PATH_BYTES];
    uint64_t at;
    out[0] = 0;
    if (download_is_synthetic(dir) || shards_list(&shards, dir, NULL))
        return;
    if (download_unfinished(control, sizeof control, dir))
        snprintf(out, DOWNLOAD_NOTE_BYTES, "%.240s is there: a download has "
                 "not ended, and the output may be wrong; sluice verify reads "
                 "everything", control);
    for (uint32_t i = 0; i < shards.count && !out[0]; i++)
        if (download_has_zeros(shards.path[i], NOTE_SAMPLES, &at))
            snprintf(out, DOWNLOAD_NOTE_BYTES, "%.200s has 64 KiB of zeros at "
                     "%llu: was it ever written? The output may be wrong; "
                     "sluice verify reads everything", shards.path[i],
                     (unsigned long long)at);
    shards_free(&shards);
}

/* Of the folders in `dir` that have a config.json, below `inside`, the one that
 * changed last. */
static bool newest(char *out, size_t size, const char *dir, const char *inside)
{
    struct dirent *entry;
    struct stat st;
    time_t best = 0;
    bool found = false;
    DIR *d = opendir(dir);
    while (d && (entry = readdir(d))) {
        char path[PATH_BYTES], config[PATH_BYTES + 16];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s%s", dir, entry->d_name, inside);
        if (inside[0] && newest(out, size, path, ""))
            found = true;
        snprintf(config, sizeof config, "%s/config.json", path);
        if (inside[0] || stat(config, &st) || (found && st.st_mtime < best))
            continue;
        found = true;
        best = st.st_mtime;
        snprintf(out, size, "%s", path);
    }
    if (d)
        closedir(d);
    return found;
}

bool download_snapshot(char *out, size_t size, const char *dir)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/snapshots", dir);
    return newest(out, size, path, "") || newest(out, size, dir, "") ||
           newest(out, size, dir, "/snapshots");
}

bool download_is_synthetic(const char *dir)
{
    char path[PATH_BYTES], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (slurp_file(&text, &length, path, CONFIG_BYTES_MAX, NULL))
        return false;
    const char *name = strstr(text, "\"_name_or_path\"");
    name = name ? strchr(name, ':') : NULL;
    name = name ? name + 1 + strspn(name + 1, " \t\r\n\"") : "";
    bool synthetic = !strncmp(name, "sluice-synth/", 13);
    free(text);
    return synthetic;
}
