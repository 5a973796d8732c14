"""The example that writes: its steps are its whole, in Keras and as it is served."""

import json
import math

import keras
import numpy as np
import pytest
import tagged
from likeness import first_of
from processes import run

pytestmark = pytest.mark.tensorflow

import language_model as example  # noqa: E402
from encoder import Encoder  # noqa: E402

ENCODINGS = ["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(tagged.text(), "utf-8")
    return path


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("language_model")
    tagged.train(example, data, folder, "--epochs=12")
    return folder


# The models.


@pytest.mark.parametrize(
    ("encoding", "precision"),
    first_of(
        [
            ("relative", "mixed_bfloat16"),
            *((encoding, "float32") for encoding in ENCODINGS),
        ],
        3,
    ),
)
def test_steps_are_the_whole(encoding, precision, tf):
    options = ["--encoding", encoding, "--dim", "16", "--length", "12"]
    args = example.make_parser().parse_args(options)
    keras.utils.set_random_seed(0)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        encoder = Encoder(20, args, causal=True)
        head = keras.layers.Dense(20, dtype="float32")
        step = example.make_step(encoder, head, args.length)
        model = example.make_model(encoder, head)
    finally:
        keras.config.set_dtype_policy(before)
    ids = np.random.default_rng(0).integers(1, 20, (2, 10)).astype("int32")
    whole = model(tf.constant(ids)).numpy()
    caches = example.flat(encoder.init_caches(2, args.length))
    bound = 2e-6 if precision == "float32" else 0.1
    start = 0
    for steps in (4, 1, 3, 1, 1):
        given = tf.constant(ids[:, start : start + steps])
        outputs = step({"ids": given, "start_index": tf.constant(start), **caches})
        start += steps
        logits = outputs.pop("logits").numpy()
        np.testing.assert_allclose(logits, whole[:, start - 1], rtol=0, atol=bound)
        caches = outputs


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_comes_later_changes_nothing_before(encoding, tf):
    args = example.make_parser().parse_args(["--encoding", encoding, "--dim", "16"])
    encoder = Encoder(20, args, causal=True)
    model = example.make_model(encoder, keras.layers.Dense(20))
    ids = np.arange(1, 11)[None]
    other = np.concatenate([ids[:, :6], 1 + ids[:, 6:]], axis=1)
    first, second = (model(tf.constant(x)).numpy() for x in (ids, other))
    np.testing.assert_allclose(first[:, :6], second[:, :6], rtol=0, atol=1e-6)
    assert np.abs(first[:, 6:] - second[:, 6:]).max() > 1e-3


# Data and numbers.


def test_windows_ask_for_each_character_but_the_first_once():
    args = example.make_parser().parse_args(["--length", "4", "--batch-size", "2"])
    ids = np.arange(19)
    batches = list(example.make_windows(ids, args, shuffle=False))
    inputs = np.concatenate([x for x, _ in batches])
    targets = np.concatenate([y for _, y in batches])
    np.testing.assert_array_equal(inputs.ravel(), np.arange(16))
    np.testing.assert_array_equal(targets.ravel(), np.arange(1, 17))
    shuffled = np.concatenate([x for x, _ in example.make_windows(ids, args, True)])
    assert sorted(shuffled[:, 0]) == [0, 4, 8, 12]


def test_bits_without_context():
    training, test = np.array([2, 2, 2, 3]), np.array([2, 3, 9])
    counted = [4 / 7, 2 / 7, 1 / 7]
    expected = -sum(map(math.log2, counted)) / 3
    assert example.bits_without_context(training, test) == pytest.approx(expected)


def test_choices():
    logits, draw = np.array([0.0, 3.0, -math.inf]), np.random.default_rng(0)
    assert example.choose(logits, 0, draw) == 1
    drawn = [example.choose(logits, 1.0, draw) for _ in range(2000)]
    assert set(drawn) == {0, 1}
    assert np.mean(drawn) == pytest.approx(1 / (1 + math.exp(-3)), abs=0.02)
    assert {example.choose(logits, 0.01, draw) for _ in range(100)} == {1}


@pytest.mark.parametrize("tiny", [5e-324, 1e-300, 1e-45, 1e-30])
def test_a_tiny_temperature_takes_the_likeliest(tiny):
    logits = np.array([-3e38, 3.0, 2.9, -math.inf], "float32")
    draw = np.random.default_rng(0)
    assert {example.choose(logits, tiny, draw) for _ in range(20)} == {1}


@pytest.mark.parametrize("huge", [1e39, 1e300, 1.7e308])
def test_a_huge_temperature_draws_from_all_that_can_be(huge):
    logits = np.array([-30.0, 3.0, -math.inf], "float32")
    draw = np.random.default_rng(0)
    drawn = [example.choose(logits, huge, draw) for _ in range(1000)]
    assert set(drawn) == {0, 1}
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.05)


