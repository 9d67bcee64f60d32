/* own_malloc.h - may a test bring a malloc of its own, or count memory? Not
 * under sanitizers, which bring theirs. */
#ifndef TESTS_UNIT_OWN_MALLOC_H
#define TESTS_UNIT_OWN_MALLOC_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
#endif

#endif
