"""The model written by the oldest Keras loads, and gives the numbers of the oracle."""

import json

import make_golden
import numpy as np
import processes

FOLDER = make_golden.FOLDER
RECORD = json.loads((FOLDER / "expected.json").read_text("utf-8"))


def test_expected_numbers_are_the_oracles():
    assert RECORD["ids"] == make_golden.TEXTS
    for ids, scores in zip(RECORD["ids"], RECORD["scores"], strict=True):
        np.testing.assert_allclose(scores, make_golden.expected(ids), rtol=1e-12)


def test_the_keras_file_loads_in_another_process():
    processes.run(
        """
        import json, sys, keras, keras_pe, numpy as np
        model = keras.saving.load_model(sys.argv[1] + "/model.keras")
        record = json.load(open(sys.argv[1] + "/expected.json"))
        for ids, scores in zip(record["ids"], record["scores"]):
            result = model(np.array([ids]))["scores"]
            result = keras.ops.convert_to_numpy(result)[0]
            np.testing.assert_allclose(result, scores, rtol=0, atol=1e-6)
        """,
        FOLDER,
    )


def test_it_is_small():
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size < 200_000
