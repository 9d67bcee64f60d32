#!/bin/sh
# The folder picture is true: each folder includes itself and those named here,
# by their full names; *_internal.h stays in its folder. Below bin/ nothing
# exits, prints, opens a stdio stream or reads the environment. No line is
# longer than 80 columns, no file than 600 lines.
fail=0
complain() { # what
    echo "layers: $1" >&2
    fail=1
}
for rule in io: compute: sched:io model:sched,compute,io \
    bin:model,sched,compute,io; do
    folder=${rule%%:*}
    for other in io compute sched model bin bench tests; do
        case ",$folder,${rule#*:}," in *",$other,"*) continue ;; esac
        grep -nE "^ *# *include *\"(\./|\.\./)*$other/" "$folder"/*.[ch] &&
            complain "$folder may not include $other"
    done
    grep -nE '^ *# *include *"' "$folder"/*.[ch] |
        grep -vE '"(io|compute|sched|model|bin)/[a-z0-9_]+\.h"' &&
        complain "an include without its folder"
    grep -nE '^ *# *include *".*_internal\.h"' "$folder"/*.[ch] |
        grep -v "\"$folder/" &&
        complain "$folder includes what another folder keeps to itself"
done
calls='getenv|secure_getenv|setenv|exit|_exit|_Exit|abort|v?f?printf|dprintf'
calls="$calls|puts|fputs|putc|fputc|putchar|fwrite|perror|fopen|signal"
grep -nE "\b($calls)[[:space:]]*\(" io/*.[ch] compute/*.[ch] sched/*.[ch] \
    model/*.[ch] | grep -vE '^[^:]*:[0-9]*:[[:space:]]*/?\*' &&
    complain "printing, leaving or asking below bin/"
for file in io/*.[ch] compute/*.[ch] sched/*.[ch] model/*.[ch] bin/*.[ch] \
    bench/*.[ch] tests/*/*.[ch]; do
    awk -v f="$file" 'length > 80 { print f ":" NR ": " length " columns"; n++ }
        END { if (NR > 600) print f ": " NR " lines"
              exit n > 0 || NR > 600 }' "$file" ||
        complain "too long"
done
exit $fail
