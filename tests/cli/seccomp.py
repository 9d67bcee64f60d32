"""Run a command to which io_uring is refused: EPERM, as container runtimes do.

usage: seccomp.py COMMAND [ARGUMENT ...]
"""
import ctypes, os, struct, sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO_EPERM = 0x7fff0000, 0x00050001
CALLS = 425, 426, 427  # io_uring_setup, _enter, _register

rules = [(LOAD, 0, 0, 0)]  # the number of the system call
for i, call in enumerate(CALLS):
    rules.append((JUMP_EQUAL, len(CALLS) - i, 0, call))
rules += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO_EPERM)]
code = ctypes.create_string_buffer(
    b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
        libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
    sys.exit(77)
os.execvp(sys.argv[1], sys.argv[1:])
