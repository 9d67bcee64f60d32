/* cmd_compare.c - sluice compare: reports of two set-ups side by side. */
#include <stdlib.h>
#include <string.h>

#include "bin/cli/json.h"
#include "bin/cli/opt.h"
#include "bin/cmd.h"
#include "bin/report/compare.h"

int cmd_compare(int argc, char **argv)
{
    bool json = false;
    const struct opt table[] = {
        { "json", 0, OPT_FLAG, &json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice compare A.json B.json\n"
        "       sluice compare A.json... -- B.json...",
        "Say what differs between two runs, or two groups of runs of one "
        "set-up each, in set-up and in result. The files are what --report of "
        "run and batch wrote. With two or more runs in each group a result is "
        "said to differ only when the difference is more than the noise of "
        "the runs: one false alarm in twenty comparisons. The ranges are of "
        "the ratio of the means.",
        table, sizeof table / sizeof *table,
    };
    const char **words = calloc((size_t)argc + 1, sizeof *words);
    struct compare c = { 0 };
    struct error error = { 0 };
    int split = argc, err = 0;
    if (!words)
        return 1;
    for (int i = 1; i < argc && split == argc; i++)
        if (!strcmp(argv[i], "--"))
            split = i;
    int n = opt_parse(&cmd, split, argv, words, argc);
    int status = n < 0 ? opt_status(n) : 0;
    bool groups = split < argc;
    if (n >= 0 && (groups ? n < 1 || argc - split < 2 : n != 2))
        status = opt_usage_error(&cmd, groups ? "each side of -- needs a report"
                                              : "compare needs two reports, or "
                                                "two groups with -- between");
    if (n < 0 || status) {
        free(words);
        return status;
    }
    for (int i = 0; i < n && !err; i++)
        err = compare_add(&c, groups ? 0 : i, words[i], &error);
    for (int i = split + 1; i < argc && !err; i++)
        err = compare_add(&c, 1, argv[i], &error);
    free(words);
    if (err) {
        fprintf(stderr, "sluice: %s\n", error.text);
    } else if (json) {
        err = json_print(compare_json(&c), JSON_INDENT(1));
    } else {
        compare_print(stdout, &c);
    }
    compare_free(&c);
    return err ? 1 : 0;
}
