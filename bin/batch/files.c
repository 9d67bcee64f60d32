#include "bin/batch/files.h"

#include <stdio.h>
#include <string.h>

#include "bin/cli/outputs.h"

int batch_files_check(const struct session_args *a, const char *model,
                      const char *in, const char *out, struct error *error)
{
    bool named = strcmp(out, "-") != 0;
    char held[4096 + 16], partial[4096 + 16];
    snprintf(held, sizeof held, "%s.held", out);
    snprintf(partial, sizeof partial, "%s.partial", out);
    const struct output_file own[] = {
        { .option = "--input", .path = strcmp(in, "-") ? in : OUTPUTS_STDIN,
          .read = true },
        { .option = named ? "--output" : "stdout",
          .path = named ? out : OUTPUTS_STDOUT },
        { .option = "the .held of --output", .path = named ? held : NULL },
        { .option = "the .partial of --output",
          .path = named ? partial : NULL },
    };
    return session_files(a, model, own, sizeof own / sizeof *own, true, error);
}
