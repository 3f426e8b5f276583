"""What the benchmark scripts share: workloads, timing, tables. Everything they make lies in build/bench."""
import glob
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench"
TLBSCOPE = ROOT / "build" / "release" / "tlbscope"


def prepare():
    """Packages, a release build, an empty place for files."""
    subprocess.run([ROOT / "scripts" / "install-dependencies", "bench"], check=True)
    subprocess.run([ROOT / "scripts" / "build", "release"], check=True)
    FOLDER.mkdir(parents=True, exist_ok=True)


def output_of(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


# --- workloads: name -> command, run in FOLDER ---


def xz_workload():
    """2 MB of licence texts, compressed."""
    text = b""
    for path in sorted(glob.glob("/usr/share/doc/*/copyright")):
        text += Path(path).read_bytes()
        if len(text) >= 2_000_000:
            break
    (FOLDER / "texts").write_bytes(text[:2_000_000])
    return [shutil.which("xz"), "-6", "-T1", "-k", "-f", "-c", "texts"]


def sqlite_workload():
    """50,000 rows, two indexes, three queries."""
    lines = ["create table t(id integer primary key, name text, value integer);", "begin;"]
    state = 1
    for i in range(50_000):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        lines.append(f"insert into t values({i}, 'name{state % 9973:05}', {state % 100_003});")
    lines += [
        "commit;",
        "create index by_name on t(name);",
        "create index by_value on t(value);",
        "select count(*) from t where name between 'name01000' and 'name05000';",
        "select name, sum(value) from t group by name order by 2 desc limit 5;",
        "select count(*) from t a join t b on a.value = b.value where a.id < b.id;",
    ]
    (FOLDER / "rows.sql").write_text("\n".join(lines) + "\n")
    return [shutil.which("sqlite3"), ":memory:", ".read rows.sql"]


def cc1_workload():
    """gcc's compiler proper on a preprocessed C file of this tree."""
    source = ROOT / "guests" / "agent.c"
    subprocess.run(["gcc", "-E", f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}", source, "-o", FOLDER / "agent.i"], check=True)
    return [output_of(["gcc", "-print-prog-name=cc1"]), "-quiet", "-O2", "-fpreprocessed", "agent.i", "-o", "agent.s"]


WORKLOADS = {"xz": xz_workload, "sqlite3": sqlite_workload, "cc1": cc1_workload}


def chosen(names):
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        sys.exit(f"{unknown[0]}: no such workload; there are {', '.join(WORKLOADS)}")
    return {name: WORKLOADS[name]() for name in names or WORKLOADS}


# --- measuring ---


class Run:
    """One run of a command: wall and CPU seconds, its own and its children's, and the largest process."""

    def __init__(self, command, stdout=None):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        result = subprocess.run(
            [str(word) for word in command],
            cwd=FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C"},
        )
        self.wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if result.returncode != 0:
            sys.exit(f"{command[0]} failed with status {result.returncode}:\n{result.stderr.decode()}")


def info(recording):
    return json.loads(output_of([TLBSCOPE, "info", "--json", recording]))


def references(recording):
    """Instruction fetches and data accesses of a recording."""

    def total(value):
        return value if isinstance(value, int) else sum(map(total, value.values()))

    counts = info(recording)["references"]
    return sum(total(counts[kind]) for kind in ("instruction", "data"))


def spread(values, digits=2):
    """Median and range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def print_table(header, rows):
    rows = [header, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for row in rows:
        print("  ".join(cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row)))
