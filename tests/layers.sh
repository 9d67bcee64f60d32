#!/bin/sh
# The folder picture is true. A folder includes itself and the folders named
# beside it here, by their full names; so there is no circle between folders,
# since each may name only folders above its own line. *_internal.h stays in its
# folder. Below bin/ nothing exits, prints, opens a stdio stream or reads the
# environment. No folder has more than 40 files, no file more than 600 lines, no
# line more than 80 columns.
cd "$(dirname "$0")/.." || exit 1
awk '
BEGIN {
    may["io"]           = ""
    may["compute"]      = ""
    may["compute/body"] = "compute"
    may["compute/x86"]  = "compute compute/body"
    may["sched/trace"]  = ""
    may["sched/cache"]  = "sched/trace"
    may["sched/prefetch"] = ""
    may["sched"]        = "io sched/cache"
    may["model/json"]   = ""
    may["model/ckpt"]   = "sched model/json"
    may["model/grammar"] = "model/json model/ckpt"
    may["model/text"]   = "model/json model/ckpt"
    may["model/chat"]   = "model/json model/ckpt model/text"
    may["model/pack"]   = "io compute model/ckpt"
    may["model/parts"]  = "io compute model/ckpt model/pack"
    may["model/state"]  = "io compute model/ckpt"
    may["model/k3"]     = "io compute sched sched/cache sched/prefetch " \
                          "model/ckpt model/pack model/parts model/state"
    may["model/dspark"] = "io compute sched model/ckpt model/k3"
    may["model/machines"] = "io model/ckpt model/k3"
    may["model/decode"] = "io model/ckpt model/state model/k3 " \
                          "model/dspark"
    may["model/sim"]    = "io compute sched sched/cache sched/prefetch " \
                          "sched/trace model/ckpt model/parts model/state " \
                          "model/k3"
    may["model/tools"]  = "io compute model/ckpt model/text model/pack " \
                          "model/parts model/dspark"
    may["model"]        = "io model/json model/ckpt model/grammar " \
                          "model/text model/chat model/state " \
                          "model/k3 model/dspark model/decode"
    below = "io compute sched sched/cache sched/prefetch sched/trace " \
            "model/json model/ckpt model/grammar model/text model/chat " \
            "model/pack model/parts model/state model/k3 model/dspark " \
            "model/machines model/decode model/sim model/tools model"
    may["bin/cli"]      = below
    may["bin/report"]   = below " bin/cli"
    may["bin/html"]     = below " bin/cli bin/report"
    may["bin/replay"]   = below " bin/cli bin/report bin/html"
    may["bin/batch"]    = below " bin/cli"
    may["bin/serve/api"]   = below
    may["bin/serve/store"] = below " bin/serve/api"
    may["bin/serve/net"]   = below
    may["bin/serve"]    = below " bin/cli bin/batch bin/serve/api " \
                          "bin/serve/store bin/serve/net"
    may["bin/doctor"]   = below " bin/cli"
    may["bin/spread"]   = below
    may["bin"]          = below " bin/cli bin/report bin/html bin/replay " \
                          "bin/batch bin/serve/store bin/serve/net " \
                          "bin/serve bin/doctor bin/spread"
    folders = "io compute compute/body compute/x86 sched/trace sched/cache " \
              "sched/prefetch sched model/json model/ckpt model/grammar " \
              "model/text " \
              "model/chat model/pack model/parts model/state model/k3 " \
              "model/dspark " \
              "model/machines model/decode model/sim " \
              "model/tools model bin/cli bin/report bin/html bin/replay " \
              "bin/batch bin/serve/api bin/serve/store bin/serve/net " \
              "bin/serve bin/doctor bin/spread bin"
    n = split(folders, order, " ")
    for (i = 1; i <= n; i++) {
        m = split(may[order[i]], names, " ")
        for (j = 1; j <= m; j++)
            if (!(names[j] in seen))
                complain(order[i] " may name only folders above it, not " \
                         names[j])
        seen[order[i]] = 1
    }
    calls = "(^|[^a-zA-Z0-9_])(getenv|secure_getenv|setenv|exit|_exit|_Exit|" \
            "abort|v?f?printf|dprintf|puts|fputs|putc|fputc|putchar|fwrite|" \
            "perror|fopen|signal)[ \t]*\\("
}
function complain(what) { print "layers: " what > "/dev/stderr"; fail = 1 }
function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
FNR == 1 {
    folder = folder_of(FILENAME)
    top = folder
    sub(/\/.*/, "", top)
    product = top != "tests" && top != "bench"
    if (product && !(folder in may))
        complain(folder " is in no rule")
}
length > 80 { complain(FILENAME ":" FNR ": " length " columns") }
FNR == 601 { complain(FILENAME ": more than 600 lines") }
/^ *# *include *"/ {
    split($0, part, "\"")
    other = folder_of(part[2])
    if (part[2] !~ /^(io|compute|sched|model|bin|bench|tests)\/[a-z0-9_\/]+\.h$/)
        complain(FILENAME ":" FNR ": an include without its folder")
    else if (product && other != folder &&
             index(" " may[folder] " ", " " other " ") == 0)
        complain(FILENAME ":" FNR ": " folder " may not include " other)
    if (product && part[2] ~ /_internal\.h$/ && other != folder)
        complain(FILENAME ":" FNR ": what " other " keeps to itself")
}
product && top != "bin" && $0 ~ calls && $0 !~ /^[ \t]*\/?\*/ {
    complain(FILENAME ":" FNR ": printing, leaving or asking below bin/")
}
END { exit fail }' $(find io compute sched model bin bench tests -name '*.[ch]')
fail=$?
for folder in $(find io compute sched model bin bench tests -type d); do
    n=$(find "$folder" -maxdepth 1 -type f | wc -l)
    [ "$n" -le 40 ] && continue
    echo "layers: $folder has $n files: more than 40" >&2
    fail=1
done
exit $fail
