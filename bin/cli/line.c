#include "bin/cli/line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "bin/cli/speak.h"

#ifdef HAVE_LIBEDIT
#include <histedit.h>
#endif

enum { HISTORY = 500 };

struct line_reader {
    const char *prompt;
    bool    ask;  /* somebody sees the prompt */
    char   *text; /* from getline */
    size_t  room;
#ifdef HAVE_LIBEDIT
    EditLine *editor; /* NULL: not on this terminal */
    History  *history;
#endif
};

#ifdef HAVE_LIBEDIT
static char *prompt_of(EditLine *e)
{
    struct line_reader *l = NULL;
    el_get(e, EL_CLIENTDATA, &l);
    return (char *)l->prompt;
}

static void open_editor(struct line_reader *l)
{
    HistEvent event;
    if (!isatty(STDIN_FILENO) || !speak_is_terminal())
        return;
    l->editor = el_init("sluice", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->editor || !l->history)
        return;
    el_set(l->editor, EL_CLIENTDATA, l);
    el_set(l->editor, EL_PROMPT, prompt_of);
    el_set(l->editor, EL_EDITOR, "emacs");
    history(l->history, &event, H_SETSIZE, HISTORY);
    el_set(l->editor, EL_HIST, history, l->history);
    el_source(l->editor, NULL); /* ~/.editrc */
}

static int read_edited(struct line_reader *l, const char **text,
                       size_t *bytes)
{
    HistEvent event;
    int count = 0;
    errno = 0;
    *text = el_gets(l->editor, &count);
    if (!*text || count <= 0)
        return count < 0 && errno == EINTR ? -EINTR : 0;
    *bytes = strcspn(*text, "\r\n");
    if (*bytes)
        history(l->history, &event, H_ENTER, *text);
    return 1;
}
#endif

struct line_reader *line_open(const char *prompt)
{
    struct line_reader *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->prompt = prompt;
    l->ask = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
#ifdef HAVE_LIBEDIT
    open_editor(l);
#endif
    return l;
}

int line_read(struct line_reader *l, const char **text, size_t *bytes)
{
#ifdef HAVE_LIBEDIT
    if (l->editor && l->history)
        return read_edited(l, text, bytes);
#endif
    if (l->ask) {
        fputs(l->prompt, stdout);
        fflush(stdout);
    }
    errno = 0;
    ssize_t n = getline(&l->text, &l->room, stdin);
    if (n < 0) {
        int err = errno == EINTR ? -EINTR : 0;
        clearerr(stdin);
        return err;
    }
    while (n > 0 && (l->text[n - 1] == '\n' || l->text[n - 1] == '\r'))
        n--;
    *text = l->text;
    *bytes = (size_t)n;
    return 1;
}

void line_close(struct line_reader *l)
{
    if (!l)
        return;
#ifdef HAVE_LIBEDIT
    if (l->history)
        history_end(l->history);
    if (l->editor)
        el_end(l->editor);
#endif
    free(l->text);
    free(l);
}
