/* embed.c - another program with Kimi K3 inside: embed FOLDER TEXT */
#include <sluice.h>
#include <stdio.h>
#include <string.h>

static bool say(void *arg, const struct sluice_token *t)
{
    (void)arg;
    fwrite(t->text, 1, t->bytes, stdout);
    return fflush(stdout) != 0; /* nobody listens: stop */
}

int main(int argc, char **argv)
{
    struct sluice *s;
    struct sluice_error e;
    struct sluice_ids prompt = { 0 };
    struct sluice_options o = { .size = sizeof o, .context = 256 };
    struct sluice_request r = { .size = sizeof r, .max_ids = 8,
                                .ignore_end = true, .token = say };
    if (argc != 3 || sluice_open(&s, argv[1], &o, &e)) {
        fprintf(stderr, "embed: %s\n", argc == 3 ? e.text : "FOLDER TEXT");
        return 1;
    }
    sluice_tokenize(sluice_text_of(s), argv[2], strlen(argv[2]), &prompt);
    r.ids = prompt.ids;
    r.count = (uint32_t)prompt.count;
    int err = sluice_generate(s, &r, &e);
    if (err)
        fprintf(stderr, "embed: %s\n", e.text);
    struct sluice_counters c;
    sluice_counters(s, &c, sizeof c);
    fprintf(stderr, "%llu ids, %llu bytes read\n",
            (unsigned long long)c.new_ids, (unsigned long long)c.read_bytes);
    sluice_ids_free(&prompt);
    sluice_close(s);
    return err != 0;
}
