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


def cache_folder():
    """Where downloads and long builds outlive build/."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "tlbscope"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(*command, cwd=None, **options):
    """A command's standard output; its words when it fails."""
    result = subprocess.run([str(word) for word in command], cwd=cwd or FOLDER, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, errors="replace", **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-5000:]}{result.stderr[-5000:]}")
    return result.stdout


def debian_source(package):
    """The unpacked source package of the Debian release that the bars were measured on."""
    sources = cache_folder() / "sources"
    place = sources / package
    if place.exists():
        return place
    lists = sources / "apt"
    (lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    # The machine's own lists rarely have sources; these are beside them and change nothing.
    (lists / "sources.list").write_text("deb-src http://deb.debian.org/debian bookworm main\n")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={lists}/sources.list", "-o", "Dir::Etc::sourceparts=-"]
    apt += ["-o", f"Dir::State::lists={lists}/lists"]
    run(*apt, "update", cwd=sources)
    run(*apt, "source", "--download-only", package, cwd=sources)
    # Half an unpacked tree would be taken for the whole one next time.
    half = sources / f"{package}.half"
    shutil.rmtree(half, ignore_errors=True)
    run("dpkg-source", "-x", next(sources.glob(f"{package}_*.dsc")), half, cwd=sources)
    half.rename(place)
    return place


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


def wall_and_memory(command, cwd):
    """Wall seconds of a command, and the most memory it held, in bytes."""
    started = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], cwd=cwd, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed with status {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024


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


# --- function order, proven by linking again ---

LLD = ["-B/usr/lib/llvm-19/bin", "-fuse-ld=lld"]


class Relinked:
    """A program that is linked in several ways and recorded each time.

    link(output, words) links it in the folder, writing the map to OUTPUT.map; runs has by name the command line that a
    linked program is recorded with.
    """

    def __init__(self, folder, link, runs, record=None):
        self.folder = folder
        self.link = link
        self.runs = runs
        self.record_one = record or self.run

    def run(self, *command, **options):
        return run(*command, cwd=self.folder, **options)

    def record(self, program):
        for name, command in self.runs.items():
            self.record_one(TLBSCOPE, "record", "-o", f"{program}-{name}.rec", "--", *command(program))
            # A run that was cut short has fewer misses for no good reason.
            outcome = info(self.folder / f"{program}-{name}.rec")["outcome"]
            if outcome != "ended with status 0":
                sys.exit(f"{program}, {name}: the recorded run did not end well: {outcome}")

    def machine(self, entries):
        return ["--machine", "lru32", "--set", f"tlb.instruction.entries={entries}"]

    def order_command(self, base, output, entries, *words):
        return [TLBSCOPE, "order", f"{base}-train.rec", "--map", f"{base}.map", "-o", output, *words,
                *self.machine(entries)]

    def measured(self, program, name, entries):
        """Misses of the program's pages in a recording, as it is linked."""
        report = self.run(TLBSCOPE, "order", f"{program}-{name}.rec", "--map", f"{program}.map", "--method",
                          "as-linked,density", "--json", *self.machine(entries))
        return json.loads(report)["methods"][0]["image_misses"]

    def predicted(self, program, name, order, entries):
        report = self.run(TLBSCOPE, "prove", f"{program}-{name}.rec", "--map", f"{program}.map", "--order", order,
                          "--json", *self.machine(entries))
        return json.loads(report)["after"]["image_misses"]

    def compare_with_lld(self, base, sizes, effort):
        """lld's own orders of the recorded calls, and one of ours for each size, all linked and recorded."""
        self.run(*self.order_command(base, "calls.order", sizes[0], "--format", "lld-call-graph", "--method", "c3"))
        theirs = {}
        for sort in ("hfsort", "cdsort"):
            theirs[sort] = f"relinked-{sort}"
            self.link(theirs[sort], ["-Wl,--call-graph-ordering-file=calls.order",
                                     f"-Wl,--call-graph-profile-sort={sort}"])
            self.record(theirs[sort])
        table = []
        for size in sizes:
            order = f"lld-{size}.order"
            ours = f"relinked-lld-{size}"
            seconds, memory = wall_and_memory(self.order_command(base, order, size, "--effort", effort), self.folder)
            self.link(ours, [f"-Wl,--symbol-ordering-file={order}"])
            self.record(ours)
            for name in self.runs:
                them = {sort: self.measured(program, name, size) for sort, program in theirs.items()}
                own = self.measured(ours, name, size)
                said = self.predicted(base, name, order, size)
                table.append([size, name, f"{self.measured(base, name, size):,}", f"{them['hfsort']:,}",
                              f"{them['cdsort']:,}", f"{own:,}", f"{100 * (own / min(them.values()) - 1):+.1f} %",
                              f"{said:,}", f"{100 * (said / own - 1):+.2f} %", f"{seconds:.0f} s",
                              f"{memory / 1e6:,.0f} MB"])
        print_table(["entries", "run", "as linked", "hfsort", "cdsort", "tlbscope", "to the better", "predicted",
                     "error", "time", "memory"], table)
