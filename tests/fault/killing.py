"""What the tests have in common that kill a program at random moments."""
import hashlib
import os
import subprocess
import sys

SLUICE, FOLDER, KILLS = sys.argv[1], sys.argv[2], int(sys.argv[3])


def digests(folder, ending):
    """Of the files with this ending, by name; none of no folder."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = {}
    for name in names:
        if name.endswith(ending):
            with open(folder + "/" + name, "rb") as f:
                found[name] = hashlib.sha256(f.read()).hexdigest()
    return found


def run_for(seconds, command):
    """Kill it then, if it has not ended; its status and what it said."""
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE)
    try:
        said = p.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        p.kill()
        said = p.communicate()[1]
    return p.returncode, said


def unlike(now, before, truth):
    """What is wrong with files that a killed program left, or None."""
    if any(now.get(n) != before[n] for n in before):
        return "a finished file has gone or changed"
    if any(truth.get(n) != now[n] for n in now):
        return "a file is not what one go gives"
    return None


def verdict(wrong):
    print("ok 1 - %d kills" % KILLS if not wrong else "not ok 1 - " + wrong)
    print("1..1")
