/* lanes.h - what lanes_avx2.h and lanes_avx512.h have in common. */
#ifndef COMPUTE_X86_LANES_H
#define COMPUTE_X86_LANES_H

#define LANE_FN static inline __attribute__((always_inline))
/* Loops over tiles of registers: unrolled, so that the tile stays in them; and
 * a long loop by two, which then share the arithmetic of addresses. */
#if defined(__clang__)
#define UNROLL   _Pragma("unroll")
#define UNROLL_2 _Pragma("unroll 2")
#else
#define UNROLL   _Pragma("GCC unroll 16")
#define UNROLL_2 _Pragma("GCC unroll 2")
#endif
enum { LANES = 16 };

#endif
