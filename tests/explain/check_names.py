#!/usr/bin/env python3
"""Compares the names of executed addresses with those of independent symbolisers.

    check_names.py NAME_SAMPLES RECORDING NUMBER

Kernel addresses: the recording's kallsyms read by the few lines below. Addresses in files: addr2line on the file, or
on its separate debug file. Prints how many were compared and every disagreement; exits 1 when there is one.
"""
import bisect
import re
import subprocess
import sys
from pathlib import Path

samples_program, recording, number = sys.argv[1:4]


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True).stdout


def debug_file(path):
    match = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "-n", path))
    if match:
        file = Path("/usr/lib/debug/.build-id") / match[1][:2] / (match[1][2:] + ".debug")
        if file.exists():
            return str(file)
    return path


def virtual_address(path, offset):
    """Where the byte at a file offset is loaded."""
    for line in run("readelf", "-lW", path).splitlines():
        fields = line.split()
        if fields and fields[0] == "LOAD":
            start, address, size = int(fields[1], 16), int(fields[2], 16), int(fields[4], 16)
            if start <= offset < start + size:
                return address + offset - start
    return None


def symbols_at(path, address):
    """All names that the symbol tables have for ranges around an address: aliases are as good."""
    names = set()
    for line in tables(path):
        fields = line.split()
        if len(fields) >= 8 and fields[3] in ("FUNC", "IFUNC", "NOTYPE") and fields[6] != "UND":
            value, size = int(fields[1], 16), int(fields[2], 0)
            if value <= address < value + size or (size == 0 and value == address):
                names.add(fields[7].split("@")[0])
    return names


def covers(path, name, address):
    """Whether the symbol reaches as far as the address; one without a size may."""
    for line in tables(path):
        fields = line.split()
        if len(fields) >= 8 and fields[7].split("@")[0] == name and fields[6] != "UND":
            value, size = int(fields[1], 16), int(fields[2], 0)
            if value <= address and (size == 0 or address < value + size):
                return True
    return False


cache = {}


def tables(path):
    if path not in cache:
        cache[path] = run("readelf", "-sW", path).splitlines()
    return cache[path]


kernel = []
for line in run(samples_program, recording, "kallsyms").splitlines():
    address, kind, name = line.split()[:3]
    if kind not in "aA":
        kernel.append((int(address, 16), kind, name))
kernel.sort(key=lambda entry: entry[0])
starts = [entry[0] for entry in kernel]

compared = named = 0
wrong = []
for line in run(samples_program, recording, number).splitlines():
    address, path, start, offset, name = line.split(" ", 4)
    address, offset = int(address, 16), int(offset, 16)
    if path.startswith("["):
        if path != "[kernel]":
            continue
        at = bisect.bisect_right(starts, address) - 1
        expected = {n for a, k, n in kernel[bisect.bisect_left(starts, starts[at]) : at + 1] if k in "tTwW"}
        tool = "kallsyms"
    elif path.startswith("/"):
        where = virtual_address(path, offset)
        debug = debug_file(path)
        if where is None:
            continue
        answer = run("addr2line", "-f", "-e", debug, hex(where)).splitlines()
        expected = symbols_at(debug, where) | symbols_at(path, where)
        # addr2line names the symbol before an address that no symbol covers; that is no name here.
        if answer and answer[0] != "??" and covers(debug, answer[0], where):
            expected.add(answer[0])
        tool = "addr2line"
    else:
        continue
    compared += 1
    unnamed = name == "[unknown]" or name.startswith("[") or name.endswith("@plt")
    named += not unnamed
    if (name not in expected) if not unnamed else (expected and not name.endswith("@plt")):
        wrong.append(f"{address:#x} {path}: {name}, {tool} says {' or '.join(sorted(expected)) or 'nothing'}")
print(f"{compared} compared, {named} named, {len(wrong)} differ")
for line in wrong:
    print(line)
sys.exit(1 if wrong or compared < int(number) * 3 // 4 else 0)
