"""Keras 2 in the same process, or in the place of Keras 3."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import run

ROOT = Path(__file__).parents[1]


def packages(folder, **sources):
    """Write packages of one module each, in the place of real ones."""
    for name, source in sources.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(source)
    return folder


@pytest.mark.parametrize("version", ["2.15.0", "2.3.1"])
def test_keras_2_is_refused(version, tmp_path):
    folder = packages(tmp_path, keras=f"__version__ = {version!r}")
    done = subprocess.run(
        [sys.executable, "-c", "import keras_pe"],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    )
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ImportError: keras_pe takes Keras 3")
    assert error.endswith(f"Received: keras {version}")


@pytest.mark.long
@pytest.mark.tensorflow
def test_keras_3_works_beside_legacy_keras(tmp_path):
    """The variable is TensorFlow's, and says what `tf.keras` is."""
    tensor = "class KerasTensor: shape, dtype = (None, None, 8), 'float32'"
    packages(tmp_path, tf_keras=tensor)
    printed = run(
        """
        import sys, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import keras_pe
        [warning] = [w for w in caught if "TF_USE_LEGACY_KERAS" in str(w.message)]
        print(warning.filename, warning.message)

        import keras, numpy as np, tensorflow as tf
        x = np.ones((2, 3, 8), "float32")
        model = keras.Sequential(
            [
                keras.layers.Dense(8),
                keras_pe.PositionalEncoding(),
                keras_pe.LearnedPositionalEncoding(max_length=9),
            ]
        )
        model.compile("sgd", "mse")
        model.fit(x, x, verbose=0)
        model.save(sys.argv[1] + "/model.keras")
        loaded = keras.saving.load_model(sys.argv[1] + "/model.keras")
        model.export(sys.argv[1] + "/served", verbose=False)
        served = tf.saved_model.load(sys.argv[1] + "/served")
        served = served.signatures["serving_default"]
        [name] = served.structured_input_signature[1]
        [answer] = served(**{name: tf.constant(x)}).values()
        for result in (loaded.predict(x, verbose=0), answer):
            np.testing.assert_allclose(result, model(x), rtol=0, atol=1e-6)
        print("works")

        try:
            tf.keras.Input
        except ImportError as error:
            print(error)

        sys.path.insert(0, sys.argv[1])
        import tf_keras
        given = tf_keras.KerasTensor()
        for layer in (
            keras_pe.PositionalEncoding(name="pos"),
            keras_pe.LearnedPositionalEncoding(max_length=9, name="pos"),
            keras_pe.AxialPositionalEncoding(name="pos"),
            keras_pe.RotaryEmbedding(name="pos"),
            keras_pe.ALiBi(num_heads=2, name="pos"),
            keras_pe.RelativePositionBias(num_heads=2, name="pos"),
            lambda x: keras_pe.MultiHeadAttention(2, 4, name="pos")(x, x),
            lambda x: keras_pe.PositionalEncoding(name="pos")(x=0, inputs=given),
            lambda x: keras_pe.ALiBi(num_heads=2, name="pos")(0, key=x),
            lambda x: keras_pe.sinusoidal_encoding(x, 4),
        ):
            try:
                layer(given)
                print("took it", layer)
            except ValueError as error:
                print(error)
        """,
        tmp_path,
        env={"TF_USE_LEGACY_KERAS": "1"},
    )
    warned, works, without, *rest = printed.splitlines()
    assert warned.startswith("<string> TF_USE_LEGACY_KERAS is set, so `tf.keras` is")
    assert works == "works"
    assert without == "Keras cannot be imported. Check that it is installed."
    assert len(rest) == 10
    for line in rest:
        assert "is of Keras 3, and takes no tensor of Keras 2. Make the model" in line
        assert "'pos'" in line or line.startswith("sinusoidal_encoding")
