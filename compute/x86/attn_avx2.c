#include "compute/x86/lanes_avx2.h"

enum { MLA_HEADS = 1, MLA_VECTORS = 4 }; /* 8 of 16 registers hold sums */

#include "compute/body/attn.h"

void attn_fill_avx2(struct kern *k)
{
    attn_fill(k);
}
