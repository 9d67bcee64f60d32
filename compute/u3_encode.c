#include "compute/u3_encode.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "compute/kern.h"

enum {
    ROUNDS_MAX = 6,       /* of k-means */
    PATCH_BITS = 24,      /* beside the code of index 0 */
    SAMPLE_COLS = 16,     /* in a row */
    SAMPLE_SHARE = 16,    /* one in so many columns */
    SAMPLE_MIN = 128,     /* columns, where a row has them */
    VALUES = 7,           /* of a table */
};

/* The bits that a value costs by its place in the order of frequency. */
static const uint8_t place_bits[VALUES] = { 1, 2, 3, 5, 5, 5, 5 };
static const uint8_t place_index[VALUES] = { 0, 1, 2, 4, 5, 6, 7 };

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- tables ---- */

struct tables {
    uint32_t count;
    uint8_t  value[U3_TABLES_MAX][8];
    uint8_t  bits[U3_TABLES_MAX][U3_BINS];
    int16_t  kind_bits[U3_TABLES_MAX][U3_KINDS]; /* of the kinds of value */
};

/* Count the high bytes, without sign, of a sample of a row. */
static void count_row(uint16_t *seen, const uint8_t *row, uint32_t cols)
{
    uint32_t share = cols / SAMPLE_MIN;
    uint32_t step = SAMPLE_COLS *
                    (share < 1 ? 1 : share > SAMPLE_SHARE ? SAMPLE_SHARE
                                                          : share);
    /* Four counts side by side: one would wait for itself at each repeat. */
    uint16_t part[4][U3_BINS] = { { 0 } };
    for (uint32_t at = 0; at < cols; at += step) {
        uint32_t end = cols - at < SAMPLE_COLS ? cols : at + SAMPLE_COLS;
        const uint8_t *high = row + 2 * (size_t)at + 1;
        for (uint32_t c = 0; c < end - at; c++)
            part[c % 4][high[2 * c] & 127]++;
    }
    for (unsigned v = 0; v < U3_BINS; v++)
        seen[v] = (uint16_t)(part[0][v] + part[1][v] + part[2][v] + part[3][v]);
}

/* Make a table of the values that were seen most; ties go to the larger. A
 * value that was not seen at all costs what a patch costs. */
static void make_table(struct tables *t, uint32_t which,
                       const uint32_t seen[U3_BINS])
{
    bool taken[U3_BINS] = { false };
    memset(t->value[which], 0, 8);
    memset(t->bits[which], PATCH_BITS + 1, U3_BINS);
    for (unsigned place = 0; place < VALUES; place++) {
        int best = -1;
        for (int v = U3_BINS - 1; v >= 0; v--)
            if (!taken[v] && seen[v] && (best < 0 || seen[v] > seen[best]))
                best = v;
        if (best < 0)
            return;
        taken[best] = true;
        t->value[which][place_index[place]] = (uint8_t)best;
        t->bits[which][best] = place_bits[place];
    }
}

/* Counts are below 2^15: of at most a sixteenth of the columns, or of few. */
static uint32_t best_table(const struct tables *t, const int16_t *kind)
{
    uint32_t best = 0;
    int32_t best_bits = INT32_MAX;
    for (uint32_t i = 0; i < t->count; i++) {
        int32_t bits = 0;
        for (unsigned k = 0; k < U3_KINDS; k++)
            bits += kind[k] * t->kind_bits[i][k];
        if (bits < best_bits) {
            best = i;
            best_bits = bits;
        }
    }
    return best;
}

struct by_center {
    uint32_t center, row;
};

static int in_order(const void *a, const void *b)
{
    const struct by_center *x = a, *y = b;
    if (x->center != y->center)
        return x->center < y->center ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* The U3_KINDS values seen most, whatever the row. */
static void choose_kinds(uint8_t *value_of, const uint32_t all[U3_BINS])
{
    bool taken[U3_BINS] = { false };
    for (unsigned k = 0; k < U3_KINDS; k++) {
        int best = -1;
        for (int v = 0; v < U3_BINS; v++)
            if (!taken[v] && (best < 0 || all[v] > all[best]))
                best = v;
        taken[best] = true;
        value_of[k] = (uint8_t)best;
    }
}

/* Rows in order of their mean, cut into equal groups: where k-means begins. */
static void begin_groups(struct u3_scratch *s, const uint8_t *value_of,
                         uint32_t rows)
{
    struct by_center order[U3_SAMPLE_ROWS];
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t sum = 0, count = 1;
        for (unsigned k = 0; k < U3_KINDS; k++) {
            sum += (uint32_t)s->kind[r][k] * value_of[k];
            count += (uint32_t)s->kind[r][k];
        }
        order[r] = (struct by_center){ (sum << 8) / count, r };
    }
    qsort(order, rows, sizeof *order, in_order);
    for (uint32_t i = 0; i < rows; i++)
        s->table_of[order[i].row] = (uint8_t)(i * U3_TABLES_MAX / rows);
}

