/* Goal    what a trace writer wrote is what a reader reads; a damaged trace is
 *         refused or read up to its last whole record, and never anything else.
 * Method  random traces with every set of columns, read back; then the same
 *         file cut at every length, with every byte changed, and with header
 *         fields made hostile under a right checksum. The seed is printed, and
 *         given back as argv[1] it replays the run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sched/trace/trace.h"
#include "sched/trace/trace_internal.h"
#include "tests/trace_file.h"

#define LAYERS_MAX 6u
#define TOP_K_MAX 5u
#define CELLS_MAX (LAYERS_MAX * TOP_K_MAX)
#define ROWS_MAX 40u
#define FILE_MAX 65536u

struct row {
    uint32_t sequence, position, token, step;
    uint8_t phase, flags;
    uint32_t ids[CELLS_MAX];
    float weights[CELLS_MAX];
    uint8_t hits[CELLS_MAX];
    uint32_t times[LAYERS_MAX * TRACE_TIME_COLUMNS];
};

static struct trace_info info;
static struct row row[ROWS_MAX];
static uint32_t rows, passes, sequences;
static uint8_t file[FILE_MAX];
static size_t file_bytes;

static void invent_row(struct row *r, uint32_t step)
{
    *r = (struct row){ .sequence = rnd(3), .position = rnd(100),
                       .token = rnd(1000), .step = step };
    r->phase = (uint8_t)rnd(3);
    r->flags = (uint8_t)rnd(4);
    for (uint32_t m = 0; m < info.layers; m++) {
        for (uint32_t k = 0; k < info.top_k; k++) {
            uint32_t at = m * info.top_k + k, id, i;
            do {
                id = rnd(info.experts);
                for (i = 0; i < k && r->ids[m * info.top_k + i] != id; i++)
                    ;
            } while (i < k);
            r->ids[at] = id;
            r->weights[at] = (float)rnd(1001) / 1000;
            r->hits[at] = (uint8_t)rnd(5);
        }
        for (uint32_t i = 0; i < TRACE_TIME_COLUMNS; i++)
            r->times[m * TRACE_TIME_COLUMNS + i] = rnd(1u << 30);
    }
    if (r->sequence >= sequences)
        sequences = r->sequence + 1;
}

static void write_pass(struct trace_writer *w, uint32_t first, uint32_t n)
{
    trace_begin(w, row[first].step, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct row *r = &row[first + i];
        trace_row(w, i, r->sequence, r->position, r->token,
                  (enum trace_phase)r->phase, r->flags);
        for (uint32_t m = 0; m < info.layers; m++) {
            trace_choice(w, i, m, r->ids + m * info.top_k,
                         r->weights + m * info.top_k);
            trace_hits(w, i, m, r->hits + m * info.top_k);
            trace_times(w, i, m, r->times + m * TRACE_TIME_COLUMNS);
        }
    }
    assert_int_equal(trace_commit(w), 0);
}

static void load_file(void)
{
    int fd = open(path, O_RDONLY);
    ssize_t got = read(fd, file, sizeof file);
    close(fd);
    assert_true(got > 0 && got < (ssize_t)sizeof file);
    file_bytes = (size_t)got;
}

static void store_file(size_t bytes)
{
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, file, bytes), (ssize_t)bytes);
    close(fd);
}

static void seal_file(void)
{
    struct trace_crc crc;
    trace_crc_init(&crc);
    put32(file + AT_HEADER_CRC, trace_crc_of(&crc, file, AT_HEADER_CRC));
}

/* A random trace on disk and in `file`. */
static void write_trace(uint32_t flags, bool finish)
{
    static const char *const metas[] = { NULL, "{}", "{\"a\": \"b\"}" };
    struct trace_writer *w;
    info = (struct trace_info){ .flags = flags,
                                .layers = 1 + rnd(LAYERS_MAX),
                                .first_layer = 1,
                                .model_layers = 9,
                                .expert_bytes = 17547264,
                                .trunk_bytes = 1ull << 40,
                                .model_hash = 0x1234567890abcdef,
                                .created_us = 77 };
    info.top_k = 1 + rnd(TOP_K_MAX);
    info.experts = info.top_k + rnd(900);
    rows = passes = sequences = 0;
    const char *meta = metas[rnd(3)];
    assert_int_equal(trace_create(&w, path, &info, meta, 4), 0);
    for (uint32_t step = rnd(5); rows < ROWS_MAX - 4 && passes < 9;
         step += 1 + rnd(3)) {
        uint32_t n = 1 + rnd(4);
        for (uint32_t i = 0; i < n; i++)
            invent_row(&row[rows + i], step);
        write_pass(w, rows, n);
        rows += n;
        passes++;
    }
    if (finish) {
        assert_int_equal(trace_finish(w), 0);
        load_file();
    } else {
        load_file(); /* as a crash would leave it */
        assert_int_equal(trace_finish(w), 0);
        store_file(file_bytes);
    }
}

