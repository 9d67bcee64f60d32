/* regex.c - patterns to nondeterministic automata, by Thompson's construction.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/dfa_internal.h"
#include "model/json/utf8.h"

enum { NODES_MAX = 100000, REPEAT_MAX = 10000, GROUPS_MAX = 200 };

struct parser {
    struct nfa *n;
    const char *pattern;
    size_t bytes, at;
    struct error *error;
    int err, depth;
};

/* A piece of the automaton: from `start`, leaving by `end`, a split node whose
 * `to` is not set yet. */
struct piece {
    uint32_t start, end;
};

static int refuse(struct parser *p, const char *what)
{
    if (!p->err)
        p->err = error_set(p->error, -EINVAL, "pattern, at byte %zu: %s", p->at,
                           what);
    return p->err;
}

static uint32_t node(struct parser *p, enum nfa_kind kind)
{
    struct nfa *n = p->n;
    if (n->nodes == NODES_MAX && !p->err)
        p->err = error_set(p->error, -EINVAL, "pattern: too large");
    if (p->err)
        return 0;
    if (n->nodes == n->node_room) {
        uint32_t room = n->node_room ? 2 * n->node_room : 64;
        struct nfa_node *bigger = realloc(n->node, room * sizeof *bigger);
        if (!bigger) {
            p->err = -ENOMEM;
            return 0;
        }
        n->node = bigger;
        n->node_room = room;
    }
    n->node[n->nodes] = (struct nfa_node){ .kind = kind };
    return n->nodes++;
}

static void add_range(struct parser *p, uint32_t low, uint32_t high)
{
    struct nfa *n = p->n;
    if (p->err)
        return;
    if (n->ranges == n->range_room) {
        uint32_t room = n->range_room ? 2 * n->range_room : 64;
        struct char_range *bigger = realloc(n->range, room * sizeof *bigger);
        if (!bigger) {
            p->err = -ENOMEM;
            return;
        }
        n->range = bigger;
        n->range_room = room;
    }
    n->range[n->ranges++] = (struct char_range){ low, high };
}

static int by_low(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

/* Sort the ranges from `first` on, join them, and turn them over if `not`. */
static void tidy_ranges(struct parser *p, uint32_t first, bool not )
{
    struct nfa *n = p->n;
    struct char_range *r = n->range + first;
    uint32_t count = n->ranges - first, kept = 0;
    if (p->err || (!count && !not ))
        return;
    if (count)
        qsort(r, count, sizeof *r, by_low);
    for (uint32_t i = 0; i < count; i++)
        if (kept && r[i].low <= r[kept - 1].high + 1)
            r[kept - 1].high =
                r[i].high > r[kept - 1].high ? r[i].high : r[kept - 1].high;
        else
            r[kept++] = r[i];
    n->ranges = first + kept;
    if (!not )
        return;
    uint32_t low = 0;
    for (uint32_t i = 0; i < kept && !p->err; i++) {
        struct char_range gap = n->range[first + i];
        if (gap.low > low)
            add_range(p, low, gap.low - 1);
        low = gap.high + 1;
    }
    if (low <= DFA_CHAR_MAX)
        add_range(p, low, DFA_CHAR_MAX);
    if (p->err)
        return;
    uint32_t gaps = n->ranges - first - kept;
    memmove(n->range + first, n->range + first + kept, gaps * sizeof *n->range);
    n->ranges = first + gaps;
}

/* A node that takes a character of the ranges from `first` on. */
static struct piece chars(struct parser *p, uint32_t first)
{
    uint32_t start = node(p, NFA_CHARS), end = node(p, NFA_SPLIT);
    if (p->err)
        return (struct piece){ 0, 0 };
    p->n->node[start].range = first;
    p->n->node[start].ranges = p->n->ranges - first;
    p->n->node[start].to = end;
    return (struct piece){ start, end };
}

static void join(struct parser *p, uint32_t from, uint32_t to)
{
    if (!p->err) {
        p->n->node[from].to = to;
        p->n->node[from].other = to;
    }
}

/* ---- characters ---- */

static bool more(const struct parser *p)
{
    return !p->err && p->at < p->bytes;
}

static bool take(struct parser *p, char c)
{
    if (!more(p) || p->pattern[p->at] != c)
        return false;
    p->at++;
    return true;
}

static uint32_t next_char(struct parser *p)
{
    uint32_t c = 0;
    int n = more(p) ? utf8_next(p->pattern + p->at, p->bytes - p->at, &c) : 0;
    if (n <= 0) {
        refuse(p, more(p) ? "not UTF-8" : "it ends too soon");
        return 0;
    }
    p->at += (size_t)n;
    return c;
}

static uint32_t hex(struct parser *p, int digits)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        char c = more(p) ? p->pattern[p->at] : 0;
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
        if (d < 0) {
            refuse(p, "not a hexadecimal digit");
            return 0;
        }
        value = value << 4 | (uint32_t)d;
        p->at++;
    }
    return value;
}

