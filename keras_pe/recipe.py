"""The recipe: the two functions that Transformer tutorials share, in float64 NumPy.

`get_angles` and `positional_encoding`, name for name as in the article
"PositionEmbedding的多方面探究", which this package started from.
"""

import numpy as np

from keras_pe.checks import check_real, check_size


def get_angles(position, i, d_model):
    """Return the angles of positions `position` in channels `i`, in radians.

    The recipe's function: `position / 10000 ** (2 * (i // 2) / d_model)`, with
    NumPy's broadcasting.

    >>> import numpy as np
    >>> get_angles(np.arange(3)[:, np.newaxis], np.arange(4)[np.newaxis, :], 4)
    array([[0.  , 0.  , 0.  , 0.  ],
           [1.  , 1.  , 0.01, 0.01],
           [2.  , 2.  , 0.02, 0.02]])

    Args:
        position: Real array or number: positions, in steps.
        i: Integer array or number: channels, from 0. Channels `2k` and `2k + 1`
            share a rate.
        d_model: Integer of at least 1: the number of channels.

    Returns:
        float64, of the shape that `position` and `i` broadcast to. It is float64
        for every input; on integer arrays the recipe's usual arithmetic (with
        `np.float32(d_model)`) gives the same bits.

    Raises:
        ValueError: if `d_model` is not an integer of at least 1, or another argument
            is not real.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    return angles(position, i, d_model, 10000.0)


def positional_encoding(position, d_model):
    """Return the table of the first `position` positions as a TensorFlow tensor.

    The recipe's function, made in float64 and ended by `tf.cast`. TensorFlow is
    imported when this is called, not before. Each call gives a fresh tensor.

    >>> positional_encoding(2, 4).numpy().round(4)
    array([[[0.    , 1.    , 0.    , 1.    ],
            [0.8415, 0.5403, 0.01  , 1.    ]]], dtype=float32)

    Args:
        position: Integer of at least 0: the number of positions.
        d_model: Integer of at least 1: the number of channels. Where it is odd,
            there is one sine more than cosines.

    Returns:
        `tf.Tensor` `(1, position, d_model)`, float32: sines in the even channels,
        cosines in the odd ones.

    Raises:
        ValueError: if `position` or `d_model` is no such integer.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    import tensorflow as tf

    position = check_size("position", position, minimum=0)
    pos_encoding = sinusoids(np.arange(position), d_model)[np.newaxis, ...]
    return tf.cast(pos_encoding, dtype=tf.float32)


def angles(position, i, d_model, max_wavelength):
    """Return `get_angles` for any `max_wavelength`."""
    d_model = check_size("d_model", d_model)
    position = check_real("position", position).astype("float64")
    i = check_real("i", i).astype("float64")
    with np.errstate(all="ignore"):  # far from the channels: rates are 0 or infinite
        angle_rates = 1 / np.power(max_wavelength, (2 * (i // 2)) / d_model)
        return position * angle_rates


def sinusoids(positions, d_model, max_wavelength=10000.0, layout="interleaved"):
    """Return float64 `(time, d_model)`: the recipe's rows of `positions` `(time,)`."""
    d_model = check_size("d_model", d_model)
    channels = np.arange(d_model)
    angle_rads = angles(
        np.asarray(positions)[:, np.newaxis],
        channels[np.newaxis, :],
        d_model,
        max_wavelength,
    )
    # apply sin to even indices in the array; 2i
    angle_rads[:, 0::2] = np.sin(angle_rads[:, 0::2])
    # apply cos to odd indices in the array; 2i+1
    angle_rads[:, 1::2] = np.cos(angle_rads[:, 1::2])
    return angle_rads[:, channel_order(channels, layout)]


def channel_order(channels, layout):
    """Return interleaved `channels` in the order of `layout`."""
    if layout == "interleaved":
        return channels
    return np.concatenate([channels[0::2], channels[1::2]])