/* Tables of the groups as they are; empty groups are dropped. */
static void tables_of_groups(struct tables *t, struct u3_scratch *s,
                             const uint8_t *value_of, uint32_t rows)
{
    uint32_t seen[U3_TABLES_MAX][U3_BINS] = { { 0 } };
    uint32_t members[U3_TABLES_MAX] = { 0 };
    for (uint32_t r = 0; r < rows; r++) {
        members[s->table_of[r]]++;
        for (unsigned v = 0; v < U3_BINS; v++)
            seen[s->table_of[r]][v] += s->seen[r][v];
    }
    t->count = 0;
    for (uint32_t i = 0; i < U3_TABLES_MAX; i++)
        if (members[i])
            make_table(t, t->count++, seen[i]);
    for (uint32_t i = 0; i < t->count; i++)
        for (unsigned k = 0; k < U3_KINDS; k++)
            t->kind_bits[i][k] = t->bits[i][value_of[k]];
}

/* Choose the tables of a block from up to U3_SAMPLE_ROWS rows, every step-th;
 * s->table_of has the choice of each of these. */
static void choose_tables(struct tables *t, struct u3_scratch *s,
                          uint8_t *value_of, const uint8_t *src, uint32_t rows,
                          uint32_t cols, uint32_t step)
{
    uint32_t all[U3_BINS] = { 0 }, sampled = (rows + step - 1) / step;
    for (uint32_t i = 0; i < sampled; i++) {
        count_row(s->seen[i], src + (size_t)i * step * cols * 2, cols);
        for (unsigned v = 0; v < U3_BINS; v++)
            all[v] += s->seen[i][v];
    }
    choose_kinds(value_of, all);
    for (uint32_t i = 0; i < sampled; i++)
        for (unsigned k = 0; k < U3_KINDS; k++)
            s->kind[i][k] = (int16_t)s->seen[i][value_of[k]];
    begin_groups(s, value_of, sampled);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        uint32_t moved = 0;
        tables_of_groups(t, s, value_of, sampled);
        for (uint32_t i = 0; i < sampled; i++) {
            uint32_t best = best_table(t, s->kind[i]);
            moved += best != s->table_of[i];
            s->table_of[i] = (uint8_t)best;
        }
        if (!moved)
            break;
    }
}

/* The table of any row. */
static uint32_t table_of_row(const struct tables *t, const uint8_t *value_of,
                             const uint8_t *row, uint32_t cols)
{
    uint16_t seen[U3_BINS];
    int16_t kind[U3_KINDS];
    count_row(seen, row, cols);
    for (unsigned k = 0; k < U3_KINDS; k++)
        kind[k] = (int16_t)seen[value_of[k]];
    return best_table(t, kind);
}

/* ---- blocks ---- */

static void put32(uint8_t *to, uint64_t value)
{
    uint32_t word = (uint32_t)value;
    memcpy(to, &word, sizeof word);
}

static void put16(uint8_t *to, uint64_t value)
{
    uint16_t word = (uint16_t)value;
    memcpy(to, &word, sizeof word);
}

static uint32_t store_raw(uint8_t *block, const void *src, uint32_t rows,
                          uint32_t cols)
{
    uint64_t data = (uint64_t)rows * cols * 2, bytes = u3_bytes_max(rows, cols);
    memset(block, 0, U3_HEADER);
    put16(block + 2, rows);
    put32(block + 4, cols);
    put32(block + 16, bytes);
    memcpy(block + U3_HEADER, src, data);
    memset(block + U3_HEADER + data, 0, bytes - U3_HEADER - data);
    return (uint32_t)bytes;
}

