"""The study: what it trains, what it goes on from, and what its tables say."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import study, study_plots, study_tables, study_tasks

pytestmark = pytest.mark.tensorflow


def test_each_question_is_asked_of_each_encoding_and_seed():
    runs = study.all_runs(quick=False)
    names = [study.name_of(run) for run in runs]
    assert len(set(names)) == len(names) == 3 * (6 * 4 + 2)
    for run in runs:
        assert run["encoding"] in study.ENCODINGS
        assert run["task"] in study_tasks.TASKS
    assert {study.name_of(run) for run in study.all_runs(quick=True)}.isdisjoint(names)
    assert study.ENCODINGS == study_tasks.ENCODINGS == study_tables.ENCODINGS


@pytest.mark.parametrize("jobs", [1, 2])
def test_it_goes_on_from_what_is_there(tmp_path, monkeypatch, capsys, jobs):
    monkeypatch.setattr(study, "ROOT", tmp_path)
    asked, given = [], []

    def fail_at_the_third(run):
        asked.append(run)
        if len(asked) == 3:
            raise RuntimeError("interrupted")
        if len(asked) > 3:
            time.sleep(0.2)  # for the failure to be seen
        given.append(run)
        return {"accuracy": 0.5}

    monkeypatch.setattr(study, "in_a_process", fail_at_the_third)
    monkeypatch.setattr("sys.argv", ["study", "--quick", f"--jobs={jobs}"])
    everything = study.all_runs(quick=True)
    with pytest.raises(RuntimeError, match="interrupted"):
        study.main()
    assert len(asked) < len(everything)  # it ends
    kept = json.loads((tmp_path / "runs" / "study.json").read_text("utf-8"))
    assert {*kept["runs"]} == {study.name_of(run) for run in given}

    monkeypatch.setattr(
        study, "in_a_process", lambda run: asked.append(run) or {"accuracy": 0.5}
    )
    asked.clear()
    study.main()
    assert len(asked) == len(everything) - len(given) + 1  # and the cost
    assert [run for run in asked if run in given] == []
    kept = json.loads((tmp_path / "runs" / "study.json").read_text("utf-8"))
    assert {*kept["runs"]} == {study.name_of(run) for run in everything}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["study.json"]
    asked.clear()
    study.main()
    assert asked == []


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Return a function that returns why the quick study does not train."""

    def run(*arguments):
        trained = []
        monkeypatch.setattr(study, "in_a_process", trained.append)
        monkeypatch.setattr("sys.argv", ["study", "--quick", *arguments])
        with pytest.raises(SystemExit, match="2"):
            study.main()
        assert trained == []
        return capsys.readouterr().err.splitlines()[-1]

    monkeypatch.setattr(study, "ROOT", tmp_path)
    (tmp_path / "runs").mkdir()
    return run


@pytest.mark.parametrize("jobs", [0, -1])
def test_there_is_a_job_at_least(refused, jobs):
    error = refused(f"--jobs={jobs}")
    assert f"--jobs must be at least 1. Received: --jobs {jobs}" in error


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b'{"runs": []}',
        b'{"runs": {"a": null}}',
    ],
)
def test_a_damaged_file_is_left_as_it_is(tmp_path, refused, text):
    path = tmp_path / "runs" / "study.json"
    path.write_bytes(text)
    assert str(path) in refused()
    assert path.read_bytes() == text


@pytest.mark.parametrize("name", ["runs/study.json", "runs/study.writing"])
def test_a_folder_in_the_place_of_the_file_is_seen_before_training(
    tmp_path, refused, name
):
    (tmp_path / name).mkdir()
    assert str(tmp_path / name) in refused()


def test_a_file_in_the_place_of_the_folder_is_seen_before_training(tmp_path, refused):
    (tmp_path / "runs").rmdir()
    (tmp_path / "runs").write_text("")
    assert str(tmp_path / "runs") in refused()


@pytest.mark.parametrize("differ", ["machine", "versions"])
def test_results_are_of_one_machine_and_its_versions(tmp_path, refused, differ):
    record = {**study.heading("it"), "date": "another", "runs": {}, differ: "X 1"}
    path = tmp_path / "runs" / "study.json"
    path.write_text(json.dumps(record))
    error = refused()
    assert str(path) in error and f"its own {differ} alone, 'X 1'." in error
    assert json.loads(path.read_text()) == record


