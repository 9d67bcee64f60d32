# commands.sh - verdicts on whole commands, behind tap.sh.
works() { # NAME command...
    name=$1
    shift
    "$@" > "$D/out" 2> "$D/err"
    verdict $? "$name"
}
fails() { # NAME WORDS command...: exit 1, a sentence with WORDS and a hint
    name=$1 words=$2
    shift 2
    "$@" > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && [ "$(wc -l < "$D/err")" -le 2 ] &&
        cat "$D/out" "$D/err" | grep -qF -- "$words"
    verdict $? "$name"
}
said() { # NAME WORDS: in what the last command printed
    cat "$D/out" "$D/err" | grep -q -- "$2"
    verdict $? "$1"
}
same() { # NAME FOLDER FOLDER
    diff -r "$2" "$3" > "$D/out" 2>&1
    verdict $? "$1"
}