static uint32_t unicode_escape(struct parser *p)
{
    if (take(p, '{')) {
        uint32_t value = 0;
        while (more(p) && !take(p, '}'))
            if ((value = value << 4 | hex(p, 1)) > DFA_CHAR_MAX)
                refuse(p, "beyond U+10FFFF");
        return value;
    }
    uint32_t c = hex(p, 4);
    if (c >= 0xd800 && c < 0xdc00 && p->at + 6 <= p->bytes &&
        p->pattern[p->at] == '\\' && p->pattern[p->at + 1] == 'u') {
        p->at += 2;
        uint32_t low = hex(p, 4);
        if (low >= 0xdc00 && low < 0xe000)
            return 0x10000 + (c - 0xd800) * 0x400 + (low - 0xdc00);
        refuse(p, "half a surrogate pair");
    }
    return c;
}

static const struct char_range digits[] = { { '0', '9' } };
static const struct char_range words[] = {
    { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' }
};
static const struct char_range blanks[] = {
    { 0x09, 0x0d },     { 0x20, 0x20 },     { 0xa0, 0xa0 },
    { 0x1680, 0x1680 }, { 0x2000, 0x200a }, { 0x2028, 0x2029 },
    { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
    { 0xfeff, 0xfeff },
};

static void add_class(struct parser *p, char which)
{
    static const struct {
        char letter;
        const struct char_range *r;
        size_t n;
    } table[] = { { 'd', digits, 1 }, { 'w', words, 4 }, { 's', blanks, 10 } };
    for (size_t i = 0; i < 3; i++) {
        if ((which | 32) != table[i].letter)
            continue;
        uint32_t low = 0;
        for (size_t j = 0; j < table[i].n; j++) {
            struct char_range r = table[i].r[j];
            if (which & 32)
                add_range(p, r.low, r.high);
            else if (r.low > low)
                add_range(p, low, r.low - 1);
            low = r.high + 1;
        }
        if (!(which & 32))
            add_range(p, low, DFA_CHAR_MAX);
    }
}

/* Behind a backslash: a class, whose ranges are added, or one character. True:
 * a class. */
static bool escape(struct parser *p, uint32_t *c, bool in_class)
{
    static const char letters[] = "tnrfv0", values[] = "\t\n\r\f\v";
    uint32_t e = next_char(p);
    *c = e;
    if (p->err)
        return false;
    if (e < 128 && e && strchr("dDwWsS", (int)e)) {
        add_class(p, (char)e);
        return true;
    }
    const char *known = e < 128 && e ? strchr(letters, (int)e) : NULL;
    if (known)
        *c = (uint8_t)values[known - letters];
    else if (e == 'x')
        *c = hex(p, 2);
    else if (e == 'u')
        *c = unicode_escape(p);
    else if (e == 'c')
        *c = next_char(p) & 31;
    else if (e == 'b' && in_class)
        *c = '\b';
    else if ((e >= '1' && e <= '9') ||
             (e < 128 && e && strchr("bBpPk", (int)e)))
        refuse(p, "back references, \\b, \\B and \\p are not supported");
    else if ((e | 32) >= 'a' && (e | 32) <= 'z')
        refuse(p, "an unknown escape");
    return false;
}

static struct piece bracket(struct parser *p)
{
    uint32_t first = p->n->ranges;
    bool not = take(p, '^');
    while (more(p) && !take(p, ']')) {
        uint32_t low, high;
        bool class = false;
        if (take(p, '\\'))
            class = escape(p, &low, true);
        else
            low = next_char(p);
        high = low;
        if (!class && p->at + 1 < p->bytes && p->pattern[p->at] == '-' &&
            p->pattern[p->at + 1] != ']') {
            p->at++;
            if (take(p, '\\') && escape(p, &high, true))
                refuse(p, "a class at the end of a range");
            else if (p->pattern[p->at - 1] == '-')
                high = next_char(p);
            if (high < low)
                refuse(p, "a range that ends before it begins");
        }
        if (!class)
            add_range(p, low, high);
    }
    if (!p->err && p->pattern[p->at - 1] != ']')
        refuse(p, "a class without its ]");
    tidy_ranges(p, first, not );
    return chars(p, first);
}

/* ---- structure ---- */

static struct piece alternatives(struct parser *p);

static struct piece empty(struct parser *p)
{
    uint32_t n = node(p, NFA_SPLIT);
    return (struct piece){ n, n };
}

static struct piece anchor(struct parser *p, enum nfa_kind kind)
{
    uint32_t start = node(p, kind), end = node(p, NFA_SPLIT);
    join(p, start, end);
    return (struct piece){ start, end };
}

static struct piece group(struct parser *p)
{
    if (take(p, '?')) {
        if (take(p, '<')) {
            if (more(p) &&
                (p->pattern[p->at] == '=' || p->pattern[p->at] == '!'))
                refuse(p, "look-behind is not supported");
            while (more(p) && !take(p, '>'))
                p->at++;
        } else if (!take(p, ':')) {
            refuse(p, "look-ahead and flags are not supported");
        }
    }
    if (++p->depth > GROUPS_MAX)
        refuse(p, "too many groups inside of each other");
    struct piece inner = alternatives(p);
    p->depth--;
    if (!p->err && !take(p, ')'))
        refuse(p, "a group without its )");
    return inner;
}

static struct piece atom(struct parser *p)
{
    uint32_t first = p->n->ranges, c;
    if (take(p, '('))
        return group(p);
    if (take(p, '['))
        return bracket(p);
    if (take(p, '^'))
        return anchor(p, NFA_BEGIN);
    if (take(p, '$'))
        return anchor(p, NFA_END);
    if (take(p, '.')) {
        static const uint32_t ends[] = { '\n', '\r', 0x2028, 0x2029 };
        for (size_t i = 0; i < 4; i++)
            add_range(p, ends[i], ends[i]);
        tidy_ranges(p, first, true);
        return chars(p, first);
    }
    if (take(p, '\\')) {
        if (!escape(p, &c, false))
            add_range(p, c, c);
        tidy_ranges(p, first, false);
        return chars(p, first);
    }
    c = next_char(p);
    if (c == '*' || c == '+' || c == '?')
        refuse(p, "nothing to repeat");
    add_range(p, c, c);
    return chars(p, first);
}

static bool number(struct parser *p, uint32_t *out)
{
    size_t start = p->at;
    *out = 0;
    while (p->at < p->bytes && p->pattern[p->at] >= '0' &&
           p->pattern[p->at] <= '9' && *out <= REPEAT_MAX)
        *out = *out * 10 + (uint32_t)(p->pattern[p->at++] - '0');
    return p->at > start;
}

/* How often; false: no quantifier is here. */
static bool quantifier(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t start = p->at;
    *max = UINT32_MAX;
    *min = 0;
    if (take(p, '*')) {
    } else if (take(p, '+')) {
        *min = 1;
    } else if (take(p, '?')) {
        *max = 1;
    } else if (take(p, '{')) {
        bool good = number(p, min);
        *max = *min;
        if (good && take(p, ',') && !number(p, max))
            *max = UINT32_MAX;
        if (!good || !take(p, '}')) { /* a brace like any other character */
            p->at = start;
            return false;
        }
        if (*min > REPEAT_MAX || (*max > REPEAT_MAX && *max != UINT32_MAX))
            refuse(p, "a repetition above 10,000");
        if (*max < *min)
            refuse(p, "a repetition that ends before it begins");
    } else {
        return false;
    }
    take(p, '?');
    return true;
}

/* Parse the atom again from `at`: each repetition has nodes of its own. */
static struct piece again(struct parser *p, size_t at)
{
    size_t end = p->at;
    p->at = at;
    struct piece copy = atom(p);
    p->at = end;
    return copy;
}

static struct piece repeated(struct parser *p)
{
    size_t at = p->at;
    struct piece one = atom(p);
    uint32_t min, max;
    size_t end = p->at;
    if (!quantifier(p, &min, &max) || p->err)
        return one;
    size_t behind = p->at;
    struct piece whole = empty(p);
    p->at = end;
    for (uint32_t i = 0; i < min && !p->err; i++) {
        struct piece next = i ? again(p, at) : one;
        join(p, whole.end, next.start);
        whole.end = next.end;
    }
    if (max == UINT32_MAX) { /* a loop */
        struct piece body = min ? again(p, at) : one;
        uint32_t split = node(p, NFA_SPLIT), out = node(p, NFA_SPLIT);
        join(p, whole.end, split);
        join(p, body.end, split);
        if (!p->err) {
            p->n->node[split].to = body.start;
            p->n->node[split].other = out;
        }
        whole.end = out;
    }
    for (uint32_t i = min; i < max && max != UINT32_MAX && !p->err; i++) {
        struct piece next = i ? again(p, at) : one;
        uint32_t split = node(p, NFA_SPLIT), out = node(p, NFA_SPLIT);
        join(p, whole.end, split);
        join(p, next.end, out);
        if (!p->err) {
            p->n->node[split].to = next.start;
            p->n->node[split].other = out;
        }
        whole.end = out;
    }
    p->at = behind;
    return whole;
}

static struct piece sequence(struct parser *p)
{
    struct piece whole = empty(p);
    while (more(p) && p->pattern[p->at] != '|' && p->pattern[p->at] != ')') {
        struct piece next = repeated(p);
        join(p, whole.end, next.start);
        whole.end = next.end;
    }
    return whole;
}

static struct piece alternatives(struct parser *p)
{
    struct piece whole = sequence(p);
    while (take(p, '|')) {
        struct piece next = sequence(p);
        uint32_t split = node(p, NFA_SPLIT), out = node(p, NFA_SPLIT);
        if (p->err)
            break;
        p->n->node[split].to = whole.start;
        p->n->node[split].other = next.start;
        join(p, whole.end, out);
        join(p, next.end, out);
        whole = (struct piece){ split, out };
    }
    return whole;
}

/* Any characters, any number of them. */
static struct piece anything(struct parser *p)
{
    uint32_t first = p->n->ranges;
    add_range(p, 0, DFA_CHAR_MAX);
    struct piece one = chars(p, first);
    uint32_t split = node(p, NFA_SPLIT), out = node(p, NFA_SPLIT);
    join(p, one.end, split);
    if (!p->err) {
        p->n->node[split].to = one.start;
        p->n->node[split].other = out;
    }
    return (struct piece){ split, out };
}

int nfa_pattern(struct nfa *n, const char *pattern, size_t bytes, bool whole,
                struct error *error)
{
    struct parser p = { n, pattern, bytes, 0, error, 0, 0 };
    struct piece before = { 0 }, behind = { 0 };
    if (!whole)
        before = anything(&p);
    struct piece middle = alternatives(&p);
    if (!p.err && p.at < bytes)
        refuse(&p, "a ) without its group");
    if (!whole)
        behind = anything(&p);
    uint32_t accept = node(&p, NFA_ACCEPT);
    if (whole) {
        join(&p, middle.end, accept);
    } else {
        join(&p, before.end, middle.start);
        join(&p, middle.end, behind.start);
        join(&p, behind.end, accept);
    }
    n->start = whole ? middle.start : before.start;
    return p.err;
}

void nfa_free(struct nfa *n)
{
    free(n->node);
    free(n->range);
    *n = (struct nfa){ 0 };
}
