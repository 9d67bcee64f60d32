/* vmath.h - the steps of vmath.h in sixteen lanes. Included after a
 * lanes_*.h. */
#ifndef COMPUTE_BODY_VMATH_H
#define COMPUTE_BODY_VMATH_H

#include "compute/vmath.h"

LANE_FN vf vf_exp(vf x)
{
    const vf magic = vf_set(VM_MAGIC);
    x = vf_min(vf_set(VM_EXP_MAX), x);
    x = vf_max(vf_set(VM_EXP_MIN), x);
    vf t = vf_fma(x, vf_set(VM_LOG2E), magic);
    vf n = vf_sub(t, magic);
    vf a = vf_fma(n, vf_set(-VM_LN2_HI), x);
    vf r = vf_fma(n, vf_set(-VM_LN2_LO), a);
    vf low = vf_fma(n, vf_set(-VM_LN2_LO), vf_sub(a, r));
    vf p = vf_fma(vf_set(VM_E0), r, vf_set(VM_E1));
    p = vf_fma(p, r, vf_set(VM_E2));
    p = vf_fma(p, r, vf_set(VM_E3));
    p = vf_fma(p, r, vf_set(VM_E4));
    p = vf_fma(p, r, vf_set(VM_E5));
    p = vf_fma(p, vf_mul(r, r), low);
    vf sum = vf_add(vf_set(1.0f), r);
    p = vf_add(vf_add(vf_sub(vf_set(1.0f), sum), r), p);
    p = vf_add(sum, p);
    return vf_pow2(p, t, magic);
}

LANE_FN vf vf_sigmoid(vf x)
{
    const vf one = vf_set(1.0f), zero = vf_set(0.0f);
    vf e = vf_exp(vf_sign(vf_abs(x), vf_set(-0.0f)));
    vf sum = vf_add(one, e), low = vf_sub(e, vf_sub(sum, one));
    vf top = vf_less(x, zero, e, one), inverse = vf_div(one, sum);
    vf q = vf_mul(top, inverse), minus = vf_sub(zero, q);
    vf rest = vf_fma(minus, low, vf_fma(minus, sum, top));
    return vf_fma(rest, inverse, q);
}

LANE_FN vf vf_tanh(vf x)
{
    const vf one = vf_set(1.0f);
    vf a = vf_abs(x), z = vf_mul(x, x);
    vf p = vf_fma(vf_set(VM_T0), z, vf_set(VM_T1));
    p = vf_fma(p, z, vf_set(VM_T2));
    p = vf_fma(p, z, vf_set(VM_T3));
    p = vf_fma(p, z, vf_set(VM_T4));
    vf small = vf_fma(vf_mul(p, z), a, a);
    vf e = vf_add(vf_exp(vf_add(a, a)), one);
    vf large = vf_sub(one, vf_div(vf_set(2.0f), e));
    return vf_sign(vf_less(a, vf_set(VM_TANH_CUT), small, large), x);
}

#endif
