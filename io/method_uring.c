#include "io/clock.h"
#include "io/method.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAKE_DATA   (UINT64_C(1) << 32) /* no id of 32 bits is this */
#define PIECE_BYTES (UINT64_C(1) << 28) /* the kernel takes up to 1 GiB */
#define PIECES_MAX  16384u              /* its most buffers: 4 TiB */
#define PAUSE_NS    100000

#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

struct uring {
    struct io_uring ring;
    bool     open, enabled, listening;
    bool     fixed_files;
    uint32_t pieces; /* registered buffers */
    char    *arena_base;
    uint64_t arena_bytes;
    int      wake_fd;
    int      broken; /* what made listening for a wake impossible, or 0 */
};

static void uring_close(void *ctx)
{
    struct uring *u = ctx;
    /* The kernel takes a ring apart a little later, and until then holds and
     * charges the pages that are registered, unmapped or not. */
    if (u->open && u->pieces)
        io_uring_unregister_buffers(&u->ring);
    if (u->open)
        io_uring_queue_exit(&u->ring);
    if (u->wake_fd >= 0)
        close(u->wake_fd);
    free(u);
}

/* One thread submits and reaps (method.h), so let the kernel run completion
 * work when we ask for it, not in the middle of something else. The ring starts
 * disabled: the thread that enables it becomes the one submitter. */
static int setup_ring(struct uring *u, const struct io_setup *s)
{
    static const unsigned ladder[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
            IORING_SETUP_R_DISABLED,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_R_DISABLED,
        0,
    };
    int err = -EINVAL;
    for (size_t i = 0; err == -EINVAL && i < 3; i++) {
        /* One more than `depth`, for what listens for a wake. */
        err = io_uring_queue_init(s->depth + 1, &u->ring, ladder[i]);
        u->enabled = !(ladder[i] & IORING_SETUP_R_DISABLED);
        s->granted->setup_flags = ladder[i] & ~IORING_SETUP_R_DISABLED;
        s->granted->setup_error = i > 0 ? -EINVAL : 0;
    }
    u->open = err == 0;
    return err;
}

static void raise_memlock(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_MEMLOCK, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        setrlimit(RLIMIT_MEMLOCK, &lim);
    }
}

/* All of the arena or nothing: half would only make timing uneven. */
static int register_arena(struct uring *u, const struct io_setup *s)
{
    uint64_t pieces = (s->arena_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    if (pieces > PIECES_MAX)
        return -E2BIG;
    struct iovec *iov = calloc(pieces, sizeof *iov);
    if (!iov)
        return -ENOMEM;
    for (uint64_t i = 0; i < pieces; i++) {
        uint64_t left = s->arena_bytes - i * PIECE_BYTES;
        iov[i].iov_base = (char *)s->arena_base + i * PIECE_BYTES;
        iov[i].iov_len = left < PIECE_BYTES ? left : PIECE_BYTES;
    }
    raise_memlock();
    int err = io_uring_register_buffers(&u->ring, iov, (unsigned)pieces);
    free(iov);
    if (err < 0)
        return err;
    u->pieces = (uint32_t)pieces;
    u->arena_base = s->arena_base;
    u->arena_bytes = s->arena_bytes;
    return 0;
}

static int uring_open(void **ctx, const struct io_setup *s)
{
    struct uring *u = calloc(1, sizeof *u);
    if (!u)
        return -ENOMEM;
    u->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int err = u->wake_fd < 0 ? -errno : setup_ring(u, s);
    if (err < 0) {
        uring_close(u);
        return err;
    }
    struct io_granted *g = s->granted;
    g->files_error = io_uring_register_files(&u->ring, s->fds, s->files);
    u->fixed_files = g->registered_files = g->files_error == 0;
    if (s->arena_base) {
        g->buffers_error = register_arena(u, s);
        g->registered_buffers = g->buffers_error == 0;
    }
    *ctx = u;
    return 0;
}

/* The registered buffer that holds all of the target, or -1. */
static int piece_of(const struct uring *u, const struct io_op *op)
{
    uintptr_t at = (uintptr_t)op->target - (uintptr_t)u->arena_base;
    if (u->pieces == 0 || op->plain || at >= u->arena_bytes ||
        op->length_bytes > u->arena_bytes - at)
        return -1;
    uint64_t first = at / PIECE_BYTES;
    uint64_t last = (at + op->length_bytes - 1) / PIECE_BYTES;
    return first == last ? (int)first : -1;
}

static void uring_push(void *ctx, const struct io_op *op)
{
    struct uring *u = ctx;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    assert(sqe); /* room for all that may be outstanding */
    int fd = u->fixed_files ? (int)op->file : op->fd;
    int piece = piece_of(u, op);
    if (piece >= 0)
        io_uring_prep_read_fixed(sqe, fd, op->target, op->length_bytes,
                                 op->offset_bytes, piece);
    else
        io_uring_prep_read(sqe, fd, op->target, op->length_bytes,
                           op->offset_bytes);
    if (u->fixed_files)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, op->id);
}

