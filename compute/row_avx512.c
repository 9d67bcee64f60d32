#include "compute/lanes_avx512.h"
#include "compute/row_body.h"

void row_fill_avx512(struct kern *k)
{
    row_fill(k);
}
