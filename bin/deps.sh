#!/bin/sh
# Install what the build and the tests need and this machine lacks. numpy,
# jsonschema and PCRE2 are wanted by one test each, which is skipped without;
# libedit by sluice chat, zlib and libzstd by compressed files of a batch: the
# program does without.
missing= wanted=
for tool in gcc make pkg-config python3; do
    command -v $tool > /dev/null || missing="$missing $tool"
done
for lib in liburing jansson libcrypto libmicrohttpd cmocka; do
    pkg-config --exists $lib 2> /dev/null || missing="$missing $lib"
done
python=/usr/bin/python3 # another one on the path has other packages
[ -x $python ] || python=python3
$python -c 'import numpy' 2> /dev/null || wanted=" python3-numpy"
$python -c 'import jsonschema' 2> /dev/null ||
    wanted="$wanted python3-jsonschema"
pkg-config --exists libpcre2-8 2> /dev/null || wanted="$wanted libpcre2-8"
pkg-config --exists libedit 2> /dev/null || wanted="$wanted libedit"
for lib in zlib libzstd; do
    pkg-config --exists $lib 2> /dev/null || wanted="$wanted $lib"
done
[ -z "$missing$wanted" ] && exit 0
give_up() { # why
    echo "deps: $1:$missing$wanted" >&2
    [ -z "$missing" ]
    exit
}
sudo=
[ "$(id -u)" -ne 0 ] && sudo=sudo
if command -v apt-get > /dev/null; then
    set -- "$sudo apt-get install -y -q" gcc libc6-dev make pkg-config python3 \
        python3-numpy python3-jsonschema liburing-dev libjansson-dev \
        libpcre2-dev libssl-dev libcmocka-dev libmicrohttpd-dev libedit-dev \
        zlib1g-dev libzstd-dev
    refresh="$sudo apt-get update -q"
elif command -v dnf > /dev/null; then
    set -- "$sudo dnf install -y -q" gcc make pkgconf-pkg-config python3 \
        python3-numpy python3-jsonschema libgomp liburing-devel \
        jansson-devel pcre2-devel openssl-devel libcmocka-devel \
        libmicrohttpd-devel libedit-devel zlib-devel libzstd-devel
    refresh=:
else
    give_up "install with your package manager"
fi
install=$1
shift
echo "deps: missing:$missing$wanted; running: $install $*" >&2
export DEBIAN_FRONTEND=noninteractive
{ $refresh && $install "$@"; } > /dev/null || give_up "could not install"
