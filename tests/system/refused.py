"""Run a command to which system calls are refused, as containers and odd file
systems do.

usage: refused.py ERRNO NUMBER[,NUMBER...] COMMAND [ARGUMENT ...]
"""
import ctypes, os, struct, sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7fff0000, 0x00050000
calls = [int(n) for n in sys.argv[2].split(",")]

rules = [(LOAD, 0, 0, 0)]  # the number of the system call
for i, call in enumerate(calls):
    rules.append((JUMP_EQUAL, len(calls) - i, 0, call))
rules += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO | int(sys.argv[1]))]
code = ctypes.create_string_buffer(
    b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if os.uname().machine != "x86_64" or \
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
        libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
    sys.exit(77)
os.execvp(sys.argv[3], sys.argv[3:])
