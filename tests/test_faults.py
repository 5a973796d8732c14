"""What is whole stays whole, and the next run works, whatever happens to the example.

A run that is killed goes on to the very result of one that was not.
"""

import errno
import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import backup
import corpus
import faults
import keras
import numpy as np
import pytest
from classifier import example, write_texts
from options import InputError
from results import PREFIX, alone

from keras_pe import processes
from keras_pe.serving import export

pytestmark = pytest.mark.tensorflow
TINY = ["--blocks", "0", "--dim", "8", "--heads", "1", "--dropout", "0.3"]
TINY += ["--batch-size", "8", "--length", "8", "--epochs", "4"]
TINY += ["--learning-rate", "0.01"]
BATCHES = 6


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    rows = {
        label: [f"{label} {i % 3} {i % 7} {i}" for i in range(30)] for label in "ab"
    }
    return write_texts(tmp_path_factory.mktemp("texts") / "data", **rows)


@pytest.fixture(scope="module")
def unbroken(texts, tmp_path_factory):
    """The folder of a run to which nothing happens."""
    folder = tmp_path_factory.mktemp("unbroken")
    example.main(options(texts, folder))
    return folder


@pytest.fixture
def folder(tmp_path):
    """What an earlier run of the example may have left."""
    folder = tmp_path / "folder"
    (folder / "out").mkdir(parents=True)
    for name in example.RESULTS:
        (folder / "out" / name).write_text(f"{name} of an earlier run")
    (folder / "out" / "metrics.json").write_text(f'{{"example": "{example.NAME}"}}')
    (folder / "saved" / "1" / "variables").mkdir(parents=True)
    (folder / "saved" / "1" / "variables" / "variables.index").write_text("earlier")
    return folder


def options(data, folder, *more):
    places = [f"--data={data}", f"--out={folder / 'out'}"]
    return [*places, f"--saved-models={folder / 'saved'}", *TINY, *more]


def checksums(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).digest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def hidden(folder):
    return sorted(p.name for p in folder.glob("*/.*"))


def metrics(folder):
    found = json.loads((folder / "out" / "metrics.json").read_text("utf-8"))
    for place in ("out", "saved_models"):
        del found["settings"][place]
    del found["training_seconds"]
    return found


def check_same(folder, unbroken):
    """Check that the results are whole, and those of a run that was not broken."""
    assert metrics(folder) == metrics(unbroken)
    for name in ("history.png", "confusion.png"):
        found, expected = (f / "out" / name for f in (folder, unbroken))
        assert found.read_bytes() == expected.read_bytes(), name
    found, expected = (
        keras.saving.load_model(f / "out" / "model.keras").get_weights()
        for f in (folder, unbroken)
    )
    for array, expected_array in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, expected_array)
    newest = max((folder / "saved").iterdir(), key=lambda path: int(path.name))
    check_whole(newest)
    assert hidden(folder) == []


def check_whole(version):
    card = json.loads((version / "model_card.json").read_text("utf-8"))
    sizes = {
        path.relative_to(version).as_posix(): path.stat().st_size
        for path in version.rglob("*")
        if path.is_file() and path.name != "model_card.json"
    }
    assert card["bytes"] == {"total": sum(sizes.values()), **sizes}
    keras.layers.TFSMLayer(version, call_endpoint="serving_default")


