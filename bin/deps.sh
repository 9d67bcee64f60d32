#!/bin/sh
# Install what the build and the tests need and this machine lacks.
missing=
for tool in gcc make pkg-config python3; do
    command -v $tool > /dev/null || missing="$missing $tool"
done
for lib in liburing jansson libpcre2-8 cmocka; do
    pkg-config --exists $lib 2> /dev/null || missing="$missing $lib"
done
[ -z "$missing" ] && exit 0
sudo=
[ "$(id -u)" -ne 0 ] && sudo=sudo
if command -v apt-get > /dev/null; then
    set -- "$sudo apt-get install -y -q" gcc libc6-dev make pkg-config python3 \
        liburing-dev libjansson-dev libpcre2-dev libcmocka-dev
    refresh="$sudo apt-get update -q"
elif command -v dnf > /dev/null; then
    set -- "$sudo dnf install -y -q" gcc make pkgconf-pkg-config python3 \
        libgomp liburing-devel jansson-devel pcre2-devel libcmocka-devel
    refresh=:
else
    echo "deps: missing:$missing; install them with your package manager" >&2
    exit 1
fi
install=$1
shift
echo "deps: missing:$missing; running: $install $*" >&2
export DEBIAN_FRONTEND=noninteractive
{ $refresh && $install "$@"; } > /dev/null || {
    echo "deps: could not install:$missing" >&2
    exit 1
}
