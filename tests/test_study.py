"""The study: what it trains, what it goes on from, and what its tables say."""

import json

import numpy as np
import pytest

from benchmarks import study, study_tables, study_tasks

pytestmark = pytest.mark.tensorflow


def test_each_question_is_asked_of_each_encoding_and_seed():
    runs = study.all_runs(quick=False)
    names = [study.name_of(run) for run in runs]
    assert len(set(names)) == len(names) == 3 * (6 * 5 + 2)
    for run in runs:
        assert run["encoding"] in study.ENCODINGS
        assert run["task"] in study_tasks.TASKS
    assert {study.name_of(run) for run in study.all_runs(quick=True)}.isdisjoint(names)
    assert study.ENCODINGS == study_tasks.ENCODINGS == study_tables.ENCODINGS


def test_it_goes_on_from_what_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "ROOT", tmp_path)
    asked = []

    def fail_at_the_third(run):
        asked.append(run["task"])
        if len(asked) == 3:
            raise RuntimeError("interrupted")
        return {"accuracy": 0.5}

    monkeypatch.setattr(study, "in_a_process", fail_at_the_third)
    monkeypatch.setattr("sys.argv", ["study", "--quick", "--jobs=1"])
    with pytest.raises(RuntimeError, match="interrupted"):
        study.main()
    kept = json.loads((tmp_path / "runs" / "study.json").read_text("utf-8"))
    assert len(kept["runs"]) == 2
    first = len(asked)
    study.main()
    everything = study.all_runs(quick=True)
    assert len(asked) - first == len(everything) - 2 + 1  # and the cost
    kept = json.loads((tmp_path / "runs" / "study.json").read_text("utf-8"))
    assert [*kept["runs"]] and len(kept["runs"]) == len(everything)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["study.json"]
    asked.clear()
    study.main()
    assert asked == []


@pytest.mark.parametrize("corrupt", ["shuffled", "swapped"])
def test_a_likeness_has_the_same_words_in_another_order(corrupt):
    draw = np.random.default_rng(0)
    for count in range(5, 12):
        row = np.array([*range(2, 2 + count), 2, *[0] * (23 - count)])
        other = study_tasks.CORRUPT[corrupt](row, draw)
        assert sorted(other) == sorted(row) and other.tolist() != row.tolist()
        assert other[count + 1 :].tolist() == row[count + 1 :].tolist()
        if corrupt == "swapped":
            [first, second] = np.flatnonzero(other != row)
            assert second == first + 1


def test_sentences_are_apart_by_split():
    splits, vocabulary = study_tasks.sentences(500)
    assert {name: len(part) for name, part in splits.items()} == {
        "training": 500,
        "validation": 62,
        "test": 62,
    }
    for part in splits.values():
        assert all(8 <= len(ids) <= 24 for ids in part)
        assert max(map(max, part)) < vocabulary
    texts = [tuple(ids) for part in splits.values() for ids in part if 1 not in ids]
    assert len(set(texts)) == len(texts)


def results():
    """What a study might have, each number its own."""
    record = {"command": "it", "date": "today", "machine": "one", "versions": {"a": 1}}
    record["cost"] = {name: [1.0, 1.25, 1.5] for name in study.ENCODINGS}
    record["runs"] = {}
    for run in study.all_runs(quick=False):
        result = {"accuracy": 0.5 + run["seed"] / 10, "f1": 0.25, "pairs_differ": 3e-7}
        if run["task"] == "writing":
            ways = study_tasks.AT_TEST.get(run["encoding"], {"as it is": None})
            lengths = dict.fromkeys(study_tables.LENGTHS, 6.0 + run["seed"])
            result["bits"] = {way: lengths for way in ways}
        record["runs"][study.name_of(run)] = {**run, **result}
    return record


def test_tables_have_the_means_and_the_spread():
    tables = {name: made(results()) for name, made in study_tables.TABLES.items()}
    assert "| `none` | 0.600 (0.500 to 0.700) | 0.600" in tables["order"]
    assert "differ by 3e-07 at most, in all 6 runs" in tables["order"]
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
    for table in tables.values():
        assert "`it`, today, one: a 1." in table


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [
        {"task": "order", "corrupt": "swapped", "size": [64, 1, 8]},
        {"task": "names", "size": [160, 1, 8]},
        {"task": "writing", "size": [8000, 1, 8], "variant": "random starts"},
    ],
    ids=lambda task: task["task"],
)
def test_tasks_run(task):
    result = study.in_a_process({**task, "encoding": "sinusoidal", "seed": 0})
    assert result["epoch"] == 1 and result["validation_loss"] > 0
    for key in ("accuracy", "f1"):
        assert 0 <= result.get(key, 0) <= 1
    if task["task"] == "writing":
        assert {*result["bits"]} == {"as it is", "interpolated"}
        assert [*result["bits"]["as it is"]] == [*study_tables.LENGTHS]
