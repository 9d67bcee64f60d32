# ranks.sh - what the tests of several processes begin with: beside tap.sh, `ranks
# N ARG...` runs build/mpi/sluice in N processes, however few cores there are,
# with the launcher of the library that it was built with. NP: the numbers of
# processes. Sourced from the project's folder.
. tests/tap.sh
NP=${NP:-1 2 3 4}
kind=openmpi
ldd "$S" | grep -q 'libmpich' && kind=mpich
launcher=$(command -v mpirun.$kind || command -v mpirun)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_base_warn_component_unused=0
flags=
[ $kind = openmpi ] && flags='--oversubscribe --bind-to none'
ranks() { # N ARG...
    count=$1
    shift
    # shellcheck disable=SC2086
    timeout -k 5 100 "$launcher" $flags -n "$count" "$S" "$@"
}