# Where a run can be ended, and how many epochs are then whole.
POINTS = {
    "an epoch": (
        2,
        f"""
        import keras
        stop = keras.callbacks.EarlyStopping
        at(stop, "on_train_batch_end", end, call={2 * BATCHES + 3})
        """,
    ),
    "the first epoch": (
        0,
        """
        import keras
        at(keras.callbacks.EarlyStopping, "on_train_batch_end", end, call=3)
        """,
    ),
    "a backup, half written": (
        2,
        """
        from pathlib import Path
        def is_backup(path, content):
            return path.name == "backup"
        def happen(path, content):
            halve(path)
            end()
        at(Path, "write_bytes", happen, call=3, when=is_backup, after=True)
        """,
    ),
    "a backup, after it is moved": (
        3,
        """
        def is_backup(source, target):
            return str(target).endswith(".training.backup")
        at(os, "replace", end, call=3, when=is_backup, after=True)
        """,
    ),
    "a plot": (
        4,
        """
        from matplotlib.figure import Figure
        def happen(figure, path):
            halve(path)
            end()
        at(Figure, "savefig", happen, call=2, after=True)
        """,
    ),
    "the model's file": (
        4,
        """
        import keras
        def happen(model, path):
            halve(path)
            end()
        at(keras.Model, "save", happen, after=True)
        """,
    ),
    "an export": (
        4,
        """
        from keras_pe import loading
        def happen(version):
            halve(version / "saved_model.pb")
            end()
        at(loading, "read", happen)
        """,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("point", "name"),
    [*((point, "SIGKILL") for point in POINTS), ("an epoch", "SIGTERM")],
)
def test_ended_run_leaves_what_was_and_goes_on(
    point, name, texts, folder, unbroken, capsys
):
    epochs, fault = POINTS[point]
    before = checksums(folder)
    done = faults.run(fault, options(texts, folder), name)
    if name == "SIGKILL":
        assert done.returncode == -signal.SIGKILL, done.stderr
    else:
        assert done.returncode == 130, done.stderr
        assert done.stderr.endswith("text_classification.py: interrupted\n")
        assert set(hidden(folder)) <= {".training.backup"}
    visible = {
        path: digest for path, digest in checksums(folder).items() if "/." not in path
    }
    if point == "an export":  # The results are whole already.
        assert metrics(folder) == metrics(unbroken)
        before, visible = (
            {path: digest for path, digest in files.items() if "saved/" in path}
            for files in (before, visible)
        )
    assert visible == before

    capsys.readouterr()
    example.main(options(texts, folder))
    said = f"Training goes on after epoch {epochs} of 4"
    said += ", which was its last: " if epochs == 4 else ": "
    assert (said in capsys.readouterr().out) == (epochs > 0)
    check_same(folder, unbroken)
    assert sorted(p.name for p in (folder / "saved").iterdir()) == ["1", "2"]


@pytest.mark.long
def test_ended_between_two_results_each_is_whole(texts, folder, unbroken):
    replaced = 2
    fault = f"""
        def is_result(source, target):
            return os.path.basename(target) in {example.RESULTS}
        at(os, "replace", end, call={replaced + 1}, when=is_result)
    """
    before = checksums(folder / "out")
    assert faults.run(fault, options(texts, folder)).returncode == -signal.SIGKILL
    after = checksums(folder / "out")
    changed = [name for name in example.RESULTS if before[name] != after[name]]
    assert changed == list(example.RESULTS[:replaced])
    example.main(options(texts, folder))
    check_same(folder, unbroken)


@pytest.mark.long
def test_ended_after_the_export_ends_with_another_one(texts, folder, unbroken):
    fault = """
        at(os, "rename", end, when=lambda s, t: str(t).endswith("/2"), after=True)
    """
    assert faults.run(fault, options(texts, folder)).returncode == -signal.SIGKILL
    check_whole(folder / "saved" / "2")
    example.main(options(texts, folder))
    check_same(folder, unbroken)
    assert sorted(p.name for p in (folder / "saved").iterdir()) == ["1", "2", "3"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("ended", "more"),
    [
        (2, ["--precision=mixed_float16"]),
        (3, ["--encoding=relative", "--blocks=1"]),
        # Stops early, and was not far from it.
        (8, ["--epochs=12", "--learning-rate=0.3"]),
    ],
)
def test_other_trainings_go_on_too(ended, more, texts, tmp_path, capsys):
    fault = f"""
        import keras
        at(keras.callbacks.EarlyStopping, "on_epoch_begin", end, call={ended + 1})
    """
    example.main(options(texts, tmp_path / "unbroken", *more))
    assert metrics(tmp_path / "unbroken")["epochs"] in (4, 9, 10, 11)
    broken = options(texts, tmp_path / "broken", *more)
    assert faults.run(fault, broken).returncode == -signal.SIGKILL
    capsys.readouterr()
    example.main(broken)
    assert f"goes on after epoch {ended} of" in capsys.readouterr().out
    check_same(tmp_path / "broken", tmp_path / "unbroken")


# What a backup is good for.


class Interrupted(Exception):
    pass


def interrupt(monkeypatch, arguments):
    """Run the example until two of its epochs are whole."""
    save = backup.Backup.save

    def end(self, state, arrays):
        save(self, state, arrays)
        if state["epoch"] == 2:
            raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(backup.Backup, "save", end)
        example.main(arguments)


@pytest.mark.long
def test_backup_of_no_use_is_said_and_replaced(
    texts, folder, unbroken, monkeypatch, capsys
):
    interrupt(monkeypatch, options(texts, folder, "--batch-size", "9"))
    capsys.readouterr()
    example.main(options(texts, folder))
    printed = capsys.readouterr().out
    path = folder / "out" / ".training.backup"
    assert f"The backup {path} is of a run with other options: training" in printed
    assert "goes on" not in printed
    check_same(folder, unbroken)


def describe(monkeypatch, *more, classes=("a", "b"), splits=(), words=("x",), **other):
    with monkeypatch.context() as patch:
        patch.setattr(keras, "__version__", other.get("version", keras.__version__))
        if "code" in other:
            patch.setattr(Path, "read_bytes", lambda path: other["code"])
        args = example.make_parser().parse_args(more)
        strategy = SimpleNamespace(num_replicas_in_sync=other.get("replicas", 1))
        model = SimpleNamespace(distribute_strategy=strategy)
        return backup.describe_run("name", args, model, [classes, splits], words)


@pytest.mark.parametrize(
    ("name", "more", "other"),
    [
        ("options", ["--seed", "1"], {}),
        ("options", ["--split", "words"], {}),
        ("texts", [], {"classes": ["b", "a"]}),
        ("texts", [], {"splits": [["text", 1]]}),
        ("vocabulary", [], {"words": ["x", "y"]}),
        ("number of devices", [], {"replicas": 2}),
        ("versions", [], {"version": "3.0"}),
        ("code", [], {"code": b"other"}),
    ],
)
def test_backup_of_another_run_is_not_taken(
    name, more, other, tmp_path, monkeypatch, capsys
):
    run = describe(monkeypatch)
    kept = backup.Backup(tmp_path, describe(monkeypatch, *more, **other))
    kept.save({"epoch": 3}, [])
    assert kept.load() is not None
    assert backup.Backup(tmp_path, run).load() is None
    assert f" is of a run with other {name}: training" in capsys.readouterr().out


def test_backup_may_be_moved_with_its_run(tmp_path, monkeypatch):
    places = ["--data=x", f"--out={tmp_path}", "--saved-models=y"]
    assert describe(monkeypatch, *places) == describe(monkeypatch)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    kept = backup.Backup(tmp_path_factory.mktemp("backup"), {"options": {"seed": 0}})
    kept.save({"epoch": 3}, [np.arange(50.0), np.ones((2, 3), "int32")])
    return kept


def test_backup_is_what_was_saved(saved):
    state, arrays = saved.load()
    assert state == {"epoch": 3}
    np.testing.assert_array_equal(arrays[0], np.arange(50.0))
    np.testing.assert_array_equal(arrays[1], np.ones((2, 3)))
    assert arrays[1].dtype == "int32"


def test_backup_that_is_damaged_anywhere_is_refused(saved, tmp_path, capsys):
    found = backup.Backup(tmp_path, saved.run)
    whole = saved.path.read_bytes()
    for length in range(0, len(whole), 7):
        found.path.write_bytes(whole[:length])
        assert found.load() is None
        assert "is damaged" in capsys.readouterr().out
    for place in range(0, len(whole), 5):
        flipped = bytearray(whole)
        flipped[place] ^= 8
        found.path.write_bytes(flipped)
        assert found.load() is None
        assert "is damaged" in capsys.readouterr().out
    found.path.write_bytes(whole)
    assert found.load() is not None


def test_backup_that_cannot_be_written_says_why_and_leaves_the_last(saved, monkeypatch):
    def fail(path, content):
        with path.open("wb") as file:
            file.write(content[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = checksums(saved.path.parent)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        with pytest.raises(InputError, match=r"Cannot write '.*\.backup'.*No space"):
            saved.save({"epoch": 4}, [])
    assert checksums(saved.path.parent) == before


@pytest.mark.long
def test_disk_that_fills_at_any_moment(texts, tmp_path, unbroken):
    code = """
        import contextlib, io, json, resource, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv.pop(1))
        import text_classification as example
        from test_faults import checksums

        folder = Path(sys.argv.pop(1))
        sizes, write = set(), Path.write_bytes

        def measured(path, content):
            sizes.add(len(content))
            write(path, content)

        Path.write_bytes = measured
        example.main(sys.argv[1:])
        Path.write_bytes = write
        sizes |= {p.stat().st_size for p in folder.rglob("*") if p.is_file()}
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        print()
        # No file can grow beyond the limit: each one is met in turn.
        for limit in sorted({size * 9 // 10 for size in sizes if size > 100}):
            before = checksums(folder)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
            with (
                contextlib.redirect_stdout(io.StringIO()) as out,
                contextlib.redirect_stderr(io.StringIO()) as error,
                contextlib.suppress(SystemExit),
            ):
                example.main(sys.argv[1:])
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            after = checksums(folder)
            changed = [path for path in {*before, *after}
                       if before.get(path) != after.get(path)]
            record = {"limit": limit, "error": error.getvalue().splitlines()[-1:],
                      "results": "Results:" in out.getvalue(), "changed": changed,
                      "last": out.getvalue()[-1:]}
            print(json.dumps(record))
    """
    arguments = options(texts, tmp_path)
    done = processes.run(code, faults.SCRIPT.parent, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if "limit" in line]
    assert len(records) > 8
    for record in records:
        [error] = record["error"]
        assert ": error: Cannot write '" in error, record
        assert "File too large" in error, record
        assert "{" not in error and "[Op:" not in error, record
        assert record["last"] == "\n", record  # not beside the progress of Keras
        results = {f"out/{name}" for name in example.RESULTS if record["results"]}
        assert set(record["changed"]) <= {*results, "out/.training.backup"}, record
    assert {record["results"] for record in records} == {True, False}
    example.main(arguments)
    check_same(tmp_path, unbroken)


# Data that changes as it is read.


def change_after(reads, change, monkeypatch):
    """Let `change` happen after that many texts have been read."""
    read, calls = corpus.read_text, iter(range(1, 1000))

    def read_text(path):
        text = read(path)
        if next(calls) == reads:
            change()
        return text

    monkeypatch.setattr(corpus, "read_text", read_text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "a" / "9.txt").unlink(), r"Cannot read '.*a.9\.txt': No such"),
        (lambda f: shutil.rmtree(f / "b"), "Cannot read '.*b': No such"),
        # Listed, or not yet; read, or not yet.
        *(
            (
                change,
                "must not change while they are read: try again. Received: '.*data'",
            )
            for change in (
                lambda f: shutil.rmtree(f / "a" / "sub"),
                lambda f: (f / "b" / "3.txt").unlink(),
                lambda f: (f / "a" / "0.txt").unlink(),
                lambda f: write_more(f / "a" / "0.txt"),
                lambda f: write_more(f / "b" / "3.txt"),
                lambda f: write_more(f / "b" / "new.txt"),
            )
        ),
    ],
)
def test_data_that_changes_as_it_is_read_is_refused(
    change, message, texts, tmp_path, monkeypatch
):
    data = shutil.copytree(texts, tmp_path / "data")
    (data / "a" / "sub").mkdir()
    (data / "a" / "sub" / "1.txt").write_text("a sub")
    change_after(5, lambda: change(data), monkeypatch)
    with pytest.raises(InputError, match=message):
        corpus.load(str(data))
    monkeypatch.undo()
    if (data / "b").exists():
        assert corpus.load(str(data))[0] == ["a", "b"]


