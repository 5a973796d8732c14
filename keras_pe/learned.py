"""The layer that adds a row of weights for each position to its input."""

import keras
import numpy as np
from keras import ops

from keras_pe.checks import check_initializer, check_size, tensorflow_mode
from keras_pe.encoder import Encoder
from keras_pe.recipe import sinusoids
from keras_pe.turns import precision_of


@keras.saving.register_keras_serializable(package="keras_pe")
class LearnedPositionalEncoding(Encoder):
    """Add a trainable row for each position to the input: `inputs + E`.

    For embeddings on their way into attention, where the task is to say what a position
    means and no text is longer than `max_length`: the positions of BERT, GPT-2 and ViT.
    It costs `max_length * d_model` weights, and there is no row beyond them.
    `PositionalEncoding` has neither weights nor, unasked, a limit. It adds, as its
    siblings do; keras-hub's `PositionEmbedding` returns E and is to be added.

    `E[p]` is the row p of a table of weights, and between two rows what lies between
    them: `E[1.5] = (E[1] + E[2]) / 2`.

    >>> import numpy as np
    >>> layer = LearnedPositionalEncoding(max_length=3, initializer="sinusoidal")
    >>> np.array(layer(np.ones((1, 2, 4), "float32"))).round(4)
    array([[[1.    , 2.    , 1.    , 2.    ],
            [1.8415, 1.5403, 1.01  , 2.    ]]], dtype=float32)
    >>> [tuple(weight.shape) for weight in layer.resized(6).weights]
    [(6, 4)]

    Args:
        max_length: Integer of at least 1: the number of positions there are. A later
            one is an error.
        initializer: What the table starts from: "sinusoidal" for the table of
            `positional_encoding`, so that a model made with the fixed encoding goes on
            and adapts its positions; or any initializer of Keras, as its name, config
            or object. "uniform" lies within 0.05.
        **kwargs: `name`, `dtype`, `trainable`, as for every Keras layer.

    Call arguments:
        inputs: Float tensor `(batch, ..., time, d_model)`. `time` may be unknown.
        positions: Int or float tensor, array or list, `(time,)` or `(batch, time)`:
            the position of each step, from 0 to `max_length - 1`. Pass integers
            where you can: what a half-precision model has rounded stays so. None
            counts from `start_index`.
        start_index: The position of the first step: int, or int tensor of shape
            `()` or `(batch,)`. Only without `positions`.
        mask: Bool tensor `(batch, time)`, or None. It is not read, and passed on.

    Input shape:
        `(batch, ..., time, d_model)`, at least of rank 3, `d_model` known and the same
        at every call.

    Output shape:
        The input's.

    Precision and masks:
        The output has the layer's compute dtype, to which each row is rounded once.
        Under a mixed policy the weights are float32. Masks pass through. NaN and
        infinite positions give NaN in their own rows.

    Raises:
        ValueError: for an argument not as above; for inputs that are not float,
            dense, and of rank 3 or more; for `positions` or `start_index` of a shape
            that does not fit; for a position that does not exist; for weights of
            another length, which `resized` gives. Where only a running TensorFlow graph
            knows a position, it is `tf.errors.InvalidArgumentError`; where a compiler
            drops that check, an error or rows of NaN, never another position's row.

    References:
        Gehring et al., 2017, "Convolutional Sequence to Sequence Learning", section
        3.1; Devlin et al., 2019, "BERT: Pre-training of Deep Bidirectional
        Transformers for Language Understanding". Interpolated tables: Dosovitskiy et
        al., 2021, "An Image is Worth 16x16 Words", section 3.2.
    """

    def __init__(self, *, max_length, initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.max_length = check_size("max_length", max_length, maximum=2**31)
        if not (isinstance(initializer, str) and initializer == "sinusoidal"):
            initializer = check_initializer(initializer, "'sinusoidal' or ")
        self.initializer = initializer

    def build(self, input_shape):
        super().build(input_shape)
        initializer = self.initializer
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, input_shape[-1]),
            initializer=_sinusoidal if initializer == "sinusoidal" else initializer,
            # A half-precision table would be rounded before what lies between its rows.
            autocast=False,
        )

    def resized(self, max_length):
        """Return a new layer of another length, its table interpolated linearly.

        The first and the last row stay, and the rows between spread evenly over what
        lies between: for a model that was trained at one length and is to go on at
        another.

        >>> import numpy as np
        >>> layer = LearnedPositionalEncoding(max_length=3)
        >>> layer.build((None, None, 1))
        >>> layer.set_weights([np.array([[0.0], [1.0], [4.0]])])
        >>> layer.resized(5).get_weights()[0].ravel().tolist()
        [0.0, 0.5, 1.0, 2.5, 4.0]

        Args:
            max_length: Integer of at least 1.

        Returns:
            A built layer, with the name and the other arguments of this one.

        Raises:
            ValueError: If `max_length` is not as above, or the layer is not built.
        """
        if not self.built:
            raise ValueError(
                f"{self._owner} must be built before it is resized: call it once, or "
                "load its weights. Received: a layer without weights"
            )
        max_length = check_size("max_length", max_length, maximum=2**31)
        layer = type(self).from_config({**self.get_config(), "max_length": max_length})
        table = ops.convert_to_numpy(
            ops.cast(self.embeddings, precision_of(self.variable_dtype))
        )
        old, d_model = table.shape
        layer.build((None, None, d_model))
        at = np.linspace(0, old - 1, layer.max_length)
        columns = [np.interp(at, np.arange(old), column) for column in table.T]
        layer.embeddings.assign(np.stack(columns, axis=-1))
        return layer

    def get_config(self):
        initializer = self.initializer
        if initializer != "sinusoidal":
            initializer = keras.initializers.serialize(initializer)
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "initializer": initializer,
        }

    def load_own_variables(self, store):
        if "0" in store and tuple(store["0"].shape) != tuple(self.embeddings.shape):
            raise ValueError(
                f"{self._owner} takes weights of shape {tuple(self.embeddings.shape)}. "
                f"Received: weights of shape {tuple(store['0'].shape)}. To change the "
                "length of a model, load it as it was saved and put what `resized` "
                "returns in the place of this layer"
            )
        super().load_own_variables(store)

    def _check_shape(self, shape):
        super()._check_shape(shape)
        if self.built and shape[-1] != self.embeddings.shape[-1]:
            # Rows of one channel would else be added to all.
            raise ValueError(
                f"{self._owner} has weights for a d_model of "
                f"{self.embeddings.shape[-1]}. Received: inputs of shape {tuple(shape)}"
            )

    def _encode(self, rows, d_model):
        """Return E in the compute dtype, `(time, d_model)` or with a batch before."""
        table = ops.convert_to_tensor(self.embeddings)
        known = isinstance(rows.length, int)
        if isinstance(rows.whole, int) and (known or tensorflow_mode()):
            run = table[rows.whole : rows.whole + rows.length]
            # Where it is too short, that must not broadcast.
            run = run if known else ops.reshape(run, (rows.length, d_model))
            return ops.cast(run, self.compute_dtype)
        rows = rows.spread()
        index, fraction = rows.whole, rows.fraction
        found = ops.take(table, index, axis=0)
        found = ops.cast(found, precision_of(self.compute_dtype))
        if fraction is not None:
            after = ops.minimum(index + 1, self.max_length - 1)
            after = ops.cast(ops.take(table, after, axis=0), found.dtype)
            fraction = ops.expand_dims(ops.cast(fraction, found.dtype), -1)
            between = found * (1 - fraction) + after * fraction
            found = ops.where(fraction == 0, found, between)
        # Of an index too large a gather makes the last row, unasked.
        valid = ops.expand_dims(rows.valid, -1)
        found = ops.where(valid, found, ops.cast(np.nan, found.dtype))
        return ops.cast(found, self.compute_dtype)


def _sinusoidal(shape, dtype=None):
    table = sinusoids(np.arange(shape[0]), shape[1])
    # A half type rounds the float32 rows, as those of the fixed encoding.
    return ops.convert_to_tensor(table.astype(precision_of(dtype)), dtype)