static void check_record(const struct trace_record *got, const struct row *r)
{
    uint32_t cells = info.layers * info.top_k;
    assert_int_equal(got->sequence, r->sequence);
    assert_int_equal(got->position, r->position);
    assert_int_equal(got->token, r->token);
    assert_int_equal(got->step, r->step);
    assert_int_equal(got->phase, r->phase);
    assert_int_equal(got->flags, r->flags);
    for (uint32_t i = 0; i < cells; i++)
        assert_int_equal(got->ids[i], r->ids[i]);
    assert_int_equal(!got->scores, !(info.flags & TRACE_SCORES));
    for (uint32_t i = 0; got->scores && i < cells; i++)
        assert_int_equal(got->scores[i], lrintf(r->weights[i] * 65535));
    assert_int_equal(!got->hits, !(info.flags & TRACE_HITS));
    if (got->hits)
        assert_memory_equal(got->hits, r->hits, cells);
    assert_int_equal(!got->times, !(info.flags & TRACE_TIMES));
    if (got->times)
        assert_memory_equal(got->times, r->times,
                            4 * TRACE_TIME_COLUMNS * info.layers);
}

static void reads_what_was_written(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags < 32; flags++) {
        struct trace *t;
        struct trace_fault fault;
        struct trace_record r;
        write_trace(flags, true);
        assert_int_equal(trace_open(&t, path, false, &fault), 0);
        const struct trace_info *i = trace_info(t);
        assert_int_equal(i->records, rows);
        assert_int_equal(i->steps, passes);
        assert_int_equal(i->sequences, sequences);
        struct trace_info counted = *i;
        counted.records = counted.steps = counted.sequences = 0;
        assert_memory_equal(&counted, &info, sizeof info);
        for (int twice = 0; twice < 2; twice++) {
            for (uint32_t k = 0; k < rows; k++) {
                assert_int_equal(trace_next(t, &r), 1);
                check_record(&r, &row[k]);
            }
            assert_int_equal(trace_next(t, &r), 0);
            assert_int_equal(trace_next(t, &r), 0);
            assert_int_equal(trace_fault(t)->problem, TRACE_FINE);
            trace_rewind(t);
        }
        trace_close(t);
    }
}

/* Read all. Returns how many records came before the end or an error. */
static uint32_t read_all(bool repair, int *error, struct trace_fault *fault)
{
    struct trace *t;
    struct trace_record r;
    uint32_t n = 0;
    *error = trace_open(&t, path, repair, fault);
    if (*error)
        return 0;
    while ((*error = trace_next(t, &r)) == 1) {
        assert_true(n < rows);
        check_record(&r, &row[n++]);
    }
    *fault = *trace_fault(t);
    trace_close(t);
    return n;
}

/* Cut anywhere: a finished trace is refused or, on request, repaired; an
 * unfinished one is repaired always. */
static void cut_anywhere(void **state)
{
    (void)state;
    for (int finish = 0; finish < 2; finish++) {
        write_trace(TRACE_CRC | (finish ? TRACE_HITS : 0), finish);
        size_t head = get32(file + AT_HEADER_BYTES);
        size_t bytes = (file_bytes - head) / rows;
        for (size_t cut = 0; cut < file_bytes; cut++) {
            int error;
            struct trace_fault fault;
            store_file(cut);
            uint32_t n = read_all(false, &error, &fault);
            if (cut < head || finish) {
                assert_int_equal(error, -EBADMSG);
                assert_int_not_equal(fault.problem, TRACE_FINE);
                assert_int_equal(n, 0);
            } else {
                assert_int_equal(error, 0);
                assert_int_equal(n, (cut - head) / bytes);
                assert_int_equal(fault.problem == TRACE_TAIL,
                                 (cut - head) % bytes != 0);
            }
            n = read_all(true, &error, &fault);
            if (cut < head)
                continue;
            assert_int_equal(error, 0);
            assert_int_equal(n, (cut - head) / bytes);
            if (finish) {
                assert_int_equal(fault.problem, TRACE_TAIL);
                assert_int_equal(fault.found, (cut - head) % bytes);
                assert_int_equal(fault.expected, rows - n);
            }
        }
    }
}

