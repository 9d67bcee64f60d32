#include "tests/fuzz/damage.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/crc32c.h"
#include "model/pack/box.h"
#include "model/tools/synth.h"

uint64_t damage_seed;

void damage_checkpoint(char *dir)
{
    static const struct synth_setting small[] = {
        { "num_hidden_layers", "4" }, { "full_attn_layers", "4" },
        { "num_experts", "8" },
    };
    struct error error = { 0 };
    struct synth_facts made;
    assert_non_null(mkdtemp(dir));
    struct synth_options o = { .dir = dir, .preset = "tiny", .setting = small,
                               .settings = 3 };
    if (synth_write(&o, &made, &error))
        fail_msg("%s", error.text);
}

void damage_store(const char *path, const uint8_t *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

uint64_t damage_tables_at(const uint8_t *file)
{
    struct box_head head;
    memcpy(&head, file, sizeof head);
    return head.tables_at;
}

void damage_seal(uint8_t *file, size_t bytes)
{
    struct box_head head;
    if (bytes < BOX_PAGE)
        return;
    memcpy(&head, file, sizeof head);
    if (head.tables_at < bytes && head.tables_bytes <= bytes - head.tables_at)
        head.tables_crc = crc32c(0, file + head.tables_at, head.tables_bytes);
    memcpy(file, &head, sizeof head);
    uint32_t crc = crc32c(0, file, BOX_PAGE - 4);
    memcpy(file + BOX_PAGE - 4, &crc, sizeof crc);
}

uint64_t damage_draw(uint64_t below)
{
    damage_seed = damage_seed * UINT64_C(6364136223846793005) + 1;
    return (damage_seed >> 24) % below;
}

uint32_t damage_rounds(uint32_t usual)
{
    const char *n = getenv("MUTATIONS");
    return n ? (uint32_t)strtoul(n, NULL, 10) : usual;
}

size_t damage_splice(char *text, size_t bytes, size_t room, size_t at,
                     size_t cut, const char *what, size_t n)
{
    cut = cut < bytes - at ? cut : bytes - at;
    n = n < room - (bytes - cut) ? n : room - (bytes - cut);
    char *kept = malloc(n + 1);
    assert_non_null(kept);
    memcpy(kept, what, n);
    memmove(text + at + n, text + at + cut, bytes - at - cut);
    memcpy(text + at, kept, n);
    free(kept);
    return bytes - cut + n;
}
