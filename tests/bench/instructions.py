#!/usr/bin/env python3
"""Instructions of one request through the whole dispatcher, counted by callgrind.

    tests/bench/instructions.py            counts, and compares with instructions.json
    tests/bench/instructions.py --record   counts, and writes instructions.json

Unlike times these are the same on a busy machine; they differ by compiler, so a comparison is
made for the recorded one alone. More than 3 % above the record is an error. Needs valgrind.
"""
import json, os, re, shutil, subprocess, sys

from common import bench_binary

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD = os.path.join(HERE, "instructions.json")
CASES = ["get", "set", "get-forwarded", "set-racks", "set-quorum"]
SLACK = 0.03


def collected(binary, case, requests):
    argv = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
            binary, "count", case, str(requests)]
    err = subprocess.run(argv, check=True, stderr=subprocess.PIPE, text=True).stderr
    return int(re.search(r"Collected\s*:\s*(\d+)", err).group(1))


def main():
    os.chdir(os.path.join(HERE, "..", ".."))
    if not shutil.which("valgrind"):
        sys.exit("valgrind is needed (apt-get install valgrind)")
    binary = bench_binary("dispatch")
    rustc = subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    # What a start costs is in both counts.
    counts = {case: (collected(binary, case, 3000) - collected(binary, case, 1000)) // 2000
              for case in CASES}
    if "--record" in sys.argv:
        with open(RECORD, "w") as f:
            json.dump(dict(rustc=rustc, instructions=counts), f, indent=1)
            f.write("\n")
    record = dict(rustc=None, instructions={})
    if os.path.exists(RECORD):
        with open(RECORD) as f:
            record = json.load(f)
    same = record["rustc"] == rustc
    if record["rustc"] is None:
        print("nothing is recorded yet: --record does")
    elif not same:
        print(f"recorded with {record['rustc']}, this is {rustc}: nothing is compared")
    slower = []
    for case, count in counts.items():
        before = record["instructions"].get(case)
        print(f"{case:15} {count:6} instructions a request, recorded {before}")
        if same and before and count > before * (1 + SLACK):
            slower.append(case)
    if slower:
        sys.exit("more instructions than recorded: " + ", ".join(slower))


if __name__ == "__main__":
    main()