/* With checksums no changed byte goes unnoticed: the records before it come,
 * and then an error. Only the JSON object is not covered. */
static void change_any_byte(void **state)
{
    (void)state;
    write_trace(TRACE_CRC | TRACE_SCORES | TRACE_TIMES, true);
    size_t head = get32(file + AT_HEADER_BYTES);
    size_t bytes = (file_bytes - head) / rows;
    for (size_t at = 0; at < file_bytes; at++) {
        int error;
        struct trace_fault fault;
        uint8_t was = file[at];
        file[at] ^= (uint8_t)(1 + rnd(255));
        store_file(file_bytes);
        uint32_t n = read_all(false, &error, &fault);
        file[at] = was;
        if (at >= TRACE_HEADER_BYTES && at < head) {
            assert_int_equal(error, 0);
            continue;
        }
        assert_true(error == -EBADMSG || error == -ENOTSUP);
        assert_int_not_equal(fault.problem, TRACE_FINE);
        assert_int_equal(n, at < head ? 0 : (at - head) / bytes);
        if (at >= head)
            assert_int_equal(fault.record, (at - head) / bytes);
    }
}

/* A crash may leave the last record with its length and without its bytes. In
 * the middle of a trace, or in a finished one, that is damage. */
static void a_torn_last_record_is_a_tail(void **state)
{
    (void)state;
    for (int finish = 0; finish < 2; finish++) {
        write_trace(TRACE_CRC, finish);
        size_t head = get32(file + AT_HEADER_BYTES);
        size_t bytes = (file_bytes - head) / rows;
        for (uint32_t torn = rows - 2; torn < rows; torn++) {
            int error;
            struct trace_fault fault;
            uint8_t saved[8];
            uint8_t *p = file + head + torn * bytes + bytes - 8;
            memcpy(saved, p, 8);
            memset(p, 0, 8);
            store_file(file_bytes);
            bool tail = !finish && torn == rows - 1;
            assert_int_equal(read_all(false, &error, &fault), torn);
            assert_int_equal(error, tail ? 0 : -EBADMSG);
            assert_int_equal(fault.problem, tail ? TRACE_TAIL
                                                 : TRACE_RECORD_CRC);
            assert_true(!tail || fault.found == bytes);
            memcpy(p, saved, 8);
        }
    }
}

/* Without checksums and with a header that lies under a right checksum: any
 * answer but a crash, a hang or records with impossible ids. */
static void lie_in_any_field(void **state)
{
    (void)state;
    for (int i = 0; i < 4000; i++) {
        if (i % 200 == 0)
            write_trace(rnd(16), rnd(2));
        uint8_t saved[FILE_MAX];
        memcpy(saved, file, file_bytes);
        for (uint32_t k = 0; k <= rnd(3); k++) {
            size_t at = 8 + rnd(TRACE_HEADER_BYTES - 12);
            if (rnd(4) == 0)
                at = rnd((uint32_t)file_bytes);
            file[at] = (uint8_t)(rnd(2) ? rnd(256) : 255);
        }
        seal_file();
        store_file(file_bytes);
        struct trace *t;
        struct trace_fault fault;
        struct trace_record r;
        if (!trace_open(&t, path, rnd(2), &fault)) {
            const struct trace_info *f = trace_info(t);
            uint32_t cells = f->layers * f->top_k;
            uint64_t sum = 0;
            while (trace_next(t, &r) == 1)
                for (uint32_t c = 0; c < cells; c++) {
                    assert_true(r.ids[c] < f->experts);
                    sum += r.hits ? r.hits[c] : 0;
                    sum += r.scores ? r.scores[c] : 0;
                }
            assert_true(sum < UINT64_MAX);
            trace_close(t);
        }
        memcpy(file, saved, file_bytes);
    }
}

