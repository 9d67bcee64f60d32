#include "bench/bare.h"

#include <errno.h>

#include "io/clock.h"
#include "io/method.h"

#define PIECE_BYTES ((uint64_t)1 << 30) /* the kernel's most for a buffer */
enum { PIECES_MAX = 64 };

int bare_open(struct bare *b, int fd, char *area, uint64_t area_bytes)
{
    struct iovec iov[PIECES_MAX];
    unsigned n = 0, flags = IORING_SETUP_SINGLE_ISSUER |
                            IORING_SETUP_DEFER_TASKRUN;
    *b = (struct bare){ .area = area, .area_bytes = area_bytes };
    int err = io_uring_queue_init(BARE_DEPTH_MAX, &b->ring, flags);
    if (err == -EINVAL)
        err = io_uring_queue_init(BARE_DEPTH_MAX, &b->ring, 0);
    if (err < 0)
        return err;
    b->open = true;
    for (uint64_t at = 0; at < area_bytes && n < PIECES_MAX;
         at += PIECE_BYTES, n++) {
        uint64_t left = area_bytes - at;
        iov[n].iov_base = area + at;
        iov[n].iov_len = left < PIECE_BYTES ? left : PIECE_BYTES;
    }
    b->registered = io_uring_register_buffers(&b->ring, iov, n) == 0;
    return io_uring_register_files(&b->ring, &fd, 1);
}

void bare_close(struct bare *b)
{
    if (b->open)
        io_uring_queue_exit(&b->ring);
    b->open = false;
}

int64_t bare_run(struct bare *b, uint64_t chunk_bytes, uint64_t depth,
                 bool registered, bare_at_fn *at, const void *arg,
                 int64_t until_ns)
{
    uint64_t pushed = 0, done = 0;
    unsigned len = (unsigned)chunk_bytes;
    while (done < pushed || clock_ns() < until_ns) {
        while (pushed - done < depth && clock_ns() < until_ns) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&b->ring);
            uint64_t to = pushed * chunk_bytes % b->area_bytes;
            if (registered)
                io_uring_prep_read_fixed(sqe, 0, b->area + to, len,
                                         at(arg, pushed),
                                         (int)(to / PIECE_BYTES));
            else
                io_uring_prep_read(sqe, 0, b->area + to, len, at(arg, pushed));
            io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
            pushed++;
        }
        int err = io_uring_submit_and_wait(&b->ring, done < pushed);
        if (err < 0 && err != -EINTR)
            return err;
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&b->ring, &cqe) == 0) {
            if (cqe->res != (int)chunk_bytes)
                return cqe->res < 0 ? cqe->res : -EIO;
            io_uring_cqe_seen(&b->ring, cqe);
            done++;
        }
    }
    return (int64_t)(done * chunk_bytes);
}
