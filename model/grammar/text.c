/* text.c - the characters of strings, names and texts: UTF-8, escapes, and what
 * may still become of them. */
#include <string.h>

#include "model/grammar/match_internal.h"
#include "model/json/utf8.h"

/* ---- what a string may take ---- */

static bool edge_between(const struct dfa *d, const struct shape *s,
                         int32_t state, uint32_t used, uint32_t low,
                         uint32_t high)
{
    for (uint32_t e = d->first[state]; e < d->first[state + 1]; e++)
        if (d->edge[e].low <= high && d->edge[e].high >= low &&
            (!s || shape_can_end(s, d->edge[e].to, used + 1)))
            return true;
    return false;
}

static uint32_t required_left(const struct frame *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->shape->properties; i++)
        n += f->shape->property[i].required && !(f->seen[i / 64] >> i % 64 & 1);
    return n;
}

static bool may_have(const struct frame *f, uint32_t i)
{
    const struct property *p = &f->shape->property[i];
    if (!node_fits(f->g, p->node, f->depth) || f->seen[i / 64] >> i % 64 & 1)
        return false;
    if (p->required || f->shape->max == UINT32_MAX)
        return true;
    return f->count + required_left(f) < f->shape->max;
}

static bool may_have_extra(const struct frame *f)
{
    return node_fits(f->g, f->shape->rest, f->depth) &&
           (f->shape->max == UINT32_MAX ||
            f->count + required_left(f) < f->shape->max);
}

bool object_can_grow(const struct frame *f)
{
    bool can = may_have_extra(f);
    for (uint32_t i = 0; i < f->shape->properties && !can; i++)
        can = may_have(f, i);
    return can;
}

bool object_can_end(const struct frame *f)
{
    return f->count >= f->shape->min && !required_left(f);
}

/* Does a property that the object may have go on with a character of
 * low..high? */
static bool name_between(const struct thread *t, uint32_t low, uint32_t high)
{
    for (uint32_t i = t->low; i < t->high; i++) {
        const struct property *p = &t->top->shape->property[i];
        uint32_t c;
        if (p->bytes <= t->used || !may_have(t->top, i) ||
            utf8_next(p->name + t->used, p->bytes - t->used, &c) <= 0)
            continue;
        if (c >= low && c <= high)
            return true;
    }
    return false;
}

/* Has an additional property the name as it is. */
static bool is_extra(const struct thread *t)
{
    for (const struct extra *e = t->top->extra; e; e = e->next)
        if (e->hash[0] == t->name_hash[0] && e->hash[1] == t->name_hash[1])
            return true;
    return false;
}

/* A key that has its length may only grow to be another one. */
static bool name_may_grow(const struct thread *t)
{
    return t->place == IN_NAME || t->used < KEY_MAX || is_extra(t);
}

static bool can_take(const struct thread *t, uint32_t low, uint32_t high)
{
    if (high >= 0xd800 && low <= 0xdfff) { /* no halves of pairs */
        bool below = low < 0xd800 && can_take(t, low, 0xd7ff);
        return below || (high > 0xdfff && can_take(t, 0xe000, high));
    }
    if (t->place == IN_NAME || t->place == IN_KEY)
        return (t->free_name && name_may_grow(t)) ||
               name_between(t, low, high);
    if (t->place == IN_TEXT)
        return edge_between(t->shape->dfa, NULL, t->state, 0, low, high);
    if (!t->shape->dfa)
        return t->used < t->shape->max;
    return edge_between(t->shape->dfa, t->shape, t->state, t->used, low, high);
}

/* ---- taking a character ---- */

static void narrow(struct thread *t, uint8_t byte)
{
    const struct property *p = t->top->shape->property;
    while (t->low < t->high && (p[t->low].bytes <= t->used ||
                                (uint8_t)p[t->low].name[t->used] < byte))
        t->low++;
    uint16_t end = t->low;
    while (end < t->high && p[end].bytes > t->used &&
           (uint8_t)p[end].name[t->used] == byte)
        end++;
    t->high = end;
    t->used++;
    mix_in(t->name_hash, byte);
}

