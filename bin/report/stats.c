#include "bin/report/stats.h"

#include <assert.h>
#include <math.h>

/* The continued fraction of the incomplete beta function, by Lentz. */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300, close = 1e-14;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double result = d;
    for (int m = 1; m <= 500; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x /
                     ((a + 2 * m) * (a + 2 * m + 1));
        for (int half = 0; half < 2; half++) {
            double term = half ? odd : even;
            d = 1 + term * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + term / c;
            c = fabs(c) < tiny ? tiny : c;
            result *= d * c;
        }
        if (fabs(d * c - 1) < close)
            break;
    }
    return result;
}

/* The regularised incomplete beta function I_x(a, b). */
static double beta_incomplete(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) +
                       b * log1p(-x));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double stats_student_cdf(double t, double df)
{
    double tail = beta_incomplete(df / 2, 0.5, df / (df + t * t)) / 2;
    return t > 0 ? 1 - tail : tail;
}

/* The t that Student's distribution exceeds with chance `tail`. */
static double student_quantile(double tail, double df)
{
    double low = 0, high = 1;
    while (1 - stats_student_cdf(high, df) > tail && high < 1e9)
        high *= 2;
    for (int i = 0; i < 200; i++) {
        double mid = (low + high) / 2;
        if (1 - stats_student_cdf(mid, df) > tail)
            low = mid;
        else
            high = mid;
    }
    return high;
}

static double mean_of(const struct stats_group *g)
{
    double sum = 0;
    for (size_t i = 0; i < g->n; i++)
        sum += g->value[i];
    return sum / (double)g->n;
}

/* The variance of the mean. */
static double variance_of(const struct stats_group *g, double mean)
{
    double sum = 0;
    for (size_t i = 0; i < g->n; i++)
        sum += (g->value[i] - mean) * (g->value[i] - mean);
    return sum / (double)(g->n - 1) / (double)g->n;
}

struct stats_result stats_compare(const struct stats_group *a,
                                  const struct stats_group *b, double alpha)
{
    assert(a->n >= 1 && b->n >= 1 && alpha > 0 && alpha < 1);
    struct stats_result r = { .mean_a = mean_of(a), .mean_b = mean_of(b) };
    double difference = r.mean_b - r.mean_a;
    r.low = r.high = difference;
    if (a->n < 2 || b->n < 2)
        return r;
    double va = variance_of(a, r.mean_a), vb = variance_of(b, r.mean_b);
    r.known = true;
    if (va + vb > 0) {
        double df = (va + vb) * (va + vb) /
                    (va * va / (double)(a->n - 1) +
                     vb * vb / (double)(b->n - 1));
        double reach = student_quantile(alpha / 2, df) * sqrt(va + vb);
        r.low = difference - reach;
        r.high = difference + reach;
    }
    r.differs = r.low > 0 || r.high < 0;
    return r;
}
