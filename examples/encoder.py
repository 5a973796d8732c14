"""The part of a model that knows positions: from ids to features."""


def encode(ids, vocabulary, args):
    """Ids of shape (batch, length) to normalized features, `--dim` for each."""
    import keras
    from keras import layers

    import keras_pe

    # Keras's default (uniform within 0.05) starts at 4 % of the sinusoids' root mean
    # square, 0.707. Starting as large as they are overfits: on the reviews, validation
    # losses were 0.42 for 0.7, 0.39 for 0.1 and 0.38 for 0.03. So small, but visible.
    embeddings = keras.initializers.RandomNormal(stddev=0.1)
    x = layers.Embedding(vocabulary, args.dim, embeddings, mask_zero=True)(ids)
    if args.encoding == "sinusoidal":
        x = keras_pe.PositionalEncoding()(x)
    elif args.encoding == "learned":
        # Starts as small as the embeddings, and for their reason.
        rows = keras.initializers.RandomNormal(stddev=0.1)
        x = keras_pe.LearnedPositionalEncoding(
            max_length=args.length, initializer=rows
        )(x)
    rotary = keras_pe.RotaryEmbedding() if args.encoding == "rotary" else None
    bias = None
    if args.encoding == "alibi":
        bias = keras_pe.ALiBi(num_heads=args.heads)(ids)
    elif args.encoding == "relative":
        bias = keras_pe.RelativePositionBias(num_heads=args.heads)(ids)
    x = layers.Dropout(args.dropout)(x)
    for _ in range(args.blocks):
        y = layers.LayerNormalization()(x)
        attend = keras_pe.MultiHeadAttention(
            args.heads, args.dim // args.heads, rotary=rotary
        )
        y = attend(y, y, bias=bias)
        y = layers.Dropout(args.dropout)(y)
        # Not `x + y`, which loses the mask.
        x = layers.Add()([x, y])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(2 * args.dim, activation="gelu")(y)
        y = layers.Dense(args.dim)(y)
        y = layers.Dropout(args.dropout)(y)
        x = layers.Add()([x, y])
    return layers.LayerNormalization()(x)