static int take_in_name(struct thread *t, uint32_t c)
{
    char bytes[UTF8_MAX];
    unsigned n = utf8_put(bytes, c);
    for (unsigned i = 0; i < n; i++)
        narrow(t, (uint8_t)bytes[i]);
    if (t->free_name)
        return 1;
    for (uint32_t i = t->low; i < t->high; i++)
        if (may_have(t->top, i))
            return 1;
    return 0;
}

static int take(struct thread *t, uint32_t c)
{
    t->part = PART_NONE;
    t->code = t->half = 0;
    if (t->place == IN_NAME || t->place == IN_KEY)
        return take_in_name(t, c);
    if (t->shape->dfa) {
        t->state = dfa_next(t->shape->dfa, t->state, c);
        if (t->state == DFA_DEAD)
            return 0;
        if (t->place == IN_TEXT)
            return 1;
    }
    t->used++;
    return shape_can_end(t->shape, t->state, t->used);
}

/* ---- bytes ---- */

static int begin_utf8(struct thread *t, uint8_t byte)
{
    static const struct {
        uint8_t first, last, left, mask;
        uint32_t low;
    } lead[] = { { 0xc2, 0xdf, 1, 0x1f, 0x80 },
                 { 0xe0, 0xef, 2, 0x0f, 0x800 },
                 { 0xf0, 0xf4, 3, 0x07, 0x10000 } };
    for (size_t i = 0; i < 3; i++) {
        if (byte < lead[i].first || byte > lead[i].last)
            continue;
        uint32_t shift = 6u * lead[i].left;
        uint32_t low = (uint32_t)(byte & lead[i].mask) << shift;
        uint32_t high = low | ((1u << shift) - 1);
        t->part = PART_UTF8;
        t->left = lead[i].left;
        t->code = byte & lead[i].mask;
        t->half = lead[i].low; /* the least of this length */
        low = low < lead[i].low ? lead[i].low : low;
        high = high > DFA_CHAR_MAX ? DFA_CHAR_MAX : high;
        return can_take(t, low, high);
    }
    return 0;
}

static int continue_utf8(struct thread *t, uint8_t byte)
{
    if ((byte & 0xc0) != 0x80)
        return 0;
    t->code = t->code << 6 | (byte & 0x3f);
    t->left--;
    uint32_t shift = 6u * t->left;
    uint32_t low = t->code << shift, high = low | ((1u << shift) - 1);
    low = low < t->half ? t->half : low;
    high = high > DFA_CHAR_MAX ? DFA_CHAR_MAX : high;
    if (low > high || !can_take(t, low, high))
        return 0;
    return t->left ? 1 : take(t, low);
}

static int hex_value(uint8_t b)
{
    return b >= '0' && b <= '9'                 ? b - '0'
           : (b | 32) >= 'a' && (b | 32) <= 'f' ? (b | 32) - 'a' + 10
                                                : -1;
}

/* Characters that \u and the digits so far may become. */
static bool hex_can(const struct thread *t)
{
    uint32_t shift = 4u * t->left;
    uint32_t low = t->code << shift, high = low | ((1u << shift) - 1);
    if (can_take(t, low, high))
        return true;
    uint32_t first = low > 0xd800 ? low : 0xd800;
    uint32_t last = high < 0xdbff ? high : 0xdbff;
    return first <= last && can_take(t, 0x10000 + (first - 0xd800) * 0x400,
                                     0x103ff + (last - 0xd800) * 0x400);
}

static bool half_hex_can(const struct thread *t)
{
    uint32_t shift = 4u * t->left;
    uint32_t low = t->code << shift, high = low | ((1u << shift) - 1);
    uint32_t base = 0x10000 + (t->half - 0xd800) * 0x400;
    low = low > 0xdc00 ? low : 0xdc00;
    high = high < 0xdfff ? high : 0xdfff;
    return low <= high &&
           can_take(t, base + low - 0xdc00, base + high - 0xdc00);
}

