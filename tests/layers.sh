#!/bin/sh
# The folder picture is true: each folder includes itself and those named here.
# Below bin/ nothing exits, prints or reads the environment.
fail=0
for rule in io: compute: sched:io model:sched,compute,io bin:model,sched,compute,io; do
    folder=${rule%%:*}
    for other in io compute sched model bin bench tests; do
        case ",$folder,${rule#*:}," in *",$other,"*) continue ;; esac
        if grep -n "#include \"$other/" "$folder"/*.[ch] 2>/dev/null; then
            echo "layers: $folder may not include $other" >&2
            fail=1
        fi
    done
done
if grep -nE '\b(getenv|exit|abort|printf|fprintf|puts|perror)[[:space:]]*\(' \
    io/*.c compute/*.c sched/*.c model/*.c 2>/dev/null |
    grep -vE '(sn|vsn|as|vas)printf|^[^:]*:[0-9]*:[[:space:]]*(/?\*|//)'; then
    echo "layers: printing or leaving below bin/" >&2
    fail=1
fi
exit $fail
