/* stats.h - is the difference between two groups of runs more than noise?
 *
 * Errors   none. Threads: pure functions.
 * Source   Welch's t-test; Student's distribution by the continued fraction of
 *          the incomplete beta function.
 */
#ifndef BIN_REPORT_STATS_H
#define BIN_REPORT_STATS_H

#include <stdbool.h>
#include <stddef.h>

enum { STATS_RUNS_MAX = 64 };

struct stats_group {
    size_t n;
    double value[STATS_RUNS_MAX];
};

struct stats_result {
    double mean_a, mean_b;
    bool   known;    /* both groups have enough runs to tell noise */
    bool   differs;  /* the means differ beyond noise */
    double low, high; /* interval of mean_b - mean_a; if known */
};

/* Compare two groups, each of at least one run. `alpha` (0..1) is the chance
 * of a false "differs". A group of equal values has no noise: counts that
 * differ, differ. */
struct stats_result stats_compare(const struct stats_group *a,
                                  const struct stats_group *b, double alpha);
/* P(T <= t) for Student's t with `df` degrees of freedom, df > 0. */
double stats_student_cdf(double t, double df);

#endif
