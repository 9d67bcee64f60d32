#include "model/ckpt/figure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The power of ten of the first of `digits` digits, rounded. */
static int power(double value, int digits)
{
    char text[32];
    snprintf(text, sizeof text, "%.*e", digits - 1, value);
    return atoi(strchr(text, 'e') + 1);
}

static struct figure with_digits(double value, int digits)
{
    struct figure f = { "0" };
    if (!isfinite(value)) {
        snprintf(f.text, sizeof f.text, "%f", value);
        return f;
    }
    int first = value != 0 ? power(value, digits) : 0;
    int places = first < digits - 1 ? digits - 1 - first : 0;
    if (value != 0 && (first < -4 || first > 15))
        snprintf(f.text, sizeof f.text, "%.*e", digits - 1, value);
    else if (value != 0)
        snprintf(f.text, sizeof f.text, "%.*f", places, value);
    return f;
}

struct figure figure(double value)
{
    return with_digits(value, 3);
}

struct figure figure_chosen(double value)
{
    struct figure f = with_digits(value, 3);
    char *power = strchr(f.text, 'e'), *end, tail[8] = "";
    if (!strchr(f.text, '.'))
        return f;
    if (power)
        snprintf(tail, sizeof tail, "%.7s", power);
    end = power ? power : f.text + strlen(f.text);
    while (end[-1] == '0')
        end--;
    end -= end[-1] == '.';
    strcpy(end, tail);
    return f;
}

struct figure figure_points(double share)
{
    double value = 100 * share;
    return with_digits(value, fabs(value) < .1 ? 1 : 3);
}

struct figure figure_percent(double share)
{
    double value = 100 * share, size = fabs(value);
    struct figure f = with_digits(value, size < 1 ? 1 : 3);
    if (size >= 1 && size < 99.5)
        snprintf(f.text, sizeof f.text, "%.0f", value);
    return f;
}

static struct figure with_unit(double value, const char *unit)
{
    struct figure f = figure(value);
    size_t n = strlen(f.text);
    snprintf(f.text + n, sizeof f.text - n, " %s", unit);
    return f;
}

struct figure figure_span(double seconds)
{
    if (seconds >= 7200)
        return with_unit(seconds / 3600, "h");
    if (seconds >= 120)
        return with_unit(seconds / 60, "min");
    if (seconds >= 1 || seconds == 0)
        return with_unit(seconds, "s");
    if (seconds >= 1e-3)
        return with_unit(seconds * 1e3, "ms");
    return with_unit(seconds * 1e6, "µs");
}

struct figure figure_memory(double bytes)
{
    double mib = bytes / 0x1p20;
    return mib >= 1024 ? with_unit(mib / 1024, "GiB") : with_unit(mib, "MiB");
}

struct figure figure_count(uint64_t n, const char *noun)
{
    struct figure f;
    size_t length = strlen(noun);
    const char *end = n == 1                                 ? ""
                      : length && noun[length - 1] == 's' ? "es"
                                                             : "s";
    snprintf(f.text, sizeof f.text, "%" PRIu64 " %.9s%s", n, noun, end);
    return f;
}
