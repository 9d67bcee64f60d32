/* error.h - the sentence that goes with an errno.
 *
 * A function that can fail because of a file or the kernel takes a struct error
 * and returns `error_set(error, -EXXX, "file: what was found, what was
 * expected")`. The sentence names the thing. Only bin/ prints it.
 *
 * Threads  one caller a struct.
 * Errors   none; what does not fit in the text is cut off.
 */
#ifndef MODEL_CKPT_ERROR_H
#define MODEL_CKPT_ERROR_H

struct error {
    int code; /* a negative errno; 0: no error */
    char text[480];
};

/* Write the sentence and return `code`. If a sentence is already set it stays,
 * since the first is nearest to the cause. Control characters become '?'; what
 * does not fit is cut off. `error` may be NULL. */
int error_set(struct error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