/* Each rule of the format by name, under right checksums. */
static void each_rule_has_a_name(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint32_t value;
        bool in_record; /* the first */
        int bytes, error;
        enum trace_problem problem;
    } cases[] = {
        { 0, 0x45474e4f, false, 4, -EBADMSG, TRACE_MAGIC },
        { AT_MAJOR, 2, false, 2, -ENOTSUP, TRACE_VERSION },
        { AT_FLAGS, 64, false, 4, -ENOTSUP, TRACE_FLAGS },
        { AT_LAYERS, 0, false, 2, -EBADMSG, TRACE_SHAPE },
        { AT_EXPERTS, 0, false, 2, -EBADMSG, TRACE_SHAPE },
        { AT_TOP_K, 1000, false, 2, -EBADMSG, TRACE_SHAPE },
        { AT_ID_BYTES, 4, false, 2, -EBADMSG, TRACE_SHAPE },
        { AT_HEADER_BYTES, 120, false, 4, -EBADMSG, TRACE_SHAPE },
        { AT_META_BYTES, 1 << 20, false, 4, -EBADMSG, TRACE_SHAPE },
        { AT_RECORD_HEAD, 20, false, 4, -EBADMSG, TRACE_SHAPE },
        { AT_RECORDS, 1 << 20, false, 4, -EBADMSG, TRACE_TRUNCATED },
        { AT_BYTES, 24, true, 4, -EBADMSG, TRACE_RECORD_SIZE },
        { AT_ROWS, 77, true, 2, -EBADMSG, TRACE_ROWS },
        { AT_PHASE, 3, true, 1, -EBADMSG, TRACE_PHASE },
        { AT_STEP, 1 << 20, true, 4, -EBADMSG, TRACE_STEP },
        { TRACE_RECORD_HEAD, 950, true, 2, -EBADMSG, TRACE_ID },
    };
    write_trace(0, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace_fault fault;
        int error;
        uint8_t saved[4];
        uint8_t *p = file + cases[i].at;
        if (cases[i].in_record)
            p += get32(file + AT_HEADER_BYTES);
        memcpy(saved, p, 4);
        for (int b = 0; b < cases[i].bytes; b++)
            p[b] = (uint8_t)(cases[i].value >> 8 * b);
        seal_file();
        store_file(file_bytes);
        struct trace *t;
        struct trace_record r;
        error = trace_open(&t, path, false, &fault);
        while (!error && trace_next(t, &r) == 1)
            ;
        if (!error) {
            fault = *trace_fault(t);
            error = trace_next(t, &r);
            trace_close(t);
        }
        assert_int_equal(error, cases[i].error);
        assert_int_equal(fault.problem, cases[i].problem);
        assert_string_not_equal(trace_problem_text(fault.problem), "");
        memcpy(p, saved, 4);
    }
    seal_file();
    store_file(file_bytes);
}

static void refuses_what_it_cannot_hold(void **state)
{
    (void)state;
    struct trace_writer *w;
    struct trace *t;
    struct trace_fault fault;
    struct trace_info bad = { .layers = 1, .experts = 70000, .top_k = 1 };
    assert_int_equal(trace_create(&w, path, &bad, NULL, 1), -EINVAL);
    bad.experts = 4;
    bad.top_k = 5;
    assert_int_equal(trace_create(&w, path, &bad, NULL, 1), -EINVAL);
    bad.top_k = 2;
    assert_int_equal(trace_create(&w, "/nonexistent/t", &bad, NULL, 1),
                     -ENOENT);
    assert_null(w);
    assert_int_equal(trace_open(&t, "/nonexistent/t", false, &fault), -ENOENT);
    assert_int_equal(trace_open(&t, "/tmp", false, &fault), -EISDIR);
    assert_int_equal(fault.problem, TRACE_FINE);
    assert_int_equal(trace_create(&w, "/dev/full", &bad, NULL, 1), -ENOSPC);
    assert_int_equal(trace_finish(NULL), 0);
    trace_close(NULL);
}

int main(int argc, char **argv)
{
    begin_seed(argc, argv, 20260102);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(change_any_byte),
        cmocka_unit_test(a_torn_last_record_is_a_tail),
        cmocka_unit_test(lie_in_any_field),
        cmocka_unit_test(each_rule_has_a_name),
        cmocka_unit_test(refuses_what_it_cannot_hold),
    };
    return cmocka_run_group_tests_name("trace", tests, make_file, close_file);
}
