#include "compute/x86/lanes_avx2.h"

enum { ROUTER_ROWS = 2 };

#include "compute/body/row.h"

void row_fill_avx2(struct kern *k)
{
    row_fill(k);
}
