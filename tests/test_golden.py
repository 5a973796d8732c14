"""The model written by the oldest Keras loads, and gives the numbers of the oracle."""

import json

import make_golden
import numpy as np
import processes
import pytest

each_layer = pytest.mark.parametrize("name", make_golden.NAMES)


@each_layer
def test_expected_numbers_are_the_oracles(name):
    path = make_golden.folder(name) / "expected.json"
    record = json.loads(path.read_text("utf-8"))
    assert record["ids"] == make_golden.inputs(name)
    for ids, scores in zip(record["ids"], record["scores"], strict=True):
        np.testing.assert_allclose(scores, make_golden.expected(ids, name), rtol=1e-12)


def test_keras_files_load_in_another_process():
    processes.run(
        """
        import json, sys, keras, keras_pe, numpy as np
        for folder in sys.argv[1:]:
            model = keras.saving.load_model(folder + "/model.keras")
            record = json.load(open(folder + "/expected.json"))
            for ids, scores in zip(record["ids"], record["scores"]):
                result = model(np.array([ids]))["scores"]
                result = keras.ops.convert_to_numpy(result)[0]
                np.testing.assert_allclose(result, scores, rtol=0, atol=1e-6)
        """,
        *map(make_golden.folder, make_golden.NAMES),
    )


def test_it_is_small():
    paths = [path for path in make_golden.FOLDER.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in paths)
    assert size < 200_000 * len(make_golden.NAMES)
