"""The layer that adds the sine/cosine encoding of the positions to its input."""

import keras

from keras_pe.checks import check_layout, check_size, check_wavelength
from keras_pe.encoder import Encoder
from keras_pe.sinusoid_rows import Sinusoids, sinusoid_rows


@keras.saving.register_keras_serializable(package="keras_pe")
class PositionalEncoding(Encoder):
    """Add the sine/cosine encoding of the positions to the input: `inputs + P`.

    For embeddings on their way into attention, which does not know the order of its
    input. It adds, so `x + PositionalEncoding()(x)` would be `2 * x + P`: use the
    layer alone (keras-hub's `SinePositionEncoding` returns P and is to be added).
    `sinusoidal_encoding` gives P alone. It has no weights and, without `max_length`,
    no limit.

    `P[p, 2i] = sin(p / max_wavelength ** (2i / d_model))`, and `P[p, 2i + 1]` is the
    cosine of the same angle: the exponent `2i / d_model` of the paper, in the layout
    "interleaved". Tensor2tensor and fairseq have the layout "halves" and another
    exponent, `i / (d_model / 2 - 1)`: theirs are the rows of an even `d_model` above
    2 with `max_wavelength=10000 ** (d_model / (d_model - 2))`.

    >>> import numpy as np
    >>> layer = PositionalEncoding()
    >>> np.array(layer(np.ones((1, 2, 4), "float32"))).round(4)
    array([[[1.    , 2.    , 1.    , 2.    ],
            [1.8415, 1.5403, 1.01  , 2.    ]]], dtype=float32)

    Args:
        max_length: None for any length, or an integer of at least 1, the number of
            positions there are: then the table of `positional_encoding` is made
            once and sliced, and a later position is an error. Where it would exceed
            256 MiB, or `max_wavelength` is below 1, rows are made as without it.
        max_wavelength: Real number above 0: the slowest channels come close to a
            period of `2 * pi * max_wavelength` steps. 10000 is the paper's.
        layout: "interleaved" (sin, cos, sin, cos: the paper) or "halves" (all
            sines, then all cosines: the same rates in another order).
        **kwargs: `name`, `dtype`, `trainable`, as for every Keras layer.

    Call arguments:
        inputs: Float tensor `(batch, ..., time, d_model)`. `time` may be unknown.
        positions: Int or float tensor, array or list, `(time,)` or `(batch, time)`:
            the position of each step, also negative or fractional. Pass integers
            where you can: what a half-precision model has rounded stays so. None
            counts from `start_index`.
        start_index: The position of the first step: int, or int tensor of shape
            `()` or `(batch,)`. Only without `positions`.
        mask: Bool tensor `(batch, time)`, or None. It is not read, and passed on.

    Input shape:
        `(batch, ..., time, d_model)`, at least of rank 3, `d_model` known. An odd
        `d_model` has one sine more than cosines.

    Output shape:
        The input's.

    Precision and masks:
        The output has the layer's compute dtype. P is made in float32 from exact
        phases and rounded to that dtype once, so float16 and bfloat16 keep every
        position. A run of known length from a known start is bit for bit
        `positional_encoding` (without `max_length`: up to 4 MiB of it); any other way
        is within 3e-7 in float32 for integers below 2**30 in size, 1e-6 up to
        2**31 - 1. float64 is within 1e-9 up to 10**6 on TensorFlow and torch. Masks
        pass through. NaN and infinite positions give NaN in their own rows.

    Raises:
        ValueError: for an argument not as above; for inputs that are not float,
            dense, and of rank 3 or more; for `positions` or `start_index` of a shape
            that does not fit; for a position that does not exist (beyond
            `max_length` or int32). Where only a running TensorFlow graph knows, the
            last two are `tf.errors.InvalidArgumentError`; where a compiler drops
            that check, an error or rows of NaN, never a wrong row.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """

    def __init__(
        self,
        *,
        max_length=None,
        max_wavelength=10000.0,
        layout="interleaved",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if max_length is not None:
            max_length = check_size("max_length", max_length, maximum=2**31)
        self.max_length = max_length
        self.max_wavelength = check_wavelength(max_wavelength)
        self.layout = check_layout(layout)

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
        }

    def _encode(self, rows, d_model):
        encoding = Sinusoids(d_model, self.max_wavelength, self.layout)
        return sinusoid_rows(rows, encoding, self.compute_dtype, self.max_length)
