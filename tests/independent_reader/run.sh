#!/bin/sh
# Runs the independent reader with the arguments given; installs its packages once, into the target directory.
#   run.sh FAMILY… --stream-into DIR [--key KEYFILE] [--base FAMILY…] [--log FAMILY…]… [--stop-at MICROSECONDS]
#   run.sh FAMILY… --stream-into DIR                             a log set of MySQL or MariaDB: its binary log files
#   run.sh --sample DIR [--key KEYFILE] [--open] [--ordered]     writes sample media (write_sample.py, open_sample.py)
#   run.sh --test                           tests the reader itself (test_*.py)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
venv=$target/independent_reader
# The installed list is copied last: an installation that was cut short is done again.
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
    mkdir -p "$target"
    # One installs while the others wait: ./test may run several readers at a time.
    (
        flock 9
        if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
            "${PYTHON:-python3}" -m venv --clear "$venv" >&2
            "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
            cp "$here/requirements.txt" "$venv/requirements.txt"
        fi
    ) 9>"$venv.lock"
fi
export PYTHONDONTWRITEBYTECODE=1
case ${1-} in
--sample) shift && exec "$venv/bin/python" "$here/write_sample.py" "$@" ;;
--test) shift && exec "$venv/bin/python" -m unittest discover --start-directory "$here" "$@" ;;
*) exec "$venv/bin/python" "$here/restore.py" "$@" ;;
esac
