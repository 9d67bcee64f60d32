#include "sched/trace/trace_internal.h"

bool trace_lay_out(struct trace_layout *out, const struct trace_info *info,
                   uint32_t head_bytes, uint32_t score_format)
{
    uint64_t cells = (uint64_t)info->layers * info->top_k;
    uint64_t at = head_bytes;
    *out = (struct trace_layout){ .ids = head_bytes };
    at += 2 * cells;
    if (at > INT32_MAX / 4)
        return false;
    if (info->flags & TRACE_SCORES) {
        out->scores = (uint32_t)at;
        at += cells * (score_format == SCORES_F32 ? 4 : 2);
    }
    if (info->flags & TRACE_HITS) {
        out->hits = (uint32_t)at;
        at += cells;
    }
    if (info->flags & TRACE_TIMES) {
        out->times = (uint32_t)at;
        at += (uint64_t)info->layers * TRACE_TIME_COLUMNS * 4;
    }
    if (info->flags & TRACE_CRC) {
        out->crc = (uint32_t)at;
        at += 4;
    }
    if (at > INT32_MAX)
        return false;
    out->record_bytes = (uint32_t)at;
    return true;
}

void trace_crc_init(struct trace_crc *crc)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t x = i;
        for (int bit = 0; bit < 8; bit++)
            x = x >> 1 ^ (x & 1 ? 0xedb88320u : 0);
        crc->table[i] = x;
    }
}

uint32_t trace_crc_of(const struct trace_crc *crc, const uint8_t *p, size_t n)
{
    uint32_t x = UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        x = x >> 8 ^ crc->table[(x ^ p[i]) & 255];
    return ~x;
}

const char *trace_problem_text(enum trace_problem problem)
{
    static const char *const texts[] = {
        [TRACE_FINE] = "nothing is wrong",
        [TRACE_NO_HEADER] = "the file ends inside its header",
        [TRACE_MAGIC] = "it does not begin with MOETRACE",
        [TRACE_VERSION] = "its format version is not supported",
        [TRACE_HEADER_CRC] = "the header's checksum is wrong",
        [TRACE_FLAGS] = "it has columns of an unknown kind",
        [TRACE_SHAPE] = "the header's counts are impossible",
        [TRACE_RECORD_SIZE] = "a record's size is wrong",
        [TRACE_RECORD_CRC] = "a record's checksum is wrong",
        [TRACE_ROWS] = "a record's count of layers is wrong",
        [TRACE_PHASE] = "a record's phase is unknown",
        [TRACE_ID] = "an expert id is out of range",
        [TRACE_ID_TWICE] = "a row names an expert twice",
        [TRACE_STEP] = "steps go backwards",
        [TRACE_TRUNCATED] = "the file is shorter than its header says",
        [TRACE_TAIL] = "it has bytes after its last whole record",
    };
    return texts[problem];
}
