#!/bin/sh
# Goal    an error is asked again with --retry, and by itself when its line or
#         an option that matters has changed; then it leaves the output, which
#         keeps its order; everything else stays as it is.
# Method  a small random checkpoint; files that are mended line by line, and
#         what is left of a crash between the two files of an output in order.
. tests/tap.sh
$S synth "$D/m" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
good() { printf '{"custom_id":"%s","prompt":[1,2],"max_tokens":3}\n' "$1"; }
odd() { printf '{"custom_id":"%s","prompt":[1,2],"max_tokens":3,"odd":1}\n' \
    "$1"; }
run() { # expected status, then words
    want=$1
    shift
    $S batch "$D/m" -i "$D/in" -o "$D/o" -m 64M -t 1 "$@" > "$D/out" \
        2> "$D/err"
    [ $? -eq "$want" ]
}
# "id ok|error" of each line of the output, on one line
state() {
    sed 's/.*"custom_id":"*\([a-z0-9]*\).*"error":\(.\).*/\1\2/;s/n$/+/;s/{$/!/' \
        "$D/o" | tr '\n' ' '
}

{ good a; odd b; echo '{"custom_id": '; good d; } > "$D/in"
run 3 && [ "$(state | tr ' ' '\n' | sort | tr -d '\n')" = 'a+b!d+null!' ]
verdict $? 'two lines have an error'
cp "$D/o" "$D/o1"
run 3 && cmp -s "$D/o" "$D/o1"
verdict $? 'they stay as long as nothing has changed'
run 3 --lenient && [ "$(grep -c '"error":null' "$D/o")" = 3 ] &&
    [ "$(wc -l < "$D/o")" = 4 ] && grep -q '2 errors of before are' "$D/err"
verdict $? 'an option that matters: asked again, the old error is gone'
{ good a; odd b; good c; good d; } > "$D/in"
run 0 --lenient && [ "$(grep -c '"error":null' "$D/o")" = 4 ] &&
    [ "$(wc -l < "$D/o")" = 4 ]
verdict $? 'a line that is mended is answered, and the status is 0'

rm "$D/o"
{ good a; odd b; odd c; good d; good e; } > "$D/in"
run 3 --keep-order && [ "$(state)" = 'a+ b! c! d+ e+ ' ]
verdict $? 'in order, with two errors'
grep '"d"\|"e"' "$D/o" > "$D/before"
{ good a; good b; odd c; good d; good e; } > "$D/in"
run 3 --keep-order && [ "$(state)" = 'a+ b+ c! d+ e+ ' ] &&
    grep '"d"\|"e"' "$D/o" | cmp -s - "$D/before" && [ ! -e "$D/o.held" ]
verdict $? 'one is mended: the order stays, and so do the other answers'
cp "$D/o" "$D/o1"
run 3 --keep-order --retry && [ "$(state)" = 'a+ b+ c! d+ e+ ' ] &&
    grep -q '1 error of before is asked again' "$D/err" && cmp -s "$D/o" "$D/o1"
verdict $? '--retry asks all of them again'
# A crash after the held lines were written, before the output was.
tail -n 2 "$D/o" > "$D/o.held"
{ good a; good b; good c; good d; good e; } > "$D/in"
run 0 --keep-order && [ "$(state)" = 'a+ b+ c+ d+ e+ ' ] && [ ! -e "$D/o.held" ]
verdict $? 'lines in both files of an output in order count once'

rm "$D/o"
{ good a; odd b; } > "$D/in"
run 3
{ good a; good b; } > "$D/in"
run 3 --resume ids && run 0 --resume ids --retry && [ "$(state)" = 'a+ b+ ' ]
verdict $? '--resume ids keeps errors, unless --retry'
rm "$D/o"
{ good a; odd b; } > "$D/in"
run 3
{ good a; good b; } > "$D/in"
$S batch "$D/m" -i - -o "$D/o" -m 64M -t 1 --retry < "$D/in" 2> "$D/err" &&
    cat "$D/in" | $S batch "$D/m" -i - -o "$D/o" -m 64M -t 1 --retry \
        2> "$D/err" && [ "$(state)" = 'a+ b+ ' ]
verdict $? 'of a pipe with --retry'
echo "1..$n"
