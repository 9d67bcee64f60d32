/* prefix_index.h - which entries a prefix cache has, and what each is worth.
 *
 *     prefix_index_read -> { prefix_index_* } -> prefix_index_write
 *     -> prefix_index_free
 *
 * The entries are the files KEY-POSITIONS.seq of the folder. The file `index`
 * keeps their statistics, a line an entry: key, uses, seconds, value. What is
 * missing or damaged there counts as an entry that was used once.
 *
 * Threads  one caller; processes agree by the cache's lock.
 * Errors   negative errnos of the folder; -ENOMEM.
 */
#ifndef MODEL_DECODE_PREFIX_INDEX_H
#define MODEL_DECODE_PREFIX_INDEX_H

#include <stdint.h>

enum { PREFIX_KEY_BYTES = 16, PREFIX_NAME_BYTES = 64 };

struct prefix_entry {
    uint8_t  key[PREFIX_KEY_BYTES];
    uint32_t positions;
    uint64_t bytes;
    uint64_t uses;
    double   seconds; /* that computing it took */
    double   value;   /* the least leaves first */
};

struct prefix_index {
    struct prefix_entry *entry; /* [count], longest first */
    uint32_t count;
    uint64_t bytes; /* of all entries */
    double   clock; /* value of the last that left */
};

int  prefix_index_read(struct prefix_index *x, const char *dir);
int  prefix_index_write(const struct prefix_index *x, const char *dir);
void prefix_index_free(struct prefix_index *x);

struct prefix_entry *prefix_index_find(const struct prefix_index *x,
                                       const uint8_t key[PREFIX_KEY_BYTES],
                                       uint32_t positions);
/* Room for one more, at its place; NULL: no memory. */
struct prefix_entry *prefix_index_add(struct prefix_index *x,
                                      const struct prefix_entry *e);
void prefix_index_remove(struct prefix_index *x, struct prefix_entry *e);
/* The entry that leaves next; count > 0. */
struct prefix_entry *prefix_index_victim(const struct prefix_index *x);
/* Set the value from uses, seconds and bytes, at the present clock. */
void prefix_index_value(const struct prefix_index *x, struct prefix_entry *e);
/* The file name of an entry. */
void prefix_entry_name(char out[PREFIX_NAME_BYTES],
                       const struct prefix_entry *e);

#endif
