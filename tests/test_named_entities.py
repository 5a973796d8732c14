"""The example that finds names: its lines, its tags, and what it serves."""

import json

import keras
import numpy as np
import pytest
import tagged
from cpp import ask
from likeness import first_of
from options import InputError
from processes import run

import keras_pe

pytestmark = pytest.mark.tensorflow

import entities  # noqa: E402
import named_entities as example  # noqa: E402
import peoples_daily  # noqa: E402

PERSON, PLACE, ORGANIZATION = "person", "place", "organization"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("\n".join(tagged.lines()), "utf-8")
    return path


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("named_entities")
    tagged.train(example, data, folder)
    return folder


# Lines and their names.


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("江/nr 泽民/nr 讲话/v", ["江泽民"]),
        ("江/nr 泽民/nr 李/nr 鹏/nr", ["江泽民", "李鹏"]),
        ("万/nr 里/nr 宋/nr 平/nr", ["万里", "宋平"]),
        ("欧阳/nr 修/nr", ["欧阳修"]),
        ("陈/nr 方/nr 安生/nr", ["陈方安生"]),
        ("若愚/nr 肖/nr 荻/nr", ["若愚", "肖荻"]),
        ("克林顿/nr 叶利钦/nr", ["克林顿", "叶利钦"]),
        ("郭/nr", ["郭"]),
        ("王/nr 、/w 张/nr 刚/nr", ["王", "张刚"]),
        ("日本/ns 东京/ns 新华社/nt", ["日本", "东京", "新华社"]),
        ("a/b/nr", ["a/b"]),
        ("我/r 来/v", []),
    ],
)
def test_names_of_a_line(words, names):
    text, spans = entities.parse(words)
    assert text == "".join(word.rpartition("/")[0] for word in words.split())
    assert [text[start:end] for start, end, _ in spans] == names


def test_tags_say_the_spans():
    text, spans = entities.parse("江/nr 泽民/nr 在/p 北京/ns 上海/ns 新华社/nt 郭/nr")
    kinds = [PERSON, PLACE, PLACE, ORGANIZATION, PERSON]
    assert [kind for *_, kind in spans] == kinds
    tags = entities.tags_of(text, spans)
    assert len(tags) == len(text)
    assert [entities.TAGS[tag] for tag in tags[:4]] == [
        "B-person",
        *["I-person"] * 2,
        "O",
    ]
    assert entities.spans_of(tags) == spans


def test_an_inside_without_a_beginning_begins():
    tags = [entities.TAGS.index(tag) for tag in ("I-place", "I-place", "I-person", "O")]
    assert entities.spans_of(tags) == [(0, 2, PLACE), (2, 3, PERSON)]


def test_pieces_are_the_line_cut_between_names():
    line = (
        "今天/t 江/nr 泽民/nr 来/v 。/w 北京/ns 下/v 雪/n \uff0c/w 很/d 冷/a 了/u 。/w"
    )
    text, spans = entities.parse(line)
    for length in range(1, 20):
        found = entities.pieces(text, spans, length)
        assert "".join(piece for piece, _ in found) == text
        assert all(0 < len(piece) <= length for piece, _ in found)
        names = [piece[a:b] for piece, inside in found for a, b, _ in inside]
        if length >= 3:
            assert names == ["江泽民", "北京"]
    assert [piece for piece, _ in entities.pieces(text, spans, 9)] == [
        "今天江泽民来。",
        "北京下雪\uff0c很冷了。",
    ]
    assert entities.pieces("", [], 9) == []


def test_score_counts_whole_names():
    true = [[(0, 2, PERSON), (3, 5, PLACE)], [(0, 1, PLACE)], []]
    found = [[(0, 2, PERSON), (3, 4, PLACE)], [(0, 1, PERSON)], [(2, 3, PLACE)]]
    scores = entities.score(true, found)
    assert scores["precision"] == 1 / 4 and scores["recall"] == 1 / 3
    assert scores["f1"] == pytest.approx(2 / 7) and scores["entities"] == 3
    assert scores["kinds"][PERSON]["recall"] == 1
    assert scores["kinds"][PLACE]["f1"] == 0
    assert scores["kinds"][ORGANIZATION]["entities"] == 0
    assert entities.score(true, true)["f1"] == 1
    assert entities.score(true, [[], [], []])["f1"] == 0


def test_the_peoples_daily_is_the_same_everywhere():
    splits = peoples_daily.load(peoples_daily.NAME, entities.parse)
    assert {
        name: (len(lines), sum(len(spans) for _, spans in lines))
        for name, lines in splits.items()
    } == {"training": (15239, 41103), "validation": (1844, 4699), "test": (1921, 5490)}
    texts = [text for lines in splits.values() for text, _ in lines]
    for text, spans in (line for lines in splits.values() for line in lines):
        assert entities.spans_of(entities.tags_of(text, spans)) == spans
    assert len(texts) == 19004