def test_a_whole_study_needs_no_machine_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "ROOT", tmp_path)
    monkeypatch.setattr(study, "in_a_process", lambda run: {"accuracy": 0.5})
    monkeypatch.setattr("sys.argv", ["study", "--quick"])
    study.main()
    path = tmp_path / "runs" / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": "X 1"}))
    study.main()
    assert "0 runs are to come: " in capsys.readouterr().out


def test_results_of_other_sizes_are_not_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "ROOT", tmp_path)
    monkeypatch.setattr(study, "in_a_process", lambda run: {"accuracy": 0.5})
    monkeypatch.setattr("sys.argv", ["study", "--quick"])
    study.main()
    monkeypatch.setitem(study.QUICK, "order", (7, 7))
    study.main()
    assert "6 runs are to come: " in capsys.readouterr().out


def test_an_interrupted_study_says_that_it_goes_on(tmp_path, monkeypatch, capsys):
    def interrupted(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "ROOT", tmp_path)
    monkeypatch.setattr(study, "in_a_process", interrupted)
    monkeypatch.setattr("sys.argv", ["study", "--quick"])
    with pytest.raises(SystemExit, match="130"):
        study.main()
    assert capsys.readouterr().err == "interrupted: the same command goes on\n"


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc to look into")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_training_ends_with_the_study(how):
    run = {"task": "order", "encoding": "none", "seed": 0, "size": [12000, 9]}
    code = f"from benchmarks.study import in_a_process; in_a_process({run})"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=study.ROOT)
    listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    until(lambda: listed.read_text())
    child = int(listed.read_text())
    parent.send_signal(how)
    parent.wait()
    try:
        until(lambda: is_over(child))
    finally:
        if not is_over(child):
            os.kill(child, signal.SIGKILL)


def until(true, seconds=10):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_over(pid):
    path = Path(f"/proc/{pid}/stat")  # of one that nobody waits for: Z, a zombie
    return not path.exists() or path.read_text().rpartition(") ")[2][0] == "Z"


@pytest.mark.parametrize("corrupt", ["shuffled", "swapped"])
def test_a_likeness_has_the_same_words_in_another_order(corrupt):
    draw = random.Random(0)
    for count in range(5, 12):
        words = [*"the the cat sat on a mat then it slept".split()[:count], "."]
        other = study_tasks.CORRUPT[corrupt](words, draw)
        assert sorted(other) == sorted(words) and other != words
        assert other[-1] == "."
        if corrupt == "swapped":
            [i, j] = [i for i, word in enumerate(words) if word != other[i]]
            assert j == i + 1


def test_sentences_are_apart_by_split():
    splits = study_tasks.sentences(500)
    assert {name: len(part) for name, part in splits.items()} == {
        "training": 500,
        "validation": 62,
        "test": 62,
    }
    texts = [words for part in splits.values() for words in part]
    assert len({"".join(words) for words in texts}) == len(texts)
    for words in texts:
        assert len(words) >= 8 and len("".join(words)) <= study_tasks.LONGEST_SENTENCE


def results():
    """What a study might have, each number its own."""
    record = {"command": "it", "date": "today", "machine": "one", "versions": {"a": 1}}
    record["cost"] = {name: [1.0, 1.25, 1.5] for name in study.ENCODINGS}
    record["runs"] = {}
    for run in study.all_runs(quick=False):
        result = {"accuracy": 0.5 + run["seed"] / 10, "f1": 0.25, "pairs_differ": 3e-7}
        result |= {"shuffled": result["accuracy"], "swapped": 0.5}
        if run["task"] == "writing":
            encoding = None if "variant" in run else run["encoding"]
            ways = study_tasks.AT_TEST.get(encoding, study_tasks.AS_IT_IS)
            lengths = dict.fromkeys(study_tables.LENGTHS, 6.0 + run["seed"])
            result["bits"] = {way: lengths for way in ways}
            if run["encoding"] == "learned":  # it has no rows beyond the first
                result["bits"]["as it is"] = {"64": 6.0 + run["seed"]}
        record["runs"][study.name_of(run)] = {**run, **result}
    return record


