"""What the examples share: bad input is one line, and nothing of others is touched."""

import os
from pathlib import Path

import backup
import pytest
import results
import tagged
from options import InputError

pytestmark = pytest.mark.tensorflow

import language_model  # noqa: E402
import named_entities  # noqa: E402
import text_classification  # noqa: E402

EXAMPLES = [language_model, named_entities, text_classification]
each_example = pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda example: example.NAME
)
readers_of_a_file = pytest.mark.parametrize("example", EXAMPLES[:2])


# Options and folders.


@each_example
@pytest.mark.parametrize("option", ["--data", "--out", "--saved-models"])
def test_an_empty_path_is_refused(example, option, monkeypatch, capsys):
    message = f"argument {option}: must be a path, not empty. Received: ''"
    tagged.check_refused(example, [option, ""], message, monkeypatch, capsys)


@each_example
def test_options_are_checked_before_predicting_too(
    example, tmp_path, monkeypatch, capsys
):
    options = ["--predict", "a", "--saved-models", tmp_path, "--seed=-1"]
    message = "`--seed` must be at least 0"
    tagged.check_refused(example, options, message, monkeypatch, capsys)


@each_example
@pytest.mark.parametrize("option", ["--out", "--saved-models"])
def test_a_name_that_is_too_long_is_refused(
    example, option, tmp_path, monkeypatch, capsys
):
    options = [option, tmp_path / ("n" * 300) / "below"]
    message = f"`{option}` must be a folder .*: File name too long"
    tagged.check_refused(example, options, message, monkeypatch, capsys)
    if option == "--saved-models":
        message = "File name too long"
        options += ["--predict", "a"]
        tagged.check_refused(example, options, message, monkeypatch, capsys)


@pytest.mark.parametrize("option", ["--out", "--saved-models"])
def test_a_folder_that_cannot_be_listed_is_refused(
    option, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != tmp_path or not mode & os.R_OK
    )
    message = f"`{option}` must be a folder .* cannot be read"
    options = [option, tmp_path]
    tagged.check_refused(language_model, options, message, monkeypatch, capsys)
    # Of a folder above only writing is asked.
    results.check_folder(option, tmp_path / "below")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("[" * 100_000),
        os.mkfifo,
        lambda path: path.symlink_to("gone"),
    ],
)
def test_metrics_that_are_none_are_of_others(make, tmp_path, monkeypatch, capsys):
    metrics = tmp_path / "metrics.json"
    make(metrics)
    if metrics.is_fifo():
        monkeypatch.setattr(Path, "read_bytes", wait)
    message = "`--out` must not hold files of others: .*metrics.json"
    options = ["--out", tmp_path]
    tagged.check_refused(language_model, options, message, monkeypatch, capsys)


def wait(path):
    raise AssertionError("waits for ever")


@readers_of_a_file
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_data_that_is_no_file_is_refused(example, make, tmp_path, monkeypatch, capsys):
    make(tmp_path / "data")
    monkeypatch.setattr(Path, "read_bytes", wait)
    options = ["--data", tmp_path / "data", "--out", tmp_path / "out"]
    message = "Texts must be in files. Received: '.*data', which is not a file"
    tagged.check_refused(example, options, message, monkeypatch, capsys)


def test_a_text_that_is_no_file_is_refused(tmp_path, monkeypatch, capsys):
    for name in "ab":
        (tmp_path / name).mkdir()
        os.mkfifo(tmp_path / name / "1.txt")
    monkeypatch.setattr(Path, "read_bytes", wait)
    options = ["--data", tmp_path]
    message = "Texts must be in files. Received: '.*1.txt'"
    tagged.check_refused(text_classification, options, message, monkeypatch, capsys)


@each_example
def test_data_that_cannot_be_reached_is_refused(example, tmp_path, monkeypatch, capsys):
    (tmp_path / "loop").symlink_to("loop")
    options = ["--data", tmp_path / "loop", "--out", tmp_path / "out"]
    message = r"levels of symbolic links|not a folder"
    tagged.check_refused(example, options, message, monkeypatch, capsys)


# What others have put into the folder of the results.


