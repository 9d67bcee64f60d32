#include "model/text/tok_bpe.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "model/text/tok_internal.h"

enum { CAPACITY_FIRST = 256 };

static int reserve(struct tok_bpe *b, size_t bytes)
{
    if (bytes <= b->capacity)
        return 0;
    if (bytes > INT32_MAX / 2)
        return -ENOMEM;
    size_t capacity = b->capacity ? b->capacity : CAPACITY_FIRST;
    while (capacity < bytes)
        capacity *= 2;
    free(b->part);
    free(b->heap);
    b->part = malloc((capacity + 1) * sizeof *b->part);
    b->heap = malloc(2 * capacity * sizeof *b->heap);
    b->capacity = b->part && b->heap ? capacity : 0;
    return b->capacity ? 0 : -ENOMEM;
}

static void heap_push(struct tok_bpe *b, uint64_t entry)
{
    size_t at = b->heap_count++;
    while (at > 0 && b->heap[(at - 1) / 2] > entry) {
        b->heap[at] = b->heap[(at - 1) / 2];
        at = (at - 1) / 2;
        b->steps++;
    }
    b->heap[at] = entry;
    b->steps++;
}

static uint64_t heap_pop(struct tok_bpe *b)
{
    uint64_t min = b->heap[0], entry = b->heap[--b->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        b->steps++;
        if (child >= b->heap_count)
            break;
        if (child + 1 < b->heap_count && b->heap[child + 1] < b->heap[child])
            child++;
        if (b->heap[child] >= entry)
            break;
        b->heap[at] = b->heap[child];
        at = child;
    }
    b->heap[at] = entry;
    return min;
}

/* Look up the part at `at` joined with the next; add the pair to the heap. */
static void offer(const struct tok *t, struct tok_bpe *b, const char *text,
                  uint32_t at, uint32_t end)
{
    struct tok_bpe_part *p = &b->part[at];
    p->rank = TOK_NONE;
    if (p->next == end)
        return;
    size_t bytes = b->part[p->next].next - at;
    b->steps++;
    p->rank = tok_ranks_find(t, text + at, bytes);
    if (p->rank != TOK_NONE)
        heap_push(b, (uint64_t)p->rank << 32 | at);
}

int tok_bpe_piece(const struct tok *t, struct tok_bpe *b, const char *text,
                  size_t bytes, struct id_list *out)
{
    assert(bytes > 0);
    b->steps++;
    int32_t whole = tok_ranks_find(t, text, bytes);
    if (whole != TOK_NONE)
        return id_list_push(out, (uint32_t)whole);
    int err = reserve(b, bytes);
    if (err)
        return err;

    uint32_t end = (uint32_t)bytes;
    for (uint32_t i = 0; i <= end; i++)
        b->part[i] = (struct tok_bpe_part){ i + 1, i - 1, TOK_NONE };
    b->heap_count = 0;
    for (uint32_t i = 0; i < end; i++)
        offer(t, b, text, i, end);
    /* Each join removes a part and offers at most two pairs, one of which
     * replaces the entry just taken: the heap never outgrows 2 a byte. */
    while (b->heap_count > 0) {
        uint64_t entry = heap_pop(b);
        uint32_t at = (uint32_t)entry;
        struct tok_bpe_part *p = &b->part[at];
        /* A part only grows, so an entry of an earlier, shorter pair has
         * another rank than the pair has. */
        if (p->rank != (int32_t)(entry >> 32))
            continue;
        struct tok_bpe_part *gone = &b->part[p->next];
        gone->rank = TOK_NONE;
        p->next = gone->next;
        b->part[p->next].prev = at;
        offer(t, b, text, at, end);
        if (at > 0)
            offer(t, b, text, p->prev, end);
    }
    for (uint32_t i = 0; i < end && !err; i = b->part[i].next) {
        int32_t rank = tok_ranks_find(t, text + i, b->part[i].next - i);
        assert(rank != TOK_NONE);
        err = id_list_push(out, (uint32_t)rank);
    }
    return err;
}

void tok_bpe_free(struct tok_bpe *b)
{
    free(b->part);
    free(b->heap);
    *b = (struct tok_bpe){ 0 };
}