def test_tables_have_the_means_and_the_spread():
    tables = {name: made(results()) for name, made in study_tables.TABLES.items()}
    assert "| `none` | 0.600 (0.500 to 0.700) | 0.500" in tables["order"]
    assert "differ by 3e-07 at most, in all 3 runs" in tables["order"]
    assert "| `alibi` | 0.600 (0.500 to 0.700) | 0.250 (" in tables["tasks"]
    assert tables["tasks"].count("7.00 (6.00 to 8.00)") == 6
    rows = [row for row in tables["length"].splitlines() if row.startswith("| `")]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [
        "`sinusoidal`",
        "`sinusoidal`, positions interpolated",
        "`sinusoidal`, `max_wavelength=1e6`",
        "`sinusoidal`, random starts in training",
        "`learned`",
        "`learned`, table resized",
        "`rotary`",
        "`rotary`, positions interpolated",
        "`alibi`",
        "`relative`",
        "`none`",
    ]
    assert "| `rotary` | 1.25 (1.00 to 1.50) |" in tables["cost"]
    alibi = "| `alibi` | 60% | 0.600 | 0.250 | 7.00 | 7.00 | 1.25 |"
    assert alibi in tables["choice"]
    assert "| `learned` | 60% | 0.600 | 0.250 | 7.00 |  | 1.25 |" in tables["choice"]
    first = tables.pop("first")
    assert "**60%** of the pairs" in first and "60% without" in first
    for table in tables.values():
        assert "`it`, today, one: a 1." in table


def test_tables_leave_out_runs_of_other_sizes():
    wanted, mixed = results(), results()
    for name, run in wanted["runs"].items():
        mixed["runs"][f"{name} before"] = {**run, "size": [1, 1], "seed": 3} | {
            key: 0.0 for key in ("accuracy", "f1", "shuffled", "swapped")
        }
    for made in study_tables.TABLES.values():
        assert made(mixed) == made(wanted)


def without(record, name):
    (record if name == "cost" else record["runs"]).pop(name)


def with_one_null(record, name):
    found = record if name == "cost" else record["runs"]
    found[name] = {**found[name], "f1": None}


def with_one_nan(record, name):
    found = record if name == "cost" else record["runs"]
    found[name] = {**found[name], "bits": {"as it is": {"64": float("nan")}}}


@pytest.mark.parametrize("name", ["cost", "names alibi 2 (9000, 4)"])
@pytest.mark.parametrize("break_it", [without, with_one_null, with_one_nan])
def test_an_incomplete_study_has_neither_tables_nor_plots(tmp_path, break_it, name):
    record = results()
    break_it(record, name)
    match = re.escape(f"It lacks those of: {name}")
    for made in study_tables.TABLES.values():
        with pytest.raises(ValueError, match=match):
            made(record)
    with pytest.raises(ValueError, match=match):
        study_plots.draw(record, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_plots_show_every_encoding_and_every_seed(tmp_path, capsys):
    study_plots.draw(results(), tmp_path)
    names = [f"study-{name}.png" for name in ("cost", "length", "order", "tasks")]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for axes in study_plots.order(results()).axes:
        labels = [tick.get_text() for tick in axes.get_xticklabels()]
        assert labels == [*study.ENCODINGS]
        seeds = [line for line in axes.lines if line.get_linestyle() == "None"]
        assert [len(line.get_xdata()) for line in seeds] == [3] * 6
    known, remedies = study_plots.length(results()).axes
    assert len(known.lines) == 6
    assert len(remedies.lines) == 6  # of them one without a remedy, to compare with


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [
        {"task": "order", "size": [64, 1, 8]},
        {"task": "names", "size": [160, 1, 8]},
        {"task": "writing", "size": [8000, 1, 8]},
        {"task": "writing", "size": [8000, 1, 8], "variant": "random starts"},
    ],
    ids=lambda task: " ".join(map(str, task.values())),
)
def test_tasks_run(task):
    result = study.in_a_process({**task, "encoding": "sinusoidal", "seed": 0})
    assert result["epoch"] == 1 and result["validation_loss"] > 0
    for key in ("shuffled", "swapped", "f1"):
        assert 0 <= result.get(key, 0) <= 1
    if task["task"] == "writing":
        ways = {"as it is"} if "variant" in task else {"as it is", "interpolated"}
        assert {*result["bits"]} == ways
        assert [*result["bits"]["as it is"]] == [*study_tables.LENGTHS]
