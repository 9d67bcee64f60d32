#include "compute/lanes_avx2.h"

enum { ROUTER_ROWS = 2 };

#include "compute/row_body.h"

void row_fill_avx2(struct kern *k)
{
    row_fill(k);
}
