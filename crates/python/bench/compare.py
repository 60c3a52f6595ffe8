"""The same operations on rcuwalk's fixture, on pyfakefs, and on the machine's own tmpfs.

    python bench/compare.py --output ../../bench/records/python-$(date -uI).json    measures (rcuwalk and pyfakefs installed)
    python bench/compare.py --write                                     puts the record's table into docs/python.md

Each engine runs in processes of its own, in turns; every operation returns what it found, and the engines must agree on that
before any figure is kept. A figure is the median over the processes of the best of each.
"""

import argparse
import contextlib
import datetime
import glob
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
RECORDS = ROOT / "bench/records"
DOCUMENT = ROOT / "docs/python.md"
COMMAND = "python crates/python/bench/compare.py --output bench/records/python-$(date -uI).json"
ENGINES = ["rcuwalk", "pyfakefs", "tmpfs"]
TEXT = "x" * 1024


def newest():
    """The record that the document shows: names end in the date."""
    return max(RECORDS.glob("python-*.json"))


def lay_out(top):
    """A tree of 1,000 files, 4 levels deep."""
    os.makedirs(f"{top}/a/b/c")
    for name in ("a/b/c/file", "f"):
        with open(f"{top}/{name}", "w") as file:
            file.write(TEXT)
    for n in range(50):
        os.makedirs(f"{top}/tree/d{n}")
        for m in range(20):
            with open(f"{top}/tree/d{n}/f{m}", "w") as file:
                file.write(str(m))
    os.makedirs(f"{top}/hundred")
    for n in range(100):
        with open(f"{top}/hundred/{n}", "w") as file:
            file.write("y")
    os.makedirs(f"{top}/work")


# Operations: how often, and what; each says what it found.


def stat_deep(top):
    path, total = f"{top}/a/b/c/file", 0
    for _ in range(1000):
        total += os.stat(path).st_size
    return total


def exists_missing(top):
    path = f"{top}/a/b/c/missing"
    return sum(os.path.exists(path) for _ in range(1000))


def open_read(top):
    path, total = f"{top}/a/b/c/file", 0
    for _ in range(200):
        with open(path) as file:
            total += len(file.read())
    return total


def open_write(top):
    path = f"{top}/work/out"
    for _ in range(200):
        with open(path, "w") as file:
            file.write(TEXT)
    size = os.path.getsize(path)
    os.unlink(path)
    return size


def low_level(top):
    path, total = f"{top}/f", 0
    for _ in range(200):
        fd = os.open(path, os.O_RDONLY)
        total += len(os.read(fd, 4096))
        os.close(fd)
    return total


def create_unlink(top):
    for n in range(200):
        open(f"{top}/work/{n}", "w").close()
    found = len(os.listdir(f"{top}/work"))
    for n in range(200):
        os.unlink(f"{top}/work/{n}")
    return found


def mkdir_rmdir(top):
    path = f"{top}/work/dir"
    for _ in range(200):
        os.mkdir(path)
        os.rmdir(path)
    return len(os.listdir(f"{top}/work"))


def rename(top):
    one, two = f"{top}/f", f"{top}/g"
    for _ in range(200):
        os.rename(one, two)
        os.rename(two, one)
    return os.path.getsize(one)


def chmod(top):
    path = f"{top}/a/b/c/file"
    for _ in range(200):
        os.chmod(path, 0o600)
        os.chmod(path, 0o644)
    return os.stat(path).st_mode & 0o777


def listdir(top):
    return sum(len(os.listdir(f"{top}/hundred")) for _ in range(100))


def scandir_stat(top):
    total = 0
    for _ in range(20):
        with os.scandir(f"{top}/hundred") as entries:
            total += sum(entry.stat().st_size for entry in entries if entry.is_file())
    return total


def walk(top):
    return sum(len(files) for _root, _dirs, files in os.walk(f"{top}/tree"))


def globbing(top):
    return len(glob.glob(f"{top}/tree/*/f1*"))


def path_read_text(top):
    path = pathlib.Path(f"{top}/a/b/c/file")
    return sum(len(path.read_text()) for _ in range(200))


def path_rglob(top):
    return sum(1 for _ in pathlib.Path(f"{top}/tree").rglob("f7"))


def copytree_rmtree(top):
    shutil.copytree(f"{top}/hundred", f"{top}/copy")
    found = len(os.listdir(f"{top}/copy"))
    shutil.rmtree(f"{top}/copy")
    return found


def temporary_file(top):
    total = 0
    for _ in range(50):
        with tempfile.NamedTemporaryFile("w", dir=top) as file:
            file.write("t")
            file.flush()
            total += os.path.getsize(file.name)
    return total


