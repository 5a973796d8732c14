"""What each encoding is worth: trained on three tasks and two tests of order.

`python -m benchmarks.study` trains small nets, two at a time, for each encoding and
three seeds, and writes each result into `results/study.json` as it comes: after an
interruption the same command goes on, on the same machine and versions. About an hour
on two cores. `--quick` trains less, with one seed, into `runs/study.json`, in about
six minutes: it shows that all of it runs, no more.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from benchmarks.measure import RESULTS, heading, json_lines

ROOT = Path(__file__).parents[1]
ENCODINGS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
SEEDS = (0, 1, 2)
# Texts of the training split (characters for writing), and epochs at most.
SIZES = {
    "order": (12_000, 3),
    "classification": (14_000, 4),
    "names": (9_000, 4),
    "writing": (900_000, 2),
}
QUICK = {
    "order": (1_500, 2),
    "classification": (3_000, 2),
    "names": (1_500, 2),
    "writing": (60_000, 1),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.jobs < 1:
        parser.error(f"--jobs must be at least 1. Received: --jobs {args.jobs}")
    path = ROOT / "runs" / "study.json" if args.quick else RESULTS / "study.json"
    try:
        study = Study(path, args.quick)
        runs = study.missing()
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{len(runs)} runs are to come: {path}")
    try:
        train(study, runs, args)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        sys.exit(130)


def train(study, runs, args):
    """Train what is not there, and measure the cost."""
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(study.add, run) for run in runs]
        try:
            for done in as_completed(waiting):
                print(*done.result(), flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    if not study.record.get("cost"):
        study.keep("cost", in_a_process({"task": "cost", "quick": args.quick}))
    print(json.dumps(study.record["cost"]))


def all_runs(quick):
    """Return what is to be trained, as the keyword arguments of each task."""
    sizes, runs = QUICK if quick else SIZES, []
    for seed in SEEDS[:1] if quick else SEEDS:
        for encoding in ENCODINGS:
            common = {"encoding": encoding, "seed": seed}
            for task in SIZES:
                runs.append({"task": task, **common})
        for variant in ("longer waves", "random starts"):
            common = {"encoding": "sinusoidal", "seed": seed}
            runs.append({"task": "writing", **common, "variant": variant})
    return [{**run, "size": sizes[run["task"]]} for run in runs]


def name_of(run):
    """Return the name of a run, which has all that decides its result."""
    return " ".join(str(part) for part in run.values())


def read(path):
    """Return the record of a study, or raise ValueError where it is none."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} must be a JSON file. Received: {error}") from error
    runs = record.get("runs") if isinstance(record, dict) else None
    listed = runs.values() if isinstance(runs, dict) else [None]
    if not all(isinstance(run, dict) for run in listed):
        raise ValueError(f"{path} must have the results of runs, by name, in `runs`")
    return record


class Study:
    """The results, in a file that is whole after each of them."""

    def __init__(self, path, quick):
        self.path = path
        self.lock = threading.Lock()
        self.quick = quick
        self.here = heading("python -m benchmarks.study" + " --quick" * quick)
        self.record = read(path) if path.exists() else {**self.here, "runs": {}}
        self.runs = self.record["runs"]
        self.keep("runs", self.runs)  # what cannot be written is not trained

    def missing(self):
        """Return what is to be trained, or raise ValueError where it cannot go on."""
        runs = [run for run in all_runs(self.quick) if name_of(run) not in self.runs]
        whole = not runs and self.record.get("cost")
        for name in () if whole else ("machine", "versions"):
            if self.record.get(name) != self.here[name]:
                raise ValueError(
                    f"{self.path} goes on with its own {name} alone, "
                    f"{self.record.get(name)!r}. Here: {self.here[name]!r}. Move the "
                    "file away to begin anew."
                )
        return runs

    def add(self, run):
        """Train, and keep the result at once, whatever becomes of the other runs."""
        result = in_a_process(run)
        with self.lock:
            self.runs[name_of(run)] = {**run, **result}
            self.keep("runs", self.runs)
        return name_of(run), result

    def keep(self, name, value):
        self.record[name] = value
        self.path.parent.mkdir(exist_ok=True)
        aside = self.path.with_suffix(".writing")
        aside.write_text(json_lines(self.record), "utf-8")
        aside.replace(self.path)


def in_a_process(run):
    """Return what a task gives, from a process that has one core for itself.

    Its stdin ends when this process does, however that may be, and it ends with it.
    """
    threads = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    threads |= {"TF_NUM_INTEROP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    stdin, held = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.study_tasks", json.dumps(run)],
            cwd=ROOT,
            env={**os.environ, "KERAS_BACKEND": "tensorflow", **threads},
            stdin=stdin,
            capture_output=True,
            text=True,
        )
    finally:
        os.close(held)
        os.close(stdin)
    if done.returncode:
        raise RuntimeError(f"{name_of(run)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
