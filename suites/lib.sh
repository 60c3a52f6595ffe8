# What the programs here share: sourced, with $1 the directory under test. Leaves in it.
set -u
here=$(cd "$(dirname "$0")" && pwd)
dir=$(cd "${1:?usage: $0 DIR}" && pwd) || exit 1
TOOLS=${TOOLS:-$here/../target/suites-tools}
SCRATCH=${SCRATCH:-$(mktemp -d)}
mkdir -p "$SCRATCH"
SCRATCH=$(cd "$SCRATCH" && pwd)
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin" LC_ALL=C.UTF-8
# Results go to the standard output of the program, everything else to its standard error.
exec 3>&1 1>&2

# needs PROGRAM...: ends the program if one is missing.
needs() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null || missing "$tool is not installed"
    done
}

missing() {
    echo "$*" >&2
    exit 77
}

# check NAME COMMAND...: one test, which is whether the command succeeds.
check() {
    name=$1
    shift
    if "$@"; then
        echo "ok $name" >&3
    else
        echo "FAILED $name" >&3
        false
    fi
}

cd "$dir" || exit 1
