#!/bin/sh
# Goal    a stranger's program builds against what `make install` puts down, and
#         answers as `sluice run` does: in C and C++, against the shared library
#         and the archive. The libraries show only what sluice.h declares.
# Method  install to a folder under DESTDIR, compile embed.c and embed.cc with
#         what pkg-config says, run them on a random model; nm on both files; a
#         program whose own functions have the names of ours.
cd "$(dirname "$0")/../.." || exit 1
. tests/tap.sh
B=${BUILD:-build}
ROOT=$D/root
make -s install-built BUILD="$B" DESTDIR="$ROOT" PREFIX=/opt/k3 \
    > "$D/out" 2> "$D/err"
verdict $? "make install honours DESTDIR and PREFIX"
ls "$ROOT"/opt/k3/bin/sluice "$ROOT"/opt/k3/include/sluice.h \
    "$ROOT"/opt/k3/lib/libsluice.a "$ROOT"/opt/k3/lib/libsluice.so \
    "$ROOT"/opt/k3/lib/pkgconfig/sluice.pc > "$D/out" 2>&1 &&
    [ "$(ls "$ROOT" | wc -l)" -eq 1 ] && [ "$(ls "$ROOT/opt" | wc -l)" -eq 1 ]
verdict $? "program, header, libraries and pkg-config file are there"

declared=$D/declared
sed -n 's/.*[ *]\(sluice_[a-z_]*\)(.*/\1/p' model/sluice.h |
    grep -v '_s$' | sort -u > "$declared"
names() { nm "$@" | awk '$2 ~ /[A-TV-Zuvw]/ && $2 != "U" && $2 != "w" \
    { sub(/@.*/, "", $3); print $3 }' | sort -u; }
names --defined-only "$ROOT/opt/k3/lib/libsluice.a" > "$D/a"
diff "$declared" "$D/a" > "$D/out"
verdict $? "the archive has the functions of sluice.h and no other global"
names --defined-only -D "$ROOT/opt/k3/lib/libsluice.so" |
    grep -v '^SLUICE_' > "$D/so"
diff "$declared" "$D/so" > "$D/out"
verdict $? "so has the shared library"

# As it was built: under sanitizers, a program needs them, too.
CC=$(cut -d' ' -f1 "$B/flags")
SAN=$(tr ' ' '\n' < "$B/flags" | grep -e '^-fsanitize' | tr '\n' ' ')
case $CC in *clang*) CXX=clang++ ;; *) CXX=${CXX:-g++} ;; esac
pc() { PKG_CONFIG_PATH=$ROOT/opt/k3/lib/pkgconfig \
    pkg-config --define-prefix "$@" sluice; }
FLAGS=$(pc --cflags) LIBS=$(pc --libs) STATIC=$(pc --static --libs)
export LD_LIBRARY_PATH="$ROOT/opt/k3/lib"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}${ASAN_OPTIONS:+:}detect_odr_violation=0"
cp tests/embed/embed.c tests/embed/embed.cc "$D" # far from the other headers
"$S" synth "$D/m" --preset tiny > /dev/null 2> "$D/err"
verdict $? "a random model"
answer() { "$S" run "$D/m" -p "The sluice" -c 256 --ignore-eos "$@" \
    2> "$D/err"; }
answer --max-tokens 8 > "$D/want" && [ -s "$D/want" ]
verdict $? "what sluice run answers"
answer --new 8 > "$D/got" && cmp "$D/want" "$D/got" > "$D/out"
verdict $? "--new is --max-tokens"

try() { # name compiler and arguments
    name=$1
    shift
    ( cd "$D" && "$@" -o "$D/embed" ) > "$D/out" 2> "$D/err" &&
        "$D/embed" "$D/m" "The sluice" > "$D/got" 2> "$D/err" &&
        echo >> "$D/got" && cmp "$D/want" "$D/got" > "$D/out"
    verdict $? "$name"
}
# shellcheck disable=SC2086
try "C, shared" $CC -std=c11 -Wall -Wextra -Werror $SAN embed.c $FLAGS $LIBS
ldd "$D/embed" | grep -q "$ROOT/opt/k3/lib/libsluice.so"
verdict $? "it is the installed library that runs"
# shellcheck disable=SC2086
try "C, archive" $CC -std=c11 -Wall $SAN embed.c $FLAGS \
    "$ROOT/opt/k3/lib/libsluice.a" ${STATIC#*-lsluice}
if command -v "$CXX" > /dev/null; then
    # shellcheck disable=SC2086
    try "C++, shared" "$CXX" -std=c++11 -Wall -Wextra -Wpedantic -Werror $SAN \
        embed.cc $FLAGS $LIBS
else
    skip "C++, shared" "there is no $CXX"
fi

# Names of ours are a stranger's to use.
cat > "$D/clash.c" <<'C'
int k3_open(void), k3_pass(void), error_set(void), batch_step(void),
    tok_open(void), kern(void), reader_open(void), stream_open(void);
int calls;
int k3_open(void) { return ++calls; }
int k3_pass(void) { return ++calls; }
int error_set(void) { return ++calls; }
int batch_step(void) { return ++calls; }
int tok_open(void) { return ++calls; }
int kern(void) { return ++calls; }
int reader_open(void) { return ++calls; }
int stream_open(void) { return ++calls; }
C
# shellcheck disable=SC2086
try "a program with functions of the same names" $CC -std=c11 $SAN \
    embed.c clash.c $FLAGS "$ROOT/opt/k3/lib/libsluice.a" ${STATIC#*-lsluice}

"$D/embed" "$D/nowhere" hi > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "nowhere/config.json" "$D/err"
verdict $? "a folder that is not there is a sentence"
echo "1..$n"
