#!/bin/sh
# Goal    whatever happens to one of several processes, all end within ten
#         seconds with a sentence that names the rank, none stays behind, and a
#         batch goes on where it was.
# Method  a batch of the tiny model in three processes on slow drives. A rank is
#         killed (each in turn, KILLS times), stopped for a second, mpirun gets
#         SIGINT, the output is on a full disk; a rank has another model,
#         another program, a file that becomes short, weights that are not
#         numbers in its own rows, a wrong command line. Then the same command
#         again: the answers are those of one process.
. tests/mpi/ranks.sh
KILLS=${KILLS:-3}
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1
verdict $? "a model"
for i in 1 2 3 4 5 6; do
    echo "{\"custom_id\": \"$i\", \"prompt\": [$i, 2, 3, 4], \"max_tokens\": 8}"
done > "$D/in"
slow="-m 90M -t 1 --sequences 2 --policy none --simulate-drive 0.006"
answers() { sed 's/"created":[0-9]*//' "$1" | sort; }
# shellcheck disable=SC2086
"$S" batch "$D/m" -i "$D/in" -o "$D/b" -m 90M -t 1 --ignore-eos \
    > "$D/out" 2> "$D/err"
verdict $? "one process"
answers "$D/b" > "$D/want"
start() { # OUT: a batch in three ranks, in the background; its process is $job
    # shellcheck disable=SC2086
    "$launcher" $flags -n 3 "$S" batch "$D/m" -i "$D/in" -o "$1" --ignore-eos \
        $slow < /dev/null > "$D/out" 2> "$D/err" &
    job=$!
}
mine() { # processes of the batches of this test
    pgrep -f "sluice batch $D/m" | while read -r pid; do
        tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -q "^$S batch" &&
            echo "$pid"
    done
}
pid_of() { # RANK
    for pid in $(mine); do
        tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null |
            grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1\$" && echo "$pid"
    done
}
answers_in() { # OUT COUNT: wait until it has so many lines
    for wait in $(seq 300); do
        [ "$(cat "$1" 2> /dev/null | wc -l)" -ge "$2" ] && return 0
        sleep 0.1
    done
    return 1
}
ended() { # the job and all of its processes, within ten seconds
    for wait in $(seq 100); do
        kill -0 $job 2> /dev/null || [ -n "$(mine)" ] || break
        kill -0 $job 2> /dev/null || sleep 0.1
        kill -0 $job 2> /dev/null && sleep 0.1
    done
    wait $job
    status=$?
    left=$(mine)
    [ -z "$left" ] && return 0
    echo "left: $left" >> "$D/err"
    kill -9 $left
    return 1
}
resumed() { # OUT
    ranks 3 batch "$D/m" -i "$D/in" -o "$1" --ignore-eos -m 90M -t 1 \
        > "$D/out" 2> "$D/err" && answers "$1" | cmp - "$D/want"
}
for i in $(seq "$KILLS"); do
    rank=$(((i - 1) % 3))
    rm -f "$D/k"*
    start "$D/k"
    answers_in "$D/k" $((i % 3))
    for wait in $(seq 100); do
        [ -n "$(pid_of $rank)" ] && break
        sleep 0.1
    done
    sleep "0.$((i * 37 % 100 + 10))"
    kill -9 $(pid_of $rank) 2> "$D/kill"
    killed=$?
    ended
    verdict $((killed | $?)) "rank $rank is killed: all end"
    [ $status -ne 0 ] && grep -qE "rank $rank|KILLED|signal 9" "$D/err"
    verdict $? "and it is named"
    resumed "$D/k"
    verdict $? "resumed: the answers of one process"
done
start "$D/s"
answers_in "$D/s" 1
kill -INT $job
ended
verdict $? "SIGINT at mpirun: all end"
resumed "$D/s"
verdict $? "resumed: the answers of one process"
start "$D/w"
answers_in "$D/w" 1
slept=$(pid_of 1)
kill -STOP "$slept"
sleep 1
kill -CONT "$slept"
wait $job
answers "$D/w" | cmp - "$D/want"
verdict $? "a rank that is slow is waited for"

two() { # ARG...: of rank 1; rank 0 has the model and the program
    # shellcheck disable=SC2086
    timeout -k 5 60 "$launcher" $flags -n 1 "$S" run "$D/m" --ids 1,2,3 -n 4 \
        -m 90M -t 1 --ignore-eos : -n 1 "$@" < /dev/null > "$D/out" 2> "$D/err"
}
says() { # STATUS TEXT
    [ "$1" -ne 0 ] && [ "$1" -lt 124 ] && grep -q "$2" "$D/err" &&
        [ "$(grep -c '^sluice: ' "$D/err")" -eq 1 ]
}
run="run --ids 1,2,3 -n 4 -m 90M -t 1 --ignore-eos"
"$S" synth "$D/other" --preset tiny --seed 9 > "$D/out" 2>&1
# shellcheck disable=SC2086
two "$S" $run "$D/other"
says $? 'rank 1 (.*) has another config or checkpoint than rank 0'
verdict $? "another checkpoint"
cp "$S" "$D/sluice" && echo >> "$D/sluice"
# shellcheck disable=SC2086
two "$D/sluice" $run "$D/m"
says $? 'rank 1 (.*) has another program than rank 0'
verdict $? "another program"
# shellcheck disable=SC2086
two "$S" $run "$D/nowhere"
says $? 'rank 1 (.*): .*nowhere.*: No such file'
verdict $? "no model at rank 1"
# shellcheck disable=SC2086
two "$S" $run "$D/m" --no-such-option
says $? 'rank 1 (.*): its command line is not understood'
verdict $? "a wrong command line at rank 1"
cp -r "$D/m" "$D/bad"
python3 tests/mpi/poison.py "$D/bad" 3
# shellcheck disable=SC2086
two "$S" $run "$D/bad"
says $? 'rank 1 (.*): .*model.layers.3.*not finite'
verdict $? "weights of rank 1 that are not numbers"
rm -rf "$D/bad" && cp -r "$D/m" "$D/bad"
(
    sleep 1.5
    for shard in "$D"/bad/*.safetensors; do
        truncate -s 20000 "$shard"
    done
) &
# shellcheck disable=SC2086
timeout -k 5 60 "$launcher" $flags -n 1 "$S" batch "$D/m" -i "$D/in" \
    -o "$D/t" --ignore-eos $slow : -n 1 "$S" batch "$D/bad" -i "$D/in" \
    -o "$D/t" --ignore-eos $slow < /dev/null > "$D/out" 2> "$D/err"
code=$?
wait
[ $code -ne 0 ] && [ $code -lt 124 ] && grep -q 'rank 1 (.*): .*bad/' "$D/err"
verdict $? "a file of rank 1 that becomes short"
resumed "$D/t"
verdict $? "resumed: the answers of one process"
mkdir "$D/full"
if mount -t tmpfs -o size=8k none "$D/full" 2> /dev/null; then
    trap 'umount "$D/full"; rm -rf "$D"' EXIT
    head -c 8192 /dev/zero > "$D/full/other"
    # shellcheck disable=SC2086
    ranks 2 batch "$D/m" -i "$D/in" -o "$D/full/o" --ignore-eos -m 90M -t 1 \
        < /dev/null > "$D/out" 2> "$D/err"
    code=$?
    [ $code -ne 0 ] && [ $code -lt 124 ] && [ -z "$(mine)" ] &&
        grep -q 'No space left' "$D/err"
    verdict $? "a full disk at rank 0"
else
    skip "a full disk at rank 0" "no file system to mount"
fi
echo "1..$n"
