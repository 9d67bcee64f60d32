#include "compute/mla.h"

#include <assert.h>

#include "compute/kern.h"

size_t mla_scratch(size_t heads, size_t latent, size_t rope)
{
    /* For each head its query padded to whole lanes, the scores of a block,
     * maximum, rescaling and a double of sum; then room to align to a line. */
    size_t padded = (latent + rope + 15) / 16 * 16;
    return heads * (padded + MLA_BLOCK + 4) + 32;
}

void mla_attend(const struct kern *kern, float *mix, const float *qa,
                const float *qr, size_t heads, const float *cache,
                size_t positions, size_t latent, size_t rope, float scale,
                float *scratch)
{
    assert(positions >= 1);
    assert(latent >= 1);
    kern->mla_attend(mix, qa, qr, heads, cache, positions, latent, rope, scale,
                     scratch);
}
