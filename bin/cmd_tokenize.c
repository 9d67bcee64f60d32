/* cmd_tokenize.c - sluice tokenize: text to ids and back. */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/chat_lines.h"
#include "bin/cli/opt.h"
#include "bin/cli/session.h"
#include "bin/cmd.h"
#include "model/ckpt/error.h"
#include "model/text/tok.h"
#include "model/json/mark.h"
#include "model/json/utf8.h"

struct options {
    const char *text, *file;
    bool        lines, decode, special, chat, reply;
};

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The state of the command. Buffers grow and are reused for every line. */
struct work {
    struct options o;
    struct tok    *tok;
    FILE          *in;
    const char    *name; /* of the input, for sentences */
    size_t         line; /* number, from 1; 0: not line by line */
    char          *text; /* what was read, [text_room], of which `bytes` */
    size_t         text_room, bytes;
    struct id_list ids;
    struct buffer  said; /* of a chat */
    bool           refused;
    char          *out; /* what was decoded, [out_room] */
    size_t         out_room, out_bytes;
};

static int complain(const struct work *w, const char *sentence)
{
    fflush(stdout);
    if (w->line)
        fprintf(stderr, "sluice: %s: line %zu: %s\n", w->name, w->line,
                sentence);
    else
        fprintf(stderr, "sluice: %s: %s\n", w->name, sentence);
    return 1;
}

static int reserve(char **buffer, size_t *room, size_t need)
{
    if (need <= *room)
        return 0;
    size_t more = need < 4096 ? 4096 : need + need / 2;
    char *grown = realloc(*buffer, more);
    if (!grown)
        return -ENOMEM;
    *buffer = grown;
    *room = more;
    return 0;
}

/* Read all of the input. Returns 0 or 1 after a sentence. */
static int read_all(struct work *w)
{
    size_t got;
    do {
        if (reserve(&w->text, &w->text_room, w->bytes + 65536))
            return complain(w, strerror(ENOMEM));
        got = fread(w->text + w->bytes, 1, w->text_room - w->bytes, w->in);
        w->bytes += got;
    } while (got > 0);
    return ferror(w->in) ? complain(w, strerror(errno)) : 0;
}

/* The first line must be UTF-8, and loses the mark of it. Returns 1, or -1
 * after a sentence. */
static int check_mark(struct work *w)
{
    size_t skip;
    const char *what = text_mark(w->text, w->bytes, &skip);
    if (what) {
        complain(w, what);
        return -1;
    }
    w->bytes -= skip;
    memmove(w->text, w->text + skip, w->bytes + 1);
    return 1;
}

/* Read the next line without its end. Returns 1, 0 at the end of the input, or
 * -1 after a sentence. */
static int read_line(struct work *w)
{
    errno = 0;
    ssize_t got = getline(&w->text, &w->text_room, w->in);
    w->line++;
    if (got < 0) {
        if (feof(w->in) && !ferror(w->in))
            return 0;
        complain(w, strerror(errno));
        return -1;
    }
    w->bytes = (size_t)got;
    if (w->bytes > 0 && w->text[w->bytes - 1] == '\n')
        w->bytes--;
    if (w->bytes > 0 && w->text[w->bytes - 1] == '\r')
        w->bytes--;
    w->text[w->bytes] = 0;
    return w->line == 1 ? check_mark(w) : 1;
}

static int encode(struct work *w, const char *text, size_t bytes)
{
    w->ids.count = 0;
    if (tok_encode(w->tok, text, bytes, w->o.special, &w->ids))
        return complain(w, strerror(ENOMEM));
    for (size_t i = 0; i < w->ids.count; i++)
        printf(i ? ",%u" : "%u", w->ids.ids[i]);
    putchar('\n');
    return 0;
}

