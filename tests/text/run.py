#!/usr/bin/env python3
"""Runs text tests: commands and, exactly, what they print and return, in one file.

    run.py --build FOLDER [--update] [--keep] FILE.test...

A test file, line by line:

    # ...      a comment: why the test exists
    labels: slow, system
               optional, before the first command; CMake gives them to ctest
    timeout: 1800
               likewise: seconds that a command, and the whole file, may take (300 and 600 when not given)
    $ COMMAND  run by bash in a folder of the test's own, empty at the start; commands of a file share it
    > ...      more of the same command (a here document, a second line)
    | LINE     a line the command prints on stdout
    ! LINE     a line it prints on stderr
    %          the line above was not ended by a newline
    ? STATUS   its exit status; 0 when not given

Nothing is matched loosely. So that a file holds on every machine, some texts are replaced in the output before the
comparison, and only these: the test's folder by {tmp}, the build folder by {build}, the source folder by {source},
the cache folder by {cache}, the program's version by {version}. Commands find the same in the variables TMP_FOLDER,
BUILD, SOURCE; on PATH are the built programs and tests/text/tools. --update writes what happened into the file, to be
read before it is committed.
"""
import argparse
import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
TIMEOUT_SECONDS = 300


class Step:
    """One command with what it is expected to do."""

    def __init__(self, lines):
        self.before = []  # comments and blank lines above it
        self.lines = lines  # the command as written
        self.stdout = ""
        self.stderr = ""
        self.status = 0

    def command(self):
        return "\n".join(line[2:] for line in self.lines)


def parse(path):
    """The file's steps, and the lines behind the last of them."""
    steps = []
    above = []
    last = None
    for number, line in enumerate(path.read_text().split("\n"), 1):
        kind, rest = line[:1], line[2:]
        if kind in ("|", "!", ">", "?", "%") and not steps:
            sys.exit(f"{path}:{number}: '{kind}' before the first command")
        if kind == "$":
            steps.append(Step([line]))
            steps[-1].before, above = above, []
        elif kind == ">":
            steps[-1].lines.append(line)
        elif kind == "|":
            steps[-1].stdout += rest + "\n"
            last = "stdout"
        elif kind == "!":
            steps[-1].stderr += rest + "\n"
            last = "stderr"
        elif kind == "%":
            setattr(steps[-1], last, getattr(steps[-1], last).removesuffix("\n"))
        elif kind == "?":
            steps[-1].status = int(rest)
        elif kind in ("#", "") or (line.startswith(("labels:", "timeout:")) and not steps):
            above.append(line)
        else:
            sys.exit(f"{path}:{number}: no such kind of line: {line}")
    return steps, above


def prefixed(text, kind):
    if not text:
        return []
    ended = text.endswith("\n")
    lines = [f"{kind} {line}" if line else kind for line in text.removesuffix("\n").split("\n")]
    return lines if ended else lines + ["%"]


def outcome(stdout, stderr, status):
    return prefixed(stdout, "|") + prefixed(stderr, "!") + ([f"? {status}"] if status else [])


class Runner:
    def __init__(self, build):
        self.build = build
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name in ("HOME", "XDG_CACHE_HOME", "USER", "LOGNAME", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")
        }
        tools = SOURCE / "tests" / "text" / "tools"
        self.environment |= {
            "PATH": f"{build}:{tools}:{os.environ['PATH']}",
            "BUILD": str(build),
            "SOURCE": str(SOURCE),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "TERM": "dumb",
        }
        cache = os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '')}/.cache"
        self.replacements = [(str(build), "{build}"), (str(SOURCE), "{source}"), (cache, "{cache}")]
        match = re.search(r"VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text().split("project(")[1])
        self.version = match.group(1)

    def neutral(self, raw, folder):
        text = raw.decode("utf-8", "backslashreplace")
        for old, new in [(str(folder), "{tmp}"), *self.replacements]:
            text = text.replace(old, new)
        return re.sub(rf"(?<![0-9.]){re.escape(self.version)}(?![0-9.])", "{version}", text)

    def run(self, step, folder, patience):
        """(stdout, stderr, status) of one command; everything it started is gone afterwards."""
        process = subprocess.Popen(
            ["bash", "-c", step.command()],
            cwd=folder,
            env=self.environment | {"TMP_FOLDER": str(folder), "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=patience)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            stderr += f"[still running after {patience} s]\n".encode()
            status = 124
        return self.neutral(stdout, folder), self.neutral(stderr, folder), status if status >= 0 else 128 - status

    def test(self, path, update, keep):
        steps, tail = parse(path)
        if not steps:
            sys.exit(f"{path}: has no command")
        folder = Path(tempfile.mkdtemp(prefix="tlbscope-text-"))
        good = True
        told = re.search(r"^timeout: *(\d+)$", path.read_text(), re.MULTILINE)
        patience = int(told[1]) if told else TIMEOUT_SECONDS
        try:
            for step in steps:
                stdout, stderr, status = self.run(step, folder, patience)
                want = outcome(step.stdout, step.stderr, step.status)
                got = outcome(stdout, stderr, status)
                if want != got:
                    good = False
                    if not update:
                        print(f"{path.name}: $ {step.command()}")
                        for line in list(difflib.unified_diff(want, got, "expected", "got", lineterm="", n=3))[2:]:
                            print("    " + line)
                step.stdout, step.stderr, step.status = stdout, stderr, status
        finally:
            if keep:
                print(f"{path.name}: left {folder}", file=sys.stderr)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        if update and not good:
            lines = []
            for step in steps:
                lines += step.before + step.lines + outcome(step.stdout, step.stderr, step.status)
            path.write_text("\n".join(lines + tail))
            print(f"{path.name}: updated")
            return True
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="folder with the built programs, e.g. build/dev")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--keep", action="store_true", help="leave the test's folder for a look")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.test")
    options = parser.parse_args()
    runner = Runner(options.build.resolve())
    return 0 if all([runner.test(path, options.update, options.keep) for path in options.files]) else 1


if __name__ == "__main__":
    sys.exit(main())
