/* trace_internal.h - the layout of a trace file, for its reader and writer.
 *
 * Threads any. Errors: trace_lay_out returns false.
 */
#ifndef SCHED_TRACE_TRACE_INTERNAL_H
#define SCHED_TRACE_TRACE_INTERNAL_H

#include <stddef.h>

#include "sched/trace/trace.h"

#define TRACE_HEADER_BYTES 128u
#define TRACE_RECORD_HEAD  24u /* of a record, before its columns */
#define TRACE_MAJOR        1u
#define TRACE_KNOWN_FLAGS  31u

/* Offsets of the header's fields; README.md has their types and meanings. */
enum {
    AT_MAGIC = 0, AT_MAJOR = 8, AT_MINOR = 10, AT_HEADER_BYTES = 12,
    AT_FLAGS = 16, AT_LAYERS = 20, AT_FIRST_LAYER = 22, AT_MODEL_LAYERS = 24,
    AT_EXPERTS = 26, AT_TOP_K = 28, AT_ID_BYTES = 30, AT_EXPERT_BYTES = 32,
    AT_TRUNK_BYTES = 40, AT_RECORDS = 48, AT_MODEL_HASH = 56, AT_CREATED = 64,
    AT_SCORE_FORMAT = 72, AT_META_BYTES = 76, AT_SEQUENCES = 80, AT_STEPS = 84,
    AT_RECORD_HEAD = 88, AT_HEADER_CRC = 124,
};

/* Offsets of a record's fields. */
enum {
    AT_BYTES = 0, AT_SEQUENCE = 4, AT_POSITION = 8, AT_TOKEN = 12,
    AT_STEP = 16, AT_PHASE = 20, AT_ROW_FLAGS = 21, AT_ROWS = 22,
};

enum { SCORES_NONE, SCORES_U16, SCORES_F32 };

/* Offsets of the columns in a record, in bytes; 0: the trace lacks it. */
struct trace_layout {
    uint32_t ids, scores, hits, times, crc;
    uint32_t record_bytes;
};

static inline uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get32(const uint8_t *p)
{
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static inline uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static inline void put16(uint8_t *p, uint32_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static inline void put32(uint8_t *p, uint32_t x)
{
    put16(p, x);
    put16(p + 2, x >> 16);
}

static inline void put64(uint8_t *p, uint64_t x)
{
    put32(p, (uint32_t)x);
    put32(p + 4, (uint32_t)(x >> 32));
}

/* Lay out the records of a trace. False: a record would not fit in 31 bits. */
bool trace_lay_out(struct trace_layout *out, const struct trace_info *info,
                   uint32_t head_bytes, uint32_t score_format);

/* The CRC-32 of zlib: polynomial edb88320, inverted before and after. */
struct trace_crc {
    uint32_t table[256];
};
void     trace_crc_init(struct trace_crc *crc);
uint32_t trace_crc_of(const struct trace_crc *crc, const uint8_t *p, size_t n);

#endif