static int encode_json(struct work *w)
{
    json_error_t at;
    json_t *value = json_loadb(w->text, w->bytes,
                               JSON_DECODE_ANY | JSON_ALLOW_NUL, &at);
    int status;
    if (json_is_string(value))
        status = encode(w, json_string_value(value), json_string_length(value));
    else
        status = complain(w, "not a JSON string");
    json_decref(value);
    return status;
}

static const char *skip_blanks(const char *c)
{
    return c + strspn(c, " \t");
}

/* Append the bytes of one token, written with these digits, to w->out. */
static int append(struct work *w, const char *digits, size_t count)
{
    char sentence[120];
    const char *piece = NULL;
    uint64_t id = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < count && id <= UINT32_MAX; i++)
        id = 10 * id + (uint64_t)(digits[i] - '0');
    if (id <= UINT32_MAX)
        bytes = tok_piece(w->tok, (uint32_t)id, &piece);
    if (bytes == 0) {
        snprintf(sentence, sizeof sentence,
                 "id %.*s is not below %u, the size of the vocabulary",
                 count < 20 ? (int)count : 20, digits, tok_vocab(w->tok));
        return complain(w, sentence);
    }
    if (reserve(&w->out, &w->out_room, w->out_bytes + bytes))
        return complain(w, strerror(ENOMEM));
    memcpy(w->out + w->out_bytes, piece, bytes);
    w->out_bytes += bytes;
    return 0;
}

/* Decode one line of ids into w->out; a line of blanks has none. */
static int decode(struct work *w)
{
    const char *c = skip_blanks(w->text), *end = w->text + w->bytes;
    w->out_bytes = 0;
    while (c < end) {
        size_t digits = strspn(c, "0123456789");
        const char *after = skip_blanks(c + digits);
        bool more = after < end && *after == ',';
        const char *next = more ? skip_blanks(after + 1) : after;
        if (digits == 0 || more != (next < end))
            return complain(w, "not a list of comma-separated ids");
        int status = append(w, c, digits);
        if (status)
            return status;
        c = next;
    }
    return 0;
}

/* Copy w->out to `to`, with U+FFFD for bytes that are not UTF-8: one for each
 * longest prefix of a character, as Python's "replace" does. Returns the
 * length. */
static size_t replace_invalid(const struct work *w, char *to)
{
    size_t length = 0;
    for (size_t i = 0; i < w->out_bytes;) {
        uint32_t cp;
        size_t left = w->out_bytes - i;
        int got = utf8_next(w->out + i, left, &cp);
        size_t used = got > 0 ? (size_t)got : got < 0 ? (size_t)-got : left;
        if (got > 0)
            memcpy(to + length, w->out + i, used);
        else
            memcpy(to + length, REPLACEMENT, sizeof REPLACEMENT - 1);
        length += got > 0 ? used : sizeof REPLACEMENT - 1;
        i += used;
    }
    return length;
}

/* Print w->out as a JSON string in ASCII: some readers end a line at U+2028
 * too. */
static int print_json(struct work *w)
{
    char *text = malloc(w->out_bytes * (sizeof REPLACEMENT - 1) + 1);
    size_t length = text ? replace_invalid(w, text) : 0;
    json_t *value = text ? json_stringn(text, length) : NULL;
    char *line = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    int status = line ? 0 : complain(w, strerror(ENOMEM));
    if (line)
        puts(line); /* run checks for write errors at the end */
    free(line);
    json_decref(value);
    free(text);
    return status;
}

/* A chat request or a reply; the line that is printed tells of a refusal. */
static int chat_line(struct work *w)
{
    int status = w->o.chat
                     ? chat_lines_encode(w->tok, w->text, w->bytes, &w->said)
                     : chat_lines_reply(w->tok, w->text, w->bytes, &w->said);
    if (status < 0)
        return complain(w, strerror(ENOMEM));
    w->refused |= status;
    fwrite(w->said.bytes, 1, w->said.count, stdout);
    putchar('\n'); /* a failed write is found at the end */
    return 0;
}

