"""The layer that adds the sine/cosine encoding of the places on a grid to its input."""

import keras
import numpy as np
from keras import ops

from keras_pe.arguments import check_shape, sizes_fit, standardize_positions
from keras_pe.checks import check_layout, check_size, check_wavelength
from keras_pe.encoder import Encoder
from keras_pe.rows import Rows, fit, rows_of_positions
from keras_pe.sinusoid_rows import Sinusoids, sinusoid_rows


@keras.saving.register_keras_serializable(package="keras_pe")
class AxialPositionalEncoding(Encoder):
    """Add the sine/cosine encoding of each axis of a grid to the input: `inputs + P`.

    For images, video and other grids on their way into attention: each axis has
    channels of its own, which hold where on it a step is. It adds, as its siblings do,
    has no weights and no limit. With one axis it is `PositionalEncoding`, which on a
    grid knows the last axis alone.

    `P[y, x] = [S[y], S[x]]`, where S is the encoding of `PositionalEncoding`, with as
    many channels as the axis has. The pairs of channels are split evenly over the axes,
    and the first ones take what is left: 10 channels are 6 and 4 on two axes, and 7 are
    4 and 3.

    >>> import numpy as np
    >>> layer = AxialPositionalEncoding()
    >>> np.array(layer(np.zeros((1, 2, 2, 4), "float32")))[0].round(2)
    array([[[0.  , 1.  , 0.  , 1.  ],
            [0.  , 1.  , 0.84, 0.54]],
    <BLANKLINE>
           [[0.84, 0.54, 0.  , 1.  ],
            [0.84, 0.54, 0.84, 0.54]]], dtype=float32)

    Args:
        axes: None for all axes between batch and features; or an axis, or a list of
            them in rising order, as integers: those that have positions. The others
            share them. Negative ones count from the end.
        max_wavelength: Real number above 0: the slowest channels of each axis come
            close to a period of `2 * pi * max_wavelength` steps. 10000 is the paper's.
        layout: "interleaved" (sin, cos, sin, cos) or "halves" (all sines, then all
            cosines), within the channels of an axis.
        **kwargs: `name`, `dtype`, `trainable`, as for every Keras layer.

    Call arguments:
        inputs: Float tensor `(batch, ..., d_model)`. All but `d_model` may be unknown.
        positions: Int or float tensor, array or list `(..., axes)`: the place of each
            step on each axis, also negative or fractional. In front of that it has the
            sizes of the grid, with the batch before or without. None counts from 0.
        mask: Bool tensor, or None. It is not read, and passed on.

    Input shape:
        `(batch, ..., d_model)`, at least of rank 3, `d_model` known and at least one
        less than twice the number of axes.

    Output shape:
        The input's.

    Precision and masks:
        As `PositionalEncoding` on each axis.

    Raises:
        ValueError: for an argument not as above; for an axis that the input has not, or
            that is its batch or its features; for inputs that are not float, dense and
            of rank 3 or more; for `positions` of another shape or beyond int32. Where
            only a running TensorFlow graph knows, the latter are
            `tf.errors.InvalidArgumentError`; where a compiler drops that check, an
            error or rows of NaN.

    References:
        Vaswani et al., 2017, "Attention Is All You Need", section 3.5, on each axis.
    """

    def __init__(
        self, *, axes=None, max_wavelength=10000.0, layout="interleaved", **kwargs
    ):
        super().__init__(**kwargs)
        self.axes = _check_axes(axes)
        self.max_wavelength = check_wavelength(max_wavelength)
        self.layout = check_layout(layout)

    def call(self, inputs, *, positions=None, mask=None):
        positions = self._check_positions(inputs, positions)
        shape, axes = ops.shape(inputs), self._axes_of(inputs.shape)
        if positions is None:
            table = self._grid(shape, axes)
        else:
            table = self._at(shape, axes, positions)
        combined = self._combine(inputs, table)
        return combined if positions is None else ops.reshape(combined, shape)

    def compute_output_spec(self, inputs, positions=None, mask=None):
        self._check_positions(inputs, positions)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "axes": None if self.axes is None else [*self.axes],
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
        }

    def _standardize(self, kwargs):
        if "start_index" in kwargs:
            raise ValueError(
                f"{self._owner} takes `positions` and no `start_index`: a place on a "
                "grid is no one number. "
                f"Received: start_index={kwargs['start_index']}"
            )
        if kwargs.get("positions") is not None:
            positions = standardize_positions(self._owner, kwargs["positions"])
            kwargs["positions"] = positions
        return kwargs

    def _check_shape(self, shape):
        super()._check_shape(shape)
        needed = 2 * len(self._axes_of(shape)) - 1
        if shape[-1] < needed:
            raise ValueError(
                f"{self._owner} needs a d_model of at least {needed}, for a channel or "
                f"two of each axis. Received: inputs of shape {tuple(shape)}"
            )

    def _axes_of(self, shape):
        """Return the axes of an input of that shape, counted from the front."""
        rank = len(shape)
        if self.axes is None:
            return list(range(1, rank - 1))
        axes = [axis + rank if axis < 0 else axis for axis in self.axes]
        if not all(0 < axis < rank - 1 for axis in axes) or axes != sorted({*axes}):
            raise ValueError(
                f"{self._owner}: `axes` must be in rising order and lie between batch "
                f"and features, in 1..{rank - 2}. "
                f"Received: axes={self.axes} for inputs of shape {tuple(shape)}"
            )
        return axes

    def _check_positions(self, inputs, positions):
        self._check_inputs(inputs)
        self._check_shape(inputs.shape)
        if positions is not None:
            positions = standardize_positions(self._owner, positions)
            wanted = self._sizes(inputs.shape)
            without_batch = {k: v for k, v in wanted.items() if k != "batch"}
            check_shape(self._owner, "positions", positions, [without_batch, wanted])
        return positions

    def _sizes(self, shape):
        axes = self._axes_of(shape)
        grid = {f"axis {axis}": shape[axis] for axis in axes}
        return {"batch": shape[0], **grid, "axes": len(axes)}

    def _widths(self, d_model, axes):
        """Return how many channels each axis has."""
        pairs, count = (d_model + 1) // 2, len(axes)
        widths = [2 * (pairs // count + (i < pairs % count)) for i in range(count)]
        widths[-1] -= d_model % 2
        return widths

    def _rows(self, rows, width):
        encoding = Sinusoids(width, self.max_wavelength, self.layout)
        return sinusoid_rows(rows, encoding, self.compute_dtype)

    def _grid(self, shape, axes):
        """Return P of a whole grid from 0, which broadcasts against the input."""
        d_model, before, table = shape[-1], 0, None
        for axis, width in zip(axes, self._widths(d_model, axes), strict=True):
            rows = self._rows(Rows(0, length=shape[axis]), width)
            # Beside the other axes' channels, to which it adds 0.
            rows = ops.pad(rows, [[0, 0], [before, d_model - before - width]])
            sizes = [1] * len(shape)
            sizes[axis], sizes[-1] = shape[axis], d_model
            rows = ops.reshape(rows, sizes)
            table = rows if table is None else table + rows
            before += width
        return table

    def _at(self, shape, axes, positions):
        """Return P of given positions, which broadcasts against the input."""
        sizes = self._sizes(shape)
        if len(positions.shape) == len(axes) + 1:
            del sizes["batch"]
        positions = ops.convert_to_tensor(positions)
        fits = sizes_fit(ops.shape(positions), sizes)
        positions = fit(self._owner, "positions", positions, sizes)
        rows = []
        for i, width in enumerate(self._widths(shape[-1], axes)):
            places = ops.take(positions, i, axis=-1)
            rows.append(self._rows(rows_of_positions(self._owner, places), width))
        table = ops.concatenate(rows, axis=-1)
        if fits is not True:
            # Where a compiler drops the check, another grid's places are no places.
            table = ops.where(fits, table, ops.cast(np.nan, table.dtype))
        batch = ops.shape(table)[0] if "batch" in sizes else 1
        middle = [shape[a] if a in axes else 1 for a in range(1, len(shape) - 1)]
        return ops.reshape(table, (batch, *middle, shape[-1]))


def _check_axes(axes):
    if axes is None:
        return None
    listed = list(axes) if isinstance(axes, (list, tuple)) else [axes]
    try:
        listed = [check_size("axes", axis, minimum=-(2**31)) for axis in listed]
    except ValueError:
        listed = []
    if not listed or len({*listed}) < len(listed):
        raise ValueError(
            "`axes` must be None, or one or more integers, none of them twice. "
            f"Received: axes={axes!r}"
        )
    return listed
