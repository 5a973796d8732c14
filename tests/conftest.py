"""What every test needs: a known seed, and the settings of Keras as they were."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest


@pytest.fixture(autouse=True)
def settings_of_keras():
    policy, floatx = keras.config.dtype_policy(), keras.config.floatx()
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.fixture
def tf():
    """TensorFlow, which the tests of other backends run without."""
    import tensorflow

    return tensorflow
