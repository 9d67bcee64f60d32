/* format.h - the supported formats of strings, each as a pattern that the
 * whole string must match. */
#ifndef MODEL_GRAMMAR_FORMAT_H
#define MODEL_GRAMMAR_FORMAT_H

#include <stddef.h>

/* The pattern of a format, NULL if it is not supported. */
const char *format_pattern(const char *name);
/* The i-th name, NULL past the last. */
const char *format_name(size_t i);

#endif