# What is timed, under which name, how many operations one call is, in what unit.
OPERATIONS = [
    (stat_deep, "`os.stat`, 4 levels down", 1000),
    (exists_missing, "`os.path.exists`, missing", 1000),
    (open_read, "`open`, read 1 KiB of text", 200),
    (open_write, "`open`, write 1 KiB of text", 200),
    (low_level, "`os.open`, `os.read`, `os.close`", 200),
    (create_unlink, "create and `os.unlink`", 200),
    (mkdir_rmdir, "`os.mkdir` and `os.rmdir`", 200),
    (rename, "`os.rename`", 400),
    (chmod, "`os.chmod`", 400),
    (listdir, "`os.listdir`, 100 names", 100),
    (scandir_stat, "`os.scandir` and `stat`, 100 names", 20),
    (walk, "`os.walk`, 1,000 files", 1),
    (globbing, "`glob.glob`, 1,000 files", 1),
    (path_read_text, "`Path.read_text`, 1 KiB", 200),
    (path_rglob, "`Path.rglob`, 1,000 files", 1),
    (copytree_rmtree, "`shutil.copytree` and `rmtree`, 100 files", 1),
    (temporary_file, "`NamedTemporaryFile`", 50),
]
FIXTURE = "the fixture itself, set up and torn down"


@contextlib.contextmanager
def engine(name):
    """A directory of the file system under test."""
    if name == "tmpfs":
        with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
            yield top
    elif name == "rcuwalk":
        from rcuwalk._fixture import FakeFilesystem

        with FakeFilesystem() as fs:
            fs.create_dir("/top")
            yield "/top"
    else:
        from pyfakefs.fake_filesystem_unittest import Patcher

        with Patcher() as patcher:
            patcher.fs.create_dir("/top")
            yield "/top"


def once(name):
    """Runs every operation on one engine; best times in ns, and what was found."""
    times, found = {}, {}
    with engine(name) as top:
        lay_out(top)
        for operation, title, count in OPERATIONS:
            best = None
            for _ in range(4):
                start = time.perf_counter_ns()
                found[title] = operation(top)
                spent = (time.perf_counter_ns() - start) / count
                best = spent if best is None else min(best, spent)
            times[title] = best
    if name != "tmpfs":
        best = []
        for _ in range(5):
            start = time.perf_counter_ns()
            with engine(name):
                pass
            best.append(time.perf_counter_ns() - start)
        times[FIXTURE] = min(best)
    return {"times": times, "found": found}


def cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def measure(rounds):
    results = {name: [] for name in ENGINES}
    for round_ in range(rounds):
        for name in ENGINES if round_ % 2 == 0 else reversed(ENGINES):
            out = subprocess.run([sys.executable, __file__, "--once", name], check=True, capture_output=True, text=True)
            results[name].append(json.loads(out.stdout))
            print(f"round {round_ + 1} of {rounds}: {name}", file=sys.stderr)
    found = [result["found"] for name in ENGINES for result in results[name]]
    for title in found[0]:
        answers = {json.dumps(one[title]) for one in found}
        if len(answers) != 1:
            sys.exit(f"the engines disagree on {title}: {answers}")
    titles = [title for _operation, title, _count in OPERATIONS] + [FIXTURE]
    rows = []
    for title in titles:
        row = {"operation": title}
        for name in ENGINES:
            times = [result["times"][title] for result in results[name] if title in result["times"]]
            if times:
                row[name] = round(statistics.median(times))
                row[f"{name}_spread_pct"] = round(100 * (max(times) - min(times)) / statistics.median(times))
        rows.append(row)
    import pyfakefs

    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pyfakefs": pyfakefs.__version__,
        "rounds": rounds,
        "rows": rows,
    }


def table(record):
    """The table of docs/python.md."""
    slowest = min(row["pyfakefs"] / row["rcuwalk"] for row in record["rows"])
    below = sum(row["pyfakefs"] / row["rcuwalk"] < 10 for row in record["rows"])
    out = [
        f"`{COMMAND}` on {record['cpu']}, {record['cores']} cores, Linux {record['kernel']}, Python {record['python']}, pyfakefs "
        f"{record['pyfakefs']}, {record['date'].split('T')[0]}. Microseconds per operation, medians of {record['rounds']} processes "
        "each; the engines agreed on every answer. Against pyfakefs the smallest gain is "
        f"{slowest:.1f} times; {below} of {len(record['rows'])} rows stay below the 10 times aimed at.",
        "",
        "| µs | rcuwalk | pyfakefs | × | the machine's tmpfs |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        ours, theirs, host = (row.get(name) for name in ENGINES)
        shown = [f"{value / 1000:.1f}" if value is not None else "–" for value in (ours, theirs, host)]
        out.append(f"| {row['operation']} | {shown[0]} | {shown[1]} | {theirs / ours:.1f} | {shown[2]} |")
    return "\n".join(out) + "\n"


def splice(text, record):
    """The document with the table of this record in its place."""
    begin, end = "<!-- compare: begin -->\n", "<!-- compare: end -->\n"
    head, rest = text.split(begin, 1)
    return head + begin + table(record) + end + rest.split(end, 1)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=pathlib.Path, help="where the record goes")
    parser.add_argument("--write", action="store_true", help="put the committed record's table into docs/python.md")
    args = parser.parse_args()
    if args.once:
        print(json.dumps(once(args.once)))
    elif args.write:
        DOCUMENT.write_text(splice(DOCUMENT.read_text(), json.loads(newest().read_text())))
    else:
        record = measure(args.rounds)
        if args.output:
            args.output.write_text(json.dumps(record, indent=1) + "\n")
        print(table(record))


if __name__ == "__main__":
    main()
