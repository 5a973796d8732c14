"""Keras 2, with which no layer of Keras 3 works: said where it is first met.

As a module this is imported before all others, which need Keras 3 to be imported.
"""

import os
import warnings

import keras

if keras.__version__.partition(".")[0] in ("0", "1", "2"):
    raise ImportError(
        "keras_pe takes Keras 3, of `pip install 'keras>=3.11'`, with TensorFlow 2.18 "
        f"or later. Received: keras {keras.__version__}"
    )

# As TensorFlow reads it. With `import keras` everything works under it, so this is no
# error: other packages of the same process may need it.
if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
    warnings.warn(
        "TF_USE_LEGACY_KERAS is set, so `tf.keras` is Keras 2 (tf_keras), whose models "
        "take no layer of keras_pe: they refuse it, or do not train its weights. Make "
        "models with `import keras`, which is Keras 3 all the same, or unset the "
        "variable before TensorFlow is imported.",
        stacklevel=3,
    )


def refuse_keras_2(owner, *tensors):
    """Raise ValueError if one is of `tf_keras.Input`, or what became of it.

    Its models would make a layer of every operation, and know no weights of ours.
    """
    if keras.config.backend() != "tensorflow":
        return
    for tensor in tensors:
        if type(tensor).__module__.partition(".")[0] == "tf_keras":
            raise ValueError(
                f"{owner} is of Keras 3, and takes no tensor of Keras 2. Make the "
                "model with `import keras`: with TF_USE_LEGACY_KERAS set `tf.keras` is "
                f"Keras 2. Received: {tensor}"
            )
