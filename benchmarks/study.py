"""What each encoding is worth: trained on three tasks and two tests of order.

`python -m benchmarks.study` trains small nets, two at a time, for each encoding and
three seeds, and writes each result into `results/study.json` as it comes: after an
interruption the same command goes on. About an hour on two cores. `--quick` trains
less, with one seed, into `runs/study.json`, in about ten minutes: it shows that all
of it runs, no more.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from benchmarks.measure import RESULTS, heading, json_lines

ROOT = Path(__file__).parents[1]
ENCODINGS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
SEEDS = (0, 1, 2)
# Texts of the training split (characters for writing), and epochs at most.
SIZES = {
    "order": (6_000, 8),
    "classification": (14_000, 5),
    "names": (9_000, 6),
    "writing": (700_000, 2),
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
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    path = ROOT / "runs" / "study.json" if args.quick else RESULTS / "study.json"
    study = Study(path, args.quick)
    runs = [run for run in all_runs(args.quick) if name_of(run) not in study.runs]
    print(f"{len(study.runs)} runs are there, {len(runs)} are to come: {path}")
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = {pool.submit(in_a_process, run): run for run in runs}
        try:
            for done in as_completed(waiting):
                study.add(waiting[done], done.result())
                print(name_of(waiting[done]), done.result(), flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    if "cost" not in study.record:
        study.keep("cost", in_a_process({"task": "cost", "quick": args.quick}))
    print(json.dumps(study.record["cost"]))


def all_runs(quick):
    """Return what is to be trained, as the keyword arguments of each task."""
    sizes, runs = QUICK if quick else SIZES, []
    for seed in SEEDS[:1] if quick else SEEDS:
        for encoding in ENCODINGS:
            common = {"encoding": encoding, "seed": seed}
            for corrupt in ("shuffled", "swapped"):
                runs.append({"task": "order", **common, "corrupt": corrupt})
            for task in ("classification", "names", "writing"):
                runs.append({"task": task, **common})
        for variant in ("longer waves", "random starts"):
            common = {"encoding": "sinusoidal", "seed": seed}
            runs.append({"task": "writing", **common, "variant": variant})
    return [{**run, "size": sizes[run["task"]]} for run in runs]


def name_of(run):
    """Return the name of a run, which has all that decides its result."""
    return " ".join(str(part) for part in run.values())


class Study:
    """The results, in a file that is whole after each of them."""

    def __init__(self, path, quick):
        self.path = path
        if path.exists():
            self.record = json.loads(path.read_text("utf-8"))
        else:
            command = "python -m benchmarks.study" + " --quick" * quick
            self.record = {**heading(command), "runs": {}}
        self.runs = self.record["runs"]

    def add(self, run, result):
        self.runs[name_of(run)] = {**run, **result}
        self.keep("runs", self.runs)

    def keep(self, name, value):
        self.record[name] = value
        self.path.parent.mkdir(exist_ok=True)
        aside = self.path.with_suffix(".writing")
        aside.write_text(json_lines(self.record), "utf-8")
        aside.replace(self.path)


def in_a_process(run):
    """Return what a task gives, from a process that has one core for itself."""
    threads = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    threads |= {"TF_NUM_INTEROP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.study_tasks", json.dumps(run)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow", **threads},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{name_of(run)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
