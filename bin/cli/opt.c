#include "bin/cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 30 };

const char *opt_program = "sluice";
static const struct opt_command *latest;

bool opt_takes(const char *name)
{
    for (size_t i = 0; latest && i < latest->count; i++)
        if (!strcmp(latest->table[i].name, name))
            return true;
    return false;
}

int opt_status(int parsed)
{
    return parsed == OPT_HELPED ? 0 : 2;
}

int opt_usage_error(const struct opt_command *cmd, const char *format, ...)
{
    va_list args;
    fputs("sluice: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nusage: %s\n", cmd->usage);
    const char *name = cmd->usage + strlen("sluice ");
    fprintf(stderr, "%s %.*s --help shows the options\n", opt_program,
            (int)strcspn(name, " "), name);
    return 2;
}

static int whole(uint64_t *out, const char *text)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return -1;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno || *end ? -1 : 0;
}

int opt_size(uint64_t *out, const char *text)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return -1;
    errno = 0;
    double number = strtod(text, &end);
    if (end != text + strspn(text, "0123456789.")) /* 1e9, 0x10 */
        return -1;
    static const char units[] = "KMGT";
    unsigned shift = 0;
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit)
            return -1;
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
        end += *end == 'i' || *end == 'I';
        end += *end == 'B' || *end == 'b';
    }
    if (errno || *end)
        return -1;
    double bytes = number * (double)(1ull << shift);
    if (!(bytes >= 1 && bytes < 9e18))
        return -1;
    *out = shift ? (uint64_t)bytes : strtoull(text, NULL, 10);
    return !shift && number != floor(number) ? -1 : 0;
}

/* Text at column `at`, where `from` columns are already written, in lines of
 * at most 79 and no space at their ends. */
static void print_wrapped(const char *text, int from, int at)
{
    int column = from;
    while (*text) {
        int word = (int)strcspn(text, " \n");
        if (column > at && column + 1 + word > 79) {
            putchar('\n');
            column = 0;
        }
        printf("%*s%.*s", column > at ? 1 : at - column, "", word, text);
        column = (column > at ? column + 1 : at) + word;
        text += word;
        if (*text == '\n') {
            putchar('\n');
            column = 0;
        }
        text += *text != 0;
    }
    putchar('\n');
}

void opt_choice(const char *name, const char *about)
{
    print_wrapped(about, printf("  %s", name), HELP_COLUMN);
}

static void print_help(const struct opt_command *cmd)
{
    printf("usage: %s\n", cmd->usage);
    if (cmd->about)
        print_wrapped(cmd->about, 0, 0);
    putchar('\n');
    for (size_t i = 0; i < cmd->count; i++) {
        const struct opt *o = &cmd->table[i];
        if (!o->help)
            continue;
        if (o->kind == OPT_CHOICES) {
            printf("\n%s\n", o->help);
            o->call(o->value, NULL);
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
                 o->metavar ? " " : "", o->metavar ? o->metavar : "");
        int wide = printf("  %s", left);
        if (wide > HELP_COLUMN - 2 && o->help[0]) {
            putchar('\n');
            wide = 0;
        }
        print_wrapped(o->help, wide, HELP_COLUMN);
    }
}

const char opt_no_stream[] =
    "is no file here: use /dev/stdin, /dev/stdout or ./-";

static bool is_path(const char *metavar)
{
    static const char *const names[] = { "FILE", "DIR", "PATH", "TRACE",
                                         "REPORT", "MODEL" };
    size_t n = metavar ? strlen(metavar) : 0;
    if (n < 2 || !strcmp(metavar + n - 2, "|-"))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(metavar, names[i]))
            return true;
    return false;
}

/* Returns NULL or what is wrong with the value. */
static const char *take(const struct opt *o, const char *value)
{
    char *end;
    if (value && !strcmp(value, "-") && is_path(o->metavar))
        return opt_no_stream;
    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)o->value = true;
        return NULL;
    case OPT_TEXT:
        *(const char **)o->value = value;
        return NULL;
    case OPT_UINT:
        return whole(o->value, value) ? "is not a whole number" : NULL;
    case OPT_SIZE:
        return opt_size(o->value, value) ? "is not a size like 8G or 512M"
                                         : NULL;
    case OPT_REAL:
        *(double *)o->value = strtod(value, &end);
        return *end || end == value || !isfinite(*(double *)o->value)
                   ? "is not a number"
                   : NULL;
    case OPT_CALL:
        return o->call(o->value, value);
    case OPT_CHOICES:
        break;
    }
    return NULL;
}

static const struct opt *find(const struct opt_command *cmd, const char *word,
                              const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < cmd->count; i++) {
        const struct opt *o = &cmd->table[i];
        if (o->kind == OPT_CHOICES)
            continue;
        if (word[1] != '-') {
            if (o->letter && word[1] == o->letter) {
                *value = word[2] ? word + 2 : NULL;
                return o;
            }
            continue;
        }
        size_t length = strlen(o->name);
        if (strncmp(word + 2, o->name, length))
            continue;
        if (word[2 + length] == '=')
            *value = word + 3 + length;
        else if (word[2 + length])
            continue;
        return o;
    }
    return NULL;
}

int opt_parse(const struct opt_command *cmd, int argc, char **argv,
              const char **words, int max)
{
    int count = 0;
    bool ended = false;
    latest = cmd;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (ended || word[0] != '-' || !word[1]) {
            if (!*word) { /* "$MODEL", which is not set */
                opt_usage_error(cmd, "a word is empty");
                return OPT_WRONG;
            }
            if (!ended && !strcmp(word, "-")) {
                opt_usage_error(cmd, "- %s", opt_no_stream);
                return OPT_WRONG;
            }
            if (count == max) {
                opt_usage_error(cmd, "%s is one word too many", word);
                return OPT_WRONG;
            }
            words[count++] = word;
            continue;
        }
        if (!strcmp(word, "--")) {
            ended = true;
            continue;
        }
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            print_help(cmd);
            return OPT_HELPED;
        }
        const char *value;
        const struct opt *o = find(cmd, word, &value);
        if (!o) {
            opt_usage_error(cmd, "unknown option %s", word);
            return OPT_WRONG;
        }
        if (o->kind == OPT_FLAG && value) {
            opt_usage_error(cmd, "--%s takes no value", o->name);
            return OPT_WRONG;
        }
        if (o->kind != OPT_FLAG && !value && ++i < argc)
            value = argv[i];
        if (o->kind != OPT_FLAG && !value) {
            opt_usage_error(cmd, "--%s needs a value", o->name);
            return OPT_WRONG;
        }
        const char *wrong = take(o, value);
        if (wrong) {
            opt_usage_error(cmd, "--%s: %s %s", o->name, value, wrong);
            return OPT_WRONG;
        }
    }
    return count;
}

int opt_parse_one(const struct opt_command *cmd, int argc, char **argv,
                  const char **word, const char *needs)
{
    int words = opt_parse(cmd, argc, argv, word, 1);
    if (words < 0)
        return opt_status(words);
    return words ? -1 : opt_usage_error(cmd, "%s", needs);
}