static int take_hex(struct thread *t, uint8_t byte)
{
    int d = hex_value(byte);
    if (d < 0)
        return 0;
    t->code = t->code << 4 | (uint32_t)d;
    t->left--;
    if (t->part == PART_HALF_HEX) {
        if (!half_hex_can(t))
            return 0;
        return t->left ? 1
                       : take(t, 0x10000 + (t->half - 0xd800) * 0x400 +
                                     (t->code - 0xdc00));
    }
    if (!hex_can(t))
        return 0;
    if (t->left)
        return 1;
    if (t->code < 0xd800 || t->code > 0xdfff)
        return take(t, t->code);
    t->half = t->code;
    t->part = PART_HALF;
    return 1;
}

static int take_escape(struct thread *t, uint8_t byte)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *known = byte ? strchr(letters, byte) : NULL;
    if (known) {
        uint32_t c = (uint8_t)values[known - letters];
        return can_take(t, c, c) ? take(t, c) : 0;
    }
    if (byte != 'u')
        return 0;
    t->part = PART_HEX;
    t->left = 4;
    t->code = 0;
    return 1; /* whatever may follow has a \u form */
}

/* &amp; and &quot;, which stand for what a key may not hold as it is. */
static const struct {
    const char *text;
    uint32_t code;
} entity[] = { { "&amp;", '&' }, { "&quot;", '"' } };

static int take_entity(struct thread *t, uint8_t byte)
{
    uint32_t may = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const char *text = entity[i].text;
        if (!(t->code >> i & 1) || (uint8_t)text[t->left] != byte)
            continue;
        if (!text[t->left + 1])
            return take(t, entity[i].code);
        may |= 1u << i;
    }
    t->code = may;
    t->left++;
    return may != 0;
}

static int begin_entity(struct thread *t)
{
    t->part = PART_ENTITY;
    t->left = 1;
    t->code = 0;
    for (uint32_t i = 0; i < 2; i++)
        if (can_take(t, entity[i].code, entity[i].code))
            t->code |= 1u << i;
    return t->code != 0;
}

int text_step(struct thread *t, uint8_t byte)
{
    switch ((enum part)t->part) {
    case PART_UTF8:
        return continue_utf8(t, byte);
    case PART_ESCAPE:
        return take_escape(t, byte);
    case PART_HEX:
    case PART_HALF_HEX:
        return take_hex(t, byte);
    case PART_HALF:
        t->part = PART_HALF_U;
        return byte == '\\';
    case PART_HALF_U:
        t->part = PART_HALF_HEX;
        t->left = 4;
        t->code = 0;
        return byte == 'u';
    case PART_ENTITY:
        return take_entity(t, byte);
    case PART_NONE:
        break;
    }
    if (t->place == IN_KEY && byte == '&')
        return begin_entity(t);
    if (t->place == IN_STRING || t->place == IN_NAME) {
        if (byte < 0x20 || byte == '"')
            return 0;
        if (byte == '\\') {
            t->part = PART_ESCAPE;
            return can_take(t, 0, DFA_CHAR_MAX);
        }
    }
    if (byte >= 0x80)
        return begin_utf8(t, byte);
    return can_take(t, byte, byte) ? take(t, byte) : 0;
}

/* ---- names ---- */

bool name_begin(struct thread *t, enum place place)
{
    t->place = (uint8_t)place;
    t->part = PART_NONE;
    t->used = 0;
    t->low = 0;
    t->high = (uint16_t)t->top->shape->properties;
    t->free_name = may_have_extra(t->top);
    t->name_hash[0] = t->name_hash[1] = 0;
    return object_can_grow(t->top);
}

bool name_end(const struct thread *t, struct frame *frame, int32_t *node,
              bool *extra)
{
    const struct shape *s = t->top->shape;
    if (t->part != PART_NONE)
        return false;
    *frame = *t->top;
    frame->count++;
    *extra = false;
    if (t->low < t->high && s->property[t->low].bytes == t->used) {
        uint32_t i = t->low; /* the shortest comes first */
        if (!may_have(t->top, i))
            return false;
        frame->seen[i / 64] |= UINT64_C(1) << i % 64;
        *node = s->property[i].node;
        return true;
    }
    if (!t->free_name)
        return false;
    if (is_extra(t))
        return false;
    *extra = true;
    *node = s->rest;
    return true;
}