# What is refused.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ab\xff", "Texts must be UTF-8"),
        ("\n\n", "Each split must have a line"),
        ("\n".join(map(str, range(60))), "more than `--length` characters, 128"),
    ],
)
def test_bad_data_is_refused(content, message, tmp_path, monkeypatch, capsys):
    path = tmp_path / "text.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    options = ["--data", path, "--out", tmp_path / "out"]
    tagged.check_refused(example, options, message, monkeypatch, capsys)


@pytest.mark.parametrize("temperature", ["-1", "nan", "inf"])
def test_a_bad_temperature_is_refused(temperature, monkeypatch, capsys):
    options = ["--predict", "a", f"--temperature={temperature}"]
    message = "`--temperature` must be at least 0 and finite. Received: "
    tagged.check_refused(example, options, message, monkeypatch, capsys)


def test_a_model_that_cannot_look_back_is_refused(monkeypatch, capsys):
    message = "`--blocks` must be at least 1: .* Received: 0"
    tagged.check_refused(example, ["--blocks", "0"], message, monkeypatch, capsys)


# One run.


def test_a_prompt_may_have_all_characters_but_one(trained, monkeypatch, capsys):
    options = [f"--saved-models={trained / 'saved'}", "--temperature=0", "--predict"]
    longest = "李鹏" + "9" * 21
    example.main([*options, longest])
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(longest) and len(line) <= 24
    message = "must have at most 23 characters, .* Received: 24 in '李鹏9"
    options += ["李鹏", longest + "9"]
    tagged.check_refused(example, options, message, monkeypatch, capsys)


def test_results_are_complete_and_plausible(trained):
    out = trained / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted(example.RESULTS)
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    assert metrics["example"] == "language_model"
    bits = metrics["test"]["bits_per_character"]
    assert 1 < bits < 2.2 < 4.5 < metrics["without_context"]
    model = keras.saving.load_model(out / "model.keras")
    assert model(np.array([[2, 3]])).shape == (1, 2, metrics["vocabulary"])


@pytest.mark.long
def test_predict_needs_no_keras_and_writes_sentences(trained):
    code = """
        import sys
        sys.path.insert(0, sys.argv.pop(1))
        import language_model
        language_model.main(["--saved-models", sys.argv[1], *sys.argv[2:]])
    """
    given = ["--temperature=0", "--predict", "李鹏", "江泽民在", ""]
    places = tagged.EXAMPLES, trained / "saved"
    printed = run(code, *places, *given, without_keras=True)
    first, second, third = printed.splitlines()
    assert first.startswith("李鹏") and second.startswith("江泽民在")
    for line in (first, second, third):
        assert any(place in line for place in ("北京", "延安")), line
        assert line.endswith(("新华社。", "联合国。")), line
    assert run(code, *places, *given, without_keras=True) == printed


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["relative"])
def test_each_encoding_writes(encoding, data, tmp_path):
    metrics = tagged.train(example, data, tmp_path, "--encoding", encoding)
    assert metrics["test"]["bits_per_character"] < 2.6