static uint8_t *append(uint8_t *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

/* Write one row of V and its entry; false when `room` bytes are not enough. */
static bool put_row(uint8_t *entry, uint8_t *v, uint64_t *at, uint64_t room,
                    uint32_t table, const struct u3_streams *s)
{
    uint32_t b = (s->b_bits + 7) / 8, c = (s->c_bits + 7) / 8;
    uint32_t d = (s->d_bits + 7) / 8, n = s->patches;
    uint64_t bytes = (uint64_t)b + c + 2 * d + 3 * (uint64_t)n;
    if (bytes > room - *at || *at + bytes > 0x3fffffff)
        return false;
    put32(entry, *at | (uint64_t)table << 30);
    put16(entry + 4, b);
    put16(entry + 6, c);
    put16(entry + 8, d);
    put16(entry + 10, n);
    uint8_t *to = v + *at;
    to = append(to, s->b, b);
    to = append(to, s->c, c);
    to = append(to, s->d0, d);
    to = append(to, s->d1, d);
    to = append(to, s->column, 2 * (size_t)n);
    append(to, s->high, n);
    *at += bytes;
    return true;
}

uint32_t u3_encode(const struct kern *kern, void *out, const void *src,
                   uint32_t rows, uint32_t cols, struct u3_scratch *scratch)
{
    uint8_t *block = out;
    const uint8_t *from = src;
    assert(rows && rows <= U3_ROWS_MAX && cols && cols <= U3_COLS_MAX);
    uint64_t width = round_up(cols, U3_GROUP), max = u3_bytes_max(rows, cols);
    uint64_t low_at = round_up(U3_HEADER + (uint64_t)rows * U3_ROW, U3_ALIGN);
    uint64_t p_at = low_at + rows * width;
    uint64_t v_at = round_up(p_at + rows * width / 4, U3_ALIGN);
    if (v_at + U3_ALIGN >= max)
        return store_raw(block, src, rows, cols);
    struct tables t;
    uint8_t value_of[U3_KINDS];
    uint32_t step = (rows + U3_SAMPLE_ROWS - 1) / U3_SAMPLE_ROWS;
    choose_tables(&t, scratch, value_of, from, rows, cols, step);
    memset(block, 0, low_at);
    memset(block + p_at + rows * width / 4, 0, v_at - p_at - rows * width / 4);
    uint64_t end = 0, room = max - v_at - U3_ALIGN, patches = 0;
    for (uint32_t r = 0; r < rows; r++, from += (size_t)cols * 2) {
        uint32_t table = r % step
                             ? table_of_row(&t, value_of, from, cols)
                             : scratch->table_of[r / step];
        kern->u3_code_row(block + low_at + r * width,
                          block + p_at + r * width / 4, &scratch->streams, from,
                          cols, t.value[table]);
        if (!put_row(block + U3_HEADER + (size_t)r * U3_ROW, block + v_at, &end,
                     room, table, &scratch->streams))
            return store_raw(block, src, rows, cols);
        patches += scratch->streams.patches;
    }
    uint64_t bytes = round_up(v_at + end + 8, U3_ALIGN);
    memset(block + v_at + end, 0, bytes - v_at - end);
    block[0] = U3_CODED;
    block[1] = (uint8_t)t.count;
    put16(block + 2, rows);
    put32(block + 4, cols);
    put32(block + 8, p_at);
    put32(block + 12, v_at);
    put32(block + 16, bytes);
    put32(block + 20, patches);
    memcpy(block + 32, t.value, (size_t)8 * t.count);
    return (uint32_t)bytes;
}

/* ---- one row, as u3.h describes it ---- */

static void push_bit(uint8_t *to, uint32_t *bits, unsigned bit)
{
    if (*bits % 8 == 0)
        to[*bits / 8] = 0;
    to[*bits / 8] |= (uint8_t)(bit << *bits % 8);
    ++*bits;
}

static void code_row_ref(uint8_t *low, uint8_t *planes, struct u3_streams *s,
                         const void *src, uint32_t cols, const uint8_t *table)
{
    const uint8_t *from = src;
    s->b_bits = s->c_bits = s->d_bits = s->patches = 0;
    for (uint32_t begin = 0; begin < cols; begin += U3_GROUP) {
        uint64_t sign = 0, a = 0;
        uint64_t odd = 0; /* columns of the group that are patched */
        unsigned ones = 0;
        for (uint32_t p = 0; p < U3_GROUP; p++) {
            uint32_t j = p % 16, in = 8 * (p / 16) + (j < 8 ? j : 24 + j);
            low[begin + p] = 0;
            if (begin + in >= cols)
                continue;
            low[begin + p] = from[2 * (size_t)(begin + in)];
            uint8_t high = from[2 * (size_t)(begin + in) + 1];
            unsigned index = 0;
            while (index < 8 && (index == 3 || table[index] != (high & 127)))
                index++;
            sign |= (uint64_t)(high >> 7) << p;
            if (index == 8 || (index && ones == U3_ONES_MAX)) {
                odd |= UINT64_C(1) << in;
                continue;
            }
            if (!index)
                continue;
            a |= UINT64_C(1) << p;
            ones++;
            push_bit(s->b, &s->b_bits, index > 1);
            if (index > 1)
                push_bit(s->c, &s->c_bits, index > 2);
            if (index > 2) {
                uint32_t bits = s->d_bits;
                push_bit(s->d0, &bits, index & 1);
                push_bit(s->d1, &s->d_bits, index >> 1 & 1);
            }
        }
        memcpy(planes + begin / 4, &sign, sizeof sign);
        memcpy(planes + begin / 4 + 8, &a, sizeof a);
        for (; odd; odd &= odd - 1) {
            uint32_t column = begin + (uint32_t)__builtin_ctzll(odd);
            s->column[s->patches] = (uint16_t)column;
            s->high[s->patches++] = from[2 * (size_t)column + 1];
        }
    }
}

void u3_code_fill_ref(struct kern *k)
{
    k->u3_code_row = code_row_ref;
}
