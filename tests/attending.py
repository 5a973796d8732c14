"""Attention with positions, as an encoder that the contract can be asked of."""

import keras

import keras_pe


@keras.saving.register_keras_serializable(package="keras_pe_tests")
class Attending(keras.layers.Layer):
    """Adds to its input what it attends to, with one of the ways to know positions."""

    def __init__(self, way, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.way, self.seed, self.supports_masking = way, seed, True
        policy = self.dtype_policy
        rotary = keras_pe.RotaryEmbedding(dtype=policy) if way == "rotary" else None
        self.attention = keras_pe.MultiHeadAttention(
            2,
            4,
            rotary=rotary,
            kernel_initializer=keras.initializers.RandomNormal(seed=seed),
            dtype=policy,
        )
        self.bias = None
        if way == "alibi":
            self.bias = keras_pe.ALiBi(num_heads=2, dtype=policy)
        elif way == "relative":
            initializer = keras.initializers.RandomNormal(seed=seed)
            self.bias = keras_pe.RelativePositionBias(
                num_heads=2, initializer=initializer, dtype=policy
            )

    def build(self, input_shape):
        self.attention.build(input_shape, input_shape)
        if self.bias is not None:
            self.bias.build(input_shape)

    def call(self, inputs, mask=None):
        bias = None if self.bias is None else self.bias(inputs)
        attended = self.attention(
            inputs, inputs, bias=bias, query_mask=mask, value_mask=mask
        )
        return inputs + attended

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "way": self.way, "seed": self.seed}
