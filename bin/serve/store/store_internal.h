/* store_internal.h - what the files of the store share. The lock is held. */
#ifndef BIN_SERVE_STORE_STORE_INTERNAL_H
#define BIN_SERVE_STORE_STORE_INTERNAL_H

#include "bin/serve/store/store.h"

/* DIR/KIND/ID + END. */
void store_path(const struct store *s, const char *kind, const char *id,
                const char *end, char path[STORE_PATH]);
/* "KIND-" and digits, unique. */
void store_new_id(struct store *s, const char *kind, char id[STORE_ID]);
/* Write a file beside its place, force it to the drive, rename it. */
int  store_write(const char *path, const char *bytes, size_t count,
                 struct error *error);
/* The folder's names are on the drive. */
int  store_sync_folder(const struct store *s, const char *kind);
/* The object of an id, DIR/KIND/ID.json; frees it. */
int  store_save(const struct store *s, const char *kind, const char *id,
                struct buffer *json, struct error *error);
struct store_file *store_find_file(struct store *s, const char *id);
void store_put_file(struct buffer *out, const struct store_file *f);
int  store_save_file(struct store *s, const struct store_file *f,
                     struct error *error);
void store_add_file(struct store *s, struct store_file *f);
void store_remove_file(struct store *s, struct store_file *f);
/* Reads the batches' objects at open. */
int  store_load_batches(struct store *s, struct error *error);
int  store_fault(struct api_error *e, const struct error *error);
/* Calls `each` with the id and the object of each NAME.json of a folder. */
int  store_scan(struct store *s, const char *kind,
                int (*each)(struct store *s, const char *id,
                            const struct jv *object),
                struct error *error);
void store_copy_text(char *out, size_t room, const struct jv *v);
struct store_batch *store_find_batch(struct store *s, const char *id);
void store_expire_batches(struct store *s, int64_t now);
/* Reads which responses there are at open. */
int  store_load_responses(struct store *s, struct error *error);
void store_expire_responses(struct store *s, int64_t now);
void store_free_responses(struct store *s);
/* Are `bytes` more within the limit, if the oldest responses go? They do. */
bool store_make_room(struct store *s, uint64_t bytes);
/* A batch that is not over reads it. */
bool store_is_read(const struct store *s, const char *file);

#endif
