#include "model/json/mark.h"

#include <string.h>

const char *text_mark(const char *text, size_t bytes, size_t *skip)
{
    static const struct {
        const char *begin;
        size_t      bytes;
        const char *what;
    } marks[] = {
        { "\xff\xfe\0\0", 4, "it is UTF-32: iconv -f UTF-32 -t UTF-8" },
        { "\0\0\xfe\xff", 4, "it is UTF-32: iconv -f UTF-32 -t UTF-8" },
        { "\xff\xfe", 2, "it is UTF-16: iconv -f UTF-16 -t UTF-8" },
        { "\xfe\xff", 2, "it is UTF-16: iconv -f UTF-16 -t UTF-8" },
        { "{\0", 2, "it is UTF-16: iconv -f UTF-16LE -t UTF-8" },
        { "\0{", 2, "it is UTF-16: iconv -f UTF-16BE -t UTF-8" },
        { "\x1f\x8b", 2, "it is compressed by gzip: gzip -dc" },
        { "\x28\xb5\x2f\xfd", 4, "it is compressed by zstd: zstd -dc" },
        { "\xfd\x37zX", 4, "it is compressed by xz: xz -dc" },
        { "PK\3\4", 4, "it is a zip archive: unzip -p" },
        { "\xef\xbb\xbf", 3, NULL },
    };
    *skip = 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (bytes < marks[i].bytes ||
            memcmp(text, marks[i].begin, marks[i].bytes))
            continue;
        *skip = marks[i].what ? 0 : marks[i].bytes;
        return marks[i].what;
    }
    return NULL;
}
