/* limits.h - what every part that counts drives agrees on. */
#ifndef IO_LIMITS_H
#define IO_LIMITS_H

/* Drives that a session reads from: file systems, or simulated drives. */
#define DRIVES_MAX 64u

#endif
