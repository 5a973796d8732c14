"""Positions for Keras models: the right numbers in every dtype and at every length."""

from keras_pe import legacy  # noqa: F401, before what needs Keras 3

# isort: split
from keras_pe import analysis, plots, serving, testing
from keras_pe.alibi import ALiBi
from keras_pe.attention import MultiHeadAttention
from keras_pe.axial import AxialPositionalEncoding
from keras_pe.functional import sinusoidal_encoding
from keras_pe.learned import LearnedPositionalEncoding
from keras_pe.positions import positions_from_mask, positions_from_segments
from keras_pe.recipe import get_angles, positional_encoding
from keras_pe.relative import RelativePositionBias
from keras_pe.rotary import RotaryEmbedding
from keras_pe.sinusoidal import PositionalEncoding

__version__ = "0.1.0"

__all__ = [
    "ALiBi",
    "AxialPositionalEncoding",
    "LearnedPositionalEncoding",
    "MultiHeadAttention",
    "PositionalEncoding",
    "RelativePositionBias",
    "RotaryEmbedding",
    "analysis",
    "get_angles",
    "plots",
    "positional_encoding",
    "positions_from_mask",
    "positions_from_segments",
    "serving",
    "sinusoidal_encoding",
    "testing",
]
