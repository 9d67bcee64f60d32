/* why.h - the sentence that goes with an errno.
 *
 * A function that can fail on something from outside takes a `struct why *` and
 * returns `why_set(why, -EXXX, "file: what was found, what was expected")`.
 * The sentence names the thing. bin/ prints it; nobody else does.
 */
#ifndef MODEL_WHY_H
#define MODEL_WHY_H

struct why {
    int  error; /* the last code set, 0 when none */
    char text[480];
};

/* Write the sentence and return `error`, so that it can be returned in turn.
 * The first sentence set stays: it is nearest to the cause. Control characters
 * in it become '?', what does not fit is cut off. `why` may be NULL. */
int why_set(struct why *why, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