# What is refused.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read"),
        ("", "Each split must have a line.* Received: 0 lines"),
        ("北京/ns\n" * 9, "Received: 1 lines"),
        ("北京", "must end in `/` and its part of speech.* Received: '北京'"),
        ("北京/", "must end in `/`"),
        ("/ns", "must end in `/`"),
        ("\n".join(f"{n}/m" for n in range(99)), "must have a name"),
    ],
)
def test_bad_data_is_refused(content, message, tmp_path, monkeypatch, capsys):
    path = tmp_path / "lines.txt"
    if content is not None:
        path.write_text(content, "utf-8")
    options = ["--data", path, "--out", tmp_path / "out"]
    tagged.check_refused(example, options, message, monkeypatch, capsys)


def test_a_length_that_cuts_all_names_is_refused(data, monkeypatch, capsys):
    options = ["--data", data, "--length", "1"]
    message = "a name of at most `--length` characters, 1. .* the shortest has 2 in the"
    tagged.check_refused(example, options, message, monkeypatch, capsys)


def test_other_bad_input_is_refused(tmp_path, monkeypatch, capsys):
    for options, message in (
        (["--length", "0"], "`--length` must be at least 1"),
        (["--predict", "a", "--saved-models", tmp_path], "train one first"),
        (["--encoding", "axial"], "invalid choice: 'axial'"),
    ):
        tagged.check_refused(example, options, message, monkeypatch, capsys)


def test_diverged_training_is_refused():
    class Diverged:
        def predict_on_batch(self, ids):
            return np.full((*ids.shape, 7), np.nan)

    with pytest.raises(InputError, match="smaller `--learning-rate`"):
        example.evaluate(Diverged(), [(np.ones((1, 2)), np.zeros((1, 2)))])


# One run.


def test_results_are_complete_and_plausible(trained):
    out = trained / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted(example.RESULTS)
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    assert metrics["example"] == "named_entities"
    assert sum(metrics["texts"].values()) == 300
    assert metrics["test"]["f1"] > 0.9
    assert metrics["test"]["entities"] == 3 * metrics["texts"]["test"]
    assert (out / "history.png").read_bytes().startswith(b"\x89PNG")


def test_the_file_and_the_export_say_the_same(trained, tf):
    texts = ["李鹏在延安9说联合国。", "江泽民到北京", ""]
    model = keras.saving.load_model(trained / "out" / "model.keras")
    expected = model(tf.constant(texts), training=False).numpy()
    printed = ask(
        """
        import json
        texts = np.array([text.encode() for text in sys.argv[2:]], object)
        with load(sys.argv[1]) as runtime:
            outputs = runtime.run("serving_default", {"text": texts})
        print(json.dumps([outputs["probabilities"].tolist(),
                          [[x.decode() for x in row] for row in outputs["label"]]]))
        """,
        trained / "saved" / "1",
        *texts,
    )
    probabilities, labels = json.loads(printed.splitlines()[-1])
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)
    tags = expected.argmax(-1)
    assert labels == [[entities.TAGS[tag] for tag in row] for row in tags]


@pytest.mark.long
def test_predict_needs_no_keras_and_reads_long_texts(trained):
    short, long = "李鹏在延安9说联合国。", "李鹏到北京7看新华社。" * 9
    printed = run(
        """
        import sys
        sys.path.insert(0, sys.argv.pop(1))
        import named_entities
        named_entities.main(["--saved-models", sys.argv[1], "--predict", *sys.argv[2:]])
        """,
        tagged.EXAMPLES,
        trained / "saved",
        short,
        f"{long}\n",
        without_keras=True,
    )
    first, second = printed.splitlines()
    assert first == "[李鹏 person]在[延安 place]9说[联合国 organization]。"
    assert second.count("[李鹏 person]") > 3
    for kind in (PERSON, PLACE, ORGANIZATION):
        second = second.replace(f" {kind}]", "")
    assert second.replace("[", "") == long


ENCODINGS = ["sinusoidal", "relative", "learned", "rotary", "alibi", "none"]


@pytest.mark.parametrize("encoding", first_of(ENCODINGS, 2))
def test_padding_changes_no_tag(encoding):
    args = example.make_parser().parse_args(["--encoding", encoding, "--dim", "8"])
    keras.utils.set_random_seed(0)
    tagger = example.make_tagger(10, args)
    short = tagger.predict(np.array([[5, 6, 7, 6]]), verbose=0)
    padded = tagger.predict(np.array([[5, 6, 7, 6, 0, 0]]), verbose=0)
    np.testing.assert_allclose(padded[:, :4], short, atol=1e-5)
    # Without positions the two sixes cannot be told apart.
    assert np.allclose(short[0, 1], short[0, 3], atol=1e-5) == (encoding == "none")


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["alibi"])
def test_each_encoding_finds_names(encoding, data, tmp_path):
    metrics = tagged.train(example, data, tmp_path, "--encoding", encoding)
    assert metrics["test"]["f1"] > 0.9
    assert metrics["versions"]["keras_pe"] == keras_pe.__version__