def test_leftovers_go_and_the_folders_of_others_stay(tmp_path):
    with results.aside(tmp_path) as left:
        (left / "model.keras").write_text("half")
        os.rename(left.parent, tmp_path / f"{results.PREFIX}killed")
        left.parent.mkdir()
    (tmp_path / f"{results.PREFIX}killed-at-once").mkdir()
    own = [
        tmp_path / name / "chapter.txt"
        for name in (".writing-book", f"{results.PREFIX}book")
    ]
    for path in own:
        path.parent.mkdir()
        path.write_text("precious")
    with results.alone(tmp_path):
        pass
    assert sorted(tmp_path.iterdir()) == sorted(path.parent for path in own)
    assert all(path.read_text() == "precious" for path in own)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("precious"),
        lambda path: path.write_text("k"),
        lambda path: path.symlink_to("gone"),
        os.mkdir,
        os.mkfifo,
    ],
)
def test_a_backup_of_others_is_refused_and_stays(make, tmp_path, monkeypatch):
    kept = backup.Backup(tmp_path, {})
    make(kept.path)
    if kept.path.is_fifo():
        monkeypatch.setattr(Path, "read_bytes", wait)
    before = kept.path.lstat()
    with pytest.raises(InputError, match=r"'.*backup' is not a backup of a"):
        kept.load()
    assert kept.path.lstat() == before


def test_a_backup_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    def fail(path):
        raise PermissionError(13, "Permission denied", str(path))

    kept = backup.Backup(tmp_path, {})
    kept.save({}, [])
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(PermissionError):
        kept.load()


# Exports.


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Exports with the signatures of each example, by its name."""
    import tensorflow as tf

    def save(name, **signatures):
        module = tf.Module()
        functions = {
            signature: tf.function(
                lambda _outputs=outputs, **given: {
                    name: tf.zeros([1] * rank) for name, rank in _outputs.items()
                },
                input_signature=None,
            ).get_concrete_function(
                **{
                    name: tf.TensorSpec([None] * rank, name=name)
                    for name, rank in inputs.items()
                }
            )
            for signature, (inputs, outputs) in signatures.items()
        }
        path = tmp_path_factory.mktemp(name)
        tf.saved_model.save(module, str(path / "1"), signatures=functions)
        return path

    return {
        "none": save("none"),
        "text_classification": save(
            "text_classification",
            serving_default=({"text": 1}, {"label": 1, "probabilities": 2}),
        ),
        "named_entities": save(
            "named_entities",
            serving_default=({"text": 1}, {"label": 2, "probabilities": 3}),
        ),
        "language_model": save(
            "language_model",
            serving_default=(
                {"ids": 2, "start_index": 0, "mask_0": 2},
                {"logits": 2, "mask_0": 2},
            ),
            encode=({"text": 1}, {"output_0": 2}),
            decode=({"tokens": 2}, {"output_0": 2}),
        ),
    }


@each_example
def test_an_export_of_another_example_is_refused(example, others, monkeypatch, capsys):
    for name, folder in others.items():
        if name == example.NAME:
            example.load_newest(folder, example.NEEDED)
            continue
        options = ["--saved-models", folder, "--predict", "a"]
        message = "must be an export of this example, with .* Received: '.*1', where"
        tagged.check_refused(example, options, message, monkeypatch, capsys)


@each_example
@pytest.mark.parametrize("content", [b"", b"garbage", b"\x0a\xff" * 99])
def test_a_damaged_export_is_refused(example, content, tmp_path, monkeypatch, capsys):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(content)
    options = ["--saved-models", tmp_path, "--predict", "a"]
    message = "Cannot load '.*1', the newest version in `--saved-models`: "
    tagged.check_refused(example, options, message, monkeypatch, capsys)


def test_an_export_without_its_weights_is_refused(
    others, tmp_path, monkeypatch, capsys
):
    pb = others["language_model"] / "1" / "saved_model.pb"
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(pb.read_bytes())
    options = ["--saved-models", tmp_path, "--predict", "a"]
    message = "Cannot load '.*1', the newest version"
    tagged.check_refused(language_model, options, message, monkeypatch, capsys)


@each_example
def test_exports_that_cannot_be_listed_are_refused(
    example, tmp_path, monkeypatch, capsys
):
    def fail(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", fail)
    options = ["--saved-models", tmp_path, "--predict", "a"]
    message = f"Permission denied: '{tmp_path}'"
    tagged.check_refused(example, options, message, monkeypatch, capsys)
