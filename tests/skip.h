/* skip.h - leave a test out, and say why. tests/run.sh shows the sentence. */
#ifndef TESTS_SKIP_H
#define TESTS_SKIP_H

#include <stdio.h>

/* From a cmocka test; does not return. */
#define skip_because(...)          \
    do {                           \
        printf("# left out: ");    \
        printf(__VA_ARGS__);       \
        printf("\n");              \
        fflush(stdout);            \
        skip();                    \
    } while (0)

#endif
