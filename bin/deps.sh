#!/bin/sh
# Install what the build and the tests need and this machine lacks. numpy is
# wanted by one test, which is skipped without it.
missing= wanted=
for tool in gcc make pkg-config python3; do
    command -v $tool > /dev/null || missing="$missing $tool"
done
for lib in liburing jansson libpcre2-8 cmocka; do
    pkg-config --exists $lib 2> /dev/null || missing="$missing $lib"
done
python=/usr/bin/python3 # another one on the path has other packages
[ -x $python ] || python=python3
$python -c 'import numpy' 2> /dev/null || wanted=" python3-numpy"
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
        python3-numpy liburing-dev libjansson-dev libpcre2-dev libcmocka-dev
    refresh="$sudo apt-get update -q"
elif command -v dnf > /dev/null; then
    set -- "$sudo dnf install -y -q" gcc make pkgconf-pkg-config python3 \
        python3-numpy libgomp liburing-devel jansson-devel pcre2-devel \
        libcmocka-devel
    refresh=:
else
    give_up "install with your package manager"
fi
install=$1
shift
echo "deps: missing:$missing$wanted; running: $install $*" >&2
export DEBIAN_FRONTEND=noninteractive
{ $refresh && $install "$@"; } > /dev/null || give_up "could not install"