/* liburing has a function for it, which Debian's 2.3 does not export. */
static int enable_ring(struct uring *u)
{
    if (u->enabled)
        return 0;
    if (syscall(SYS_io_uring_register, u->ring.ring_fd,
                IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
        return -errno;
    u->enabled = true;
    return 0;
}

/* A wake is a write to an eventfd, and a poll of it is always outstanding: so
 * one wait covers both, and nothing has to interrupt the thread. Not a read of
 * it: that would leave the kernel a place to write to after close. */
static void listen_for_wake(struct uring *u)
{
    if (u->listening)
        return;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    assert(sqe); /* one was added for this */
    io_uring_prep_poll_add(sqe, u->wake_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, WAKE_DATA);
    u->listening = true;
}

static void heard_wake(struct uring *u, int32_t res)
{
    uint64_t count;
    ssize_t n = read(u->wake_fd, &count, sizeof count);
    (void)n; /* somebody wrote, or else there is nothing to reset */
    u->listening = false;
    if (res < 0) /* to listen again at once would only spin */
        u->broken = res;
}

static int enter(struct uring *u, uint32_t max, int64_t deadline_ns)
{
    if (max == 0)
        return io_uring_sq_ready(&u->ring) ? io_uring_submit(&u->ring) : 0;
    if (deadline_ns == IO_NO_DEADLINE)
        return io_uring_submit_and_wait(&u->ring, 1);
    int64_t left = deadline_ns > 0 ? deadline_ns - clock_ns() : 0;
    if (left <= 0)
        return io_uring_submit_and_get_events(&u->ring);
    struct timespec ts = io_timespec(left);
    struct __kernel_timespec kts = { ts.tv_sec, ts.tv_nsec };
    struct io_uring_cqe *cqe;
    return io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &kts, NULL);
}

static int uring_reap(void *ctx, struct io_result *out, uint32_t max,
                      int64_t deadline_ns)
{
    struct uring *u = ctx;
    int err = u->broken ? u->broken : enable_ring(u);
    if (err < 0)
        return err;
    listen_for_wake(u);
    /* Results that are there already need no wait, only the submission. */
    if (io_uring_cq_ready(&u->ring) > 0)
        deadline_ns = 0;
    err = enter(u, max, deadline_ns);
    if (err == -EAGAIN || err == -EBUSY) {
        /* No memory for a request: those before it have to end first. */
        struct timespec pause = io_timespec(PAUSE_NS);
        if (deadline_ns != 0 && io_uring_cq_ready(&u->ring) == 0)
            nanosleep(&pause, NULL);
        err = io_uring_get_events(&u->ring);
    }
    if (err < 0 && err != -EINTR && err != -ETIME && err != -EAGAIN &&
        err != -EBUSY)
        return err;

    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    uint32_t n = 0;
    int64_t now = clock_ns();
    if (max == 0)
        return 0;
    io_uring_for_each_cqe(&u->ring, head, cqe) {
        if (n == max)
            break;
        seen++;
        uint64_t data = io_uring_cqe_get_data64(cqe);
        if (data == WAKE_DATA)
            heard_wake(u, cqe->res);
        else if (data != LIBURING_UDATA_TIMEOUT)
            out[n++] = (struct io_result){ (uint32_t)data, cqe->res, now };
    }
    io_uring_cq_advance(&u->ring, seen);
    return (int)n;
}

static void uring_wake(void *ctx)
{
    struct uring *u = ctx;
    uint64_t one = 1;
    ssize_t n = write(u->wake_fd, &one, sizeof one);
    (void)n; /* a full counter is a wake that is already on its way */
}

const struct io_method method_uring = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .push = uring_push,
    .reap = uring_reap,
    .wake = uring_wake,
};