def write_more(path):
    with path.open("a") as file:
        file.write(" and more")


# Two at once.


def test_folder_of_a_run_that_is_not_over_is_refused(tmp_path):
    with alone(tmp_path / "out"):
        left = tmp_path / "out" / f"{PREFIX}x"
        left.mkdir()
        with pytest.raises(InputError, match="of a run that is not over"):
            with alone(tmp_path / "out"):
                raise AssertionError
        assert left.exists()
    with alone(tmp_path / "out"):
        assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.long
def test_second_run_in_one_folder_is_refused(texts, folder, unbroken, capsys):
    fault = f"""
        import keras
        stop = keras.callbacks.EarlyStopping
        at(stop, "on_train_batch_end", pause, call={2 * BATCHES + 3})
    """
    arguments = options(texts, folder)
    first = faults.start(fault, arguments)
    before = checksums(folder)
    assert "out/.training.backup" in before
    with pytest.raises(SystemExit) as stop:
        example.main(arguments)
    assert stop.value.code == 2
    assert "must not be the folder of a run that is not over" in capsys.readouterr().err
    assert checksums(folder) == before
    faults.finish(first)
    check_same(folder, unbroken)


EXPORT = """
    import sys
    import keras, keras_pe

    def pause(*args):
        print("paused", flush=True)
        sys.stdin.readline()

    write = keras_pe.model_card.write
    def paused(*args):
        pause()
        write(*args)

    keras_pe.model_card.write = paused
    ids = keras.Input((None,), dtype="int32", name="ids")
    model = keras.Model(ids, keras.layers.Embedding(9, 2)(ids))
    print(keras_pe.serving.export(model, sys.argv[1]).name)
"""


@pytest.mark.long
def test_two_exports_at_once_are_two_versions(tmp_path):
    first = faults.start_code(EXPORT, tmp_path)
    ids = keras.Input((None,), dtype="int32", name="ids")
    model = keras.Model(ids, keras.layers.Embedding(9, 2)(ids))
    assert export(model, tmp_path) == tmp_path / "1"
    check_whole(tmp_path / "1")
    before = checksums(tmp_path / "1")
    assert faults.finish(first) == "2\n"
    assert checksums(tmp_path / "1") == before
    check_whole(tmp_path / "2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "2"]
