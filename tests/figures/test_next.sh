#!/bin/sh
# Goal    every "next:" of doctor is a command that can be pasted; names from
#         outside bring no control bytes to a terminal; a prefix cache on a
#         read-only drive is one sentence.
# Method  folders with one thing wrong each; each command is run by sh, with hf,
#         find and the small synth in the place of the real ones.
. tests/tap.sh
mkdir "$D/bin" && printf '#!/bin/sh\nexit 0\n' > "$D/bin/hf" &&
    cp "$D/bin/hf" "$D/bin/find" && chmod +x "$D/bin/hf" "$D/bin/find"
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1
"$S" synth "$D/d" --preset drafter --like "$D/m" > "$D/out" 2>&1 || exit 1
pasted() { # NAME doctor's words...
    name=$1
    shift
    "$S" doctor "$@" > "$D/out" 2> "$D/err"
    next=$(sed -n 's/^next: //p' "$D/out")
    [ -n "$next" ] && (PATH=$D/bin:$PATH sh -c "$next") > "$D/did" 2>&1
    s=$?
    [ $s -eq 0 ] || { echo "# $next"; sed 's/^/# /' "$D/did"; }
    verdict $s "$name"
}
copy() {
    rm -rf "$D/x y" && cp -r "$D/m" "$D/x y"
}
pasted "a whole model" "$D/m"
pasted "a drafter" "$D/d"
copy && pasted "a space in its name" "$D/x y"
pasted "no such folder" "$D/none"
mkdir "$D/empty" && pasted "an empty one" "$D/empty"
copy && rm "$D/x y/model-00003-of-000014.safetensors" &&
    pasted "a shard too few" "$D/x y"
copy && rm "$D/x y/config.json" && pasted "no config" "$D/x y"
copy && truncate -s -9 "$D/x y/model-00003-of-000014.safetensors" &&
    pasted "a short shard" "$D/x y"
copy && rm "$D/x y/tiktoken.model" && pasted "no tokenizer" "$D/x y"
copy && echo '<html>' > "$D/x y/config.json" && pasted "a page as config" "$D/x y"

ESC=$(printf '\033[2J')
"$S" run "$D/m" --ids 1,2 -n 2 --ignore-eos --report "$D/r" \
    --trace "$D/t$ESC" > "$D/out" 2> "$D/err"
{
    "$S" profile --report "$D/r" -o "$D/p$ESC"
    "$S" replay "$D/t$ESC" --html "$D/h$ESC"
    "$S" replay "$D/t$ESC" --simulate-drive 1
    "$S" replay "$D/t$ESC" --acceptance .5
    "$S" spread "$D/m" --to "$D/a$ESC" --to "$D/b"
    "$S" verify "$D/none$ESC"
    "$S" run "$D/none$ESC" -p x
} > "$D/all" 2>&1
[ -e "$D/p$ESC" ] && [ -e "$D/h$ESC" ] && [ "$(grep -c '?\[2J' "$D/all")" -ge 7 ] &&
    ! grep -q "$(printf '\033')" "$D/all"
verdict $? "control bytes of names do not reach a terminal"

if mkdir "$D/cache" "$D/ro" && mount --bind "$D/cache" "$D/ro" 2> "$D/err" &&
    mount -o remount,ro,bind "$D/ro"; then
    "$S" run "$D/m" --ids 1,2 -n 2 --ignore-eos --prefix-cache "$D/ro" \
        > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && [ ! -s "$D/out" ] && [ "$(wc -l < "$D/err")" -eq 1 ] &&
        grep -q "/ro: no prefix cache can be kept there: Read-only" "$D/err"
    verdict $? "a prefix cache on a read-only drive: a sentence"
    umount "$D/ro"
else
    skip "a prefix cache on a read-only drive" "no mount here"
fi
echo "1..$n"
