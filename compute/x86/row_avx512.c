#include "compute/x86/lanes_avx512.h"

enum { ROUTER_ROWS = 4 };

#include "compute/body/row.h"

void row_fill_avx512(struct kern *k)
{
    row_fill(k);
}