static int each_line(struct work *w)
{
    for (;;) {
        int got = read_line(w);
        if (got <= 0)
            return got < 0;
        int status = w->o.chat || w->o.reply ? chat_line(w)
                     : w->o.decode           ? decode(w)
                                             : encode_json(w);
        if (!status && w->o.decode && w->o.lines)
            status = print_json(w);
        else if (!status && w->o.decode)
            fwrite(w->out, 1, w->out_bytes, stdout);
        if (status)
            return status;
    }
}

/* Open the input and set its name. NULL and errno on failure. */
static FILE *open_input(struct work *w)
{
    if (w->o.file && !strcmp(w->o.file, "-"))
        w->o.file = NULL;
    w->name = w->o.text ? "-p" : w->o.file ? w->o.file : "stdin";
    if (w->o.text)
        return fmemopen((void *)(uintptr_t)w->o.text, strlen(w->o.text), "r");
    return w->o.file ? fopen(w->o.file, "re") : stdin;
}

static int run(struct work *w)
{
    w->in = open_input(w);
    if (!w->in)
        return complain(w, strerror(errno));
    int status;
    if (w->o.lines || w->o.decode)
        status = each_line(w);
    else
        status = read_all(w) || encode(w, w->text, w->bytes);
    if (w->in != stdin)
        fclose(w->in);
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        w->name = "stdout";
        w->line = 0;
        status = complain(w, strerror(errno));
    }
    return status ? status : w->refused;
}

int cmd_tokenize(int argc, char **argv)
{
    struct work w = { 0 };
    const struct opt table[] = {
        { "prompt", 'p', OPT_TEXT, &w.o.text, "TEXT", "the input",
          NULL },
        { "file", 'f', OPT_TEXT, &w.o.file, "FILE|-",
          "a file with the input; default: stdin", NULL },
        { "lines", 0, OPT_FLAG, &w.o.lines, NULL,
          "work line by line; text is one JSON string a line", NULL },
        { "decode", 0, OPT_FLAG, &w.o.decode, NULL, "from ids to text", NULL },
        { "special", 0, OPT_FLAG, &w.o.special, NULL,
          "turn special tokens in the text into their ids", NULL },
        { "chat", 0, OPT_FLAG, &w.o.chat, NULL,
          "each line is the body of a chat request", NULL },
        { "reply", 0, OPT_FLAG, &w.o.reply, NULL,
          "each line is {\"ids\": [...]}, a reply; print its message", NULL },
    };
    const struct opt_command command = {
        .usage = "sluice tokenize MODEL [-p TEXT | -f FILE] [--decode] "
                 "[options]",
        .about = "Turn text into comma-separated token ids, or ids into text "
                 "with --decode. The folder MODEL needs only tiktoken.model "
                 "and tokenizer_config.json. Special tokens are decoded to "
                 "their text. Bytes that are not UTF-8 are written as they "
                 "are; with --lines, as U+FFFD.",
        .table = table,
        .count = sizeof table / sizeof *table,
    };
    const char *dir;
    int ended = opt_parse_one(&command, argc, argv, &dir,
                              "tokenize needs the folder of a model");
    if (ended >= 0)
        return ended;
    if (w.o.text && w.o.file)
        return opt_usage_error(&command, "give -p or -f, not both");
    if ((w.o.chat || w.o.reply) && !w.o.lines)
        return opt_usage_error(&command, "--chat and --reply need --lines");
    if (w.o.chat + w.o.reply + w.o.decode + w.o.special > 1)
        return opt_usage_error(&command, "give one of --chat, --reply, "
                                         "--decode and --special");
    struct error error = { 0 };
    if (tok_open(&w.tok, dir, &error))
        return session_failed(dir, &error);
    if (w.o.lines) /* a program that writes a line can wait for its answer */
        setvbuf(stdout, NULL, _IOLBF, 0);
    int status = run(&w);
    tok_close(w.tok);
    id_list_free(&w.ids);
    buffer_free(&w.said);
    free(w.text);
    free(w.out);
    return status;
}
