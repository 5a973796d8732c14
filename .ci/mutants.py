"""What `.ci/mutation` adds to Poodle: mutators, a quick runner, and a short report."""

import ast
import gc
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from poodle import PoodleTestingFailedError
from poodle.data_types import FileMutation, Mutator
from poodle.data_types import MutantTrialResult as Result
from poodle.util import create_unified_diff

# Of the last run. With AGAIN set, only these are tried.
SURVIVORS = Path(".venv-mutation/survivors.txt")
# How each ended, a line as it ends. With GO_ON set, those of it are not tried again.
TRIED = Path(".venv-mutation/tried.jsonl")

# Seconds of a processor, after which the tests of a mutant will not end.
LIMIT = int(os.environ.get("LIMIT", 300))
OPTIONS = ("-x", "-q", "--assert=plain", "-p", "no:unraisableexception")


def conditions(parsed_ast, **_):
    """Put True and False in the place of a condition, and leave out a part of one."""
    changes = []
    for node in ast.walk(parsed_ast):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            changes += [_change("If", node.test, text) for text in ("True", "False")]
        elif isinstance(node, ast.BoolOp):
            neutral = str(isinstance(node.op, ast.And))
            changes += [_change("If", part, neutral) for part in node.values]
    return changes


def calls(parsed_ast, **_):
    """Leave out a call around its first argument, and each keyword argument."""
    changes = []
    for node in ast.walk(parsed_ast):
        if isinstance(node, ast.Raise):
            node.exc._raised = True  # without the call, that fails as well
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            changes.append(_change("Call", node, "pass"))
        elif isinstance(node, ast.Call) and not hasattr(node, "_raised"):
            if node.args and not isinstance(node.args[0], ast.Starred):
                changes.append(_change("Call", node, f"({ast.unparse(node.args[0])})"))
            for keyword in node.keywords:
                others = [other for other in node.keywords if other is not keyword]
                call = ast.Call(node.func, node.args, others)
                changes.append(_change("Keyword", node, ast.unparse(call)))
    return changes


def _change(name, node, text):
    return FileMutation(name, *Mutator.get_location(node), text)


def run_tests(config, run_folder, mutant, **_):
    """Run the tests of a mutant in its folder, on one backend after the other."""
    if not mutant.source_file:
        # All tests have to pass. What the last run has tried is forgotten.
        if "GO_ON" not in os.environ:
            TRIED.unlink(missing_ok=True)
        return _result_of_tests(config, run_folder, config.only_files)
    change = _change_of(mutant)
    if "AGAIN" in os.environ and change not in SURVIVORS.read_text():
        return Result(True, Result.RC_INCOMPLETE)
    key, tried = f"{mutant.lineno}:{mutant.col_offset} {change}", {}
    if TRIED.exists():
        tried = dict(map(json.loads, TRIED.read_text().splitlines()))
    if key in tried:
        return Result(tried[key] != Result.RC_NOT_FOUND, tried[key])
    result = _result_of_tests(config, run_folder, [mutant.source_file])
    with TRIED.open("a") as file:
        print(json.dumps([key, result.reason_code]), file=file)
    if result.reason_code in (Result.RC_TIMEOUT, Result.RC_NOT_FOUND):
        print(result.reason_code, change, sep="\n", flush=True)
    return result


def _result_of_tests(config, run_folder, files):
    for backend in os.environ.get("BACKENDS", " ".join(BACKENDS)).split():
        tests = _tests(config.runner_opts[backend], files)
        if not tests:
            continue
        status = BACKENDS[backend](run_folder, tests, backend)
        text = Path(run_folder, "output.txt").read_text(errors="replace")
        if status is None or status == -signal.SIGXCPU:
            return Result(True, Result.RC_TIMEOUT, text)
        if status:
            return Result(True, Result.RC_FOUND, text)
    return Result(False, Result.RC_NOT_FOUND)


def _tests(tests, files):
    names = [name for file in files for name in tests.get(Path(file).stem, [])]
    return [f"tests/{name}" for name in dict.fromkeys(names)]


# Importing TensorFlow takes longer than most mutants live, and a process that has used
# it must not be forked. Poodle's worker has imported it, no more, and forks for each.
multiprocessing.set_start_method("forkserver", force=True)
multiprocessing.set_forkserver_preload(["keras", "mpmath", "pytest"])


def _on_tensorflow(folder, tests, _):
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=_pytest, args=(folder, tests))
    process.start()
    process.join(3600)
    if process.exitcode is None:
        process.kill()
    return process.exitcode


def _pytest(folder, tests):
    gc.freeze()  # keeps pytest's collections from all that was imported before
    os.setsid()
    _limit()
    os.chdir(folder)
    with open("output.txt", "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path.insert(0, os.getcwd())
    import pytest

    import keras_pe

    assert keras_pe.__file__.startswith(os.getcwd()), keras_pe.__file__
    status = int(pytest.main([*OPTIONS, *tests]))
    sys.stdout.flush()
    os._exit(status)


def _in_a_process(folder, tests, backend):
    command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
    command += ["-m", "not long and not tensorflow"]
    env = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": ""}
    with Path(folder, "output.txt").open("wb") as file:
        kwargs = {"stdout": file, "stderr": file, "preexec_fn": _limit}
        return subprocess.run(command, cwd=folder, env=env, **kwargs).returncode


def _limit():
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (8 * 2**30,) * 2)  # bytes


BACKENDS = {
    "tensorflow": _on_tensorflow,
    "torch": _in_a_process,
    "jax": _in_a_process,
}


def report(config, testing_results, **_):
    """Print the mutants of each file, and those that survived and are not listed."""
    equivalent = config.reporter_opts["equivalent"]
    listed = {change.strip() for group in equivalent for change in group["changes"]}
    counts, survivors = defaultdict(Counter), []
    for trial in testing_results.mutant_trials:
        outcome = trial.result.reason_code
        if outcome == Result.RC_NOT_FOUND:
            survivors.append(_change_of(trial.mutant))
            outcome = "Equivalent" if survivors[-1] in listed else "Survived"
        counts[str(trial.mutant.source_file)][outcome] += 1
    for file, count in counts.items():
        print(file, dict(count))
    new = [change for change in survivors if change not in listed]
    print(*new, sep="\n\n")
    SURVIVORS.write_text("\n\n".join(survivors))
    if new:
        raise PoodleTestingFailedError(f"{len(new)} mutants survived")


def _change_of(mutant):
    """Return the lines that a mutant takes out and puts in, and where."""
    lines = create_unified_diff(mutant).splitlines()[2:]
    changed = (line[0] + line[1:].strip() for line in lines if line[0] in "-+")
    return "\n".join([str(mutant.source_file), *changed])
