#include "bench/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>


static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct bench_spread bench_spread(const double *values, size_t count)
{
    struct bench_spread s = { 0 };
    double *sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted || !count) {
        free(sorted);
        return s;
    }
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    s.min = sorted[0];
    s.max = sorted[count - 1];
    s.median = count % 2 ? sorted[count / 2]
                         : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    free(sorted);
    return s;
}

const char *bench_stamp(void)
{
    static char stamp[96];
    char commit[32] = "unknown";
    time_t now = time(NULL);
    if (stamp[0])
        return stamp;
    FILE *git = popen("git rev-parse --short HEAD 2>/dev/null", "r");
    if (git) {
        if (fgets(commit, sizeof commit, git))
            commit[strcspn(commit, "\n")] = 0;
        pclose(git);
    }
    size_t n = strftime(stamp, 32, "%Y-%m-%dT%H:%M ", gmtime(&now));
    snprintf(stamp + n, sizeof stamp - n, "%s", commit);
    return stamp;
}

FILE *bench_results(const char *name, const char *header)
{
    char path[256];
    struct stat st;
    mkdir("bench/results", 0777);
    snprintf(path, sizeof path, "bench/results/%s.tsv", name);
    bool fresh = stat(path, &st) || !st.st_size;
    FILE *f = fopen(path, "a");
    if (!f)
        fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
    else if (fresh)
        fprintf(f, "%s\n", header);
    return f;
}

int bench_json(const char *name, json_t *array)
{
    char path[256];
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    snprintf(path, sizeof path, "build/bench/%s.json", name);
    int err = json_dump_file(array, path, JSON_INDENT(1));
    if (err)
        fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
    json_decref(array);
    return err ? 1 : 0;
}

int bench_model(const struct synth_options *o)
{
    char index[4096];
    struct stat st;
    struct synth_facts facts;
    struct error error = { 0 };
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", o->dir);
    if (!stat(index, &st))
        return 0;
    fprintf(stderr, "bench: writing %s, once\n", o->dir);
    if (!synth_write(o, &facts, &error))
        return 0;
    fprintf(stderr, "bench: %s\n", error.text);
    return 1;
}
