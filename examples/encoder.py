"""The part of a model that knows positions: from ids to features."""


class Encoder:
    """Turns ids `(batch, time)` into normalized features, `--dim` for each.

    The id 0 is padding, and masked. A causal encoder takes texts without padding, looks
    only back, and can also read a text in steps.

    Args:
        vocabulary: How many ids there are.
        args: The options of `add_options`.
        causal: Whether a step sees only those before it, and itself.
    """

    def __init__(self, vocabulary, args, causal=False):
        import keras
        from keras import layers

        import keras_pe

        self.causal, self.heads, self.dim = causal, args.heads, args.dim
        # Keras's default (uniform within 0.05) starts at 4 % of the sinusoids' root
        # mean square, 0.707. Starting as large as they are overfits: on the reviews,
        # validation losses were 0.42 for 0.7, 0.39 for 0.1 and 0.38 for 0.03. So small,
        # but visible.
        small = keras.initializers.RandomNormal(stddev=0.1)
        self.embed = layers.Embedding(vocabulary, args.dim, small, mask_zero=not causal)
        self.add_rows = self.rotary = self.bias = None
        if args.encoding == "sinusoidal":
            self.add_rows = keras_pe.PositionalEncoding()
        elif args.encoding == "learned":
            # Starts as small as the embeddings, and for their reason.
            small = keras.initializers.RandomNormal(stddev=0.1)
            self.add_rows = keras_pe.LearnedPositionalEncoding(
                max_length=args.length, initializer=small
            )
        elif args.encoding == "rotary":
            self.rotary = keras_pe.RotaryEmbedding()
        elif args.encoding == "alibi":
            self.bias = keras_pe.ALiBi(num_heads=args.heads)
        elif args.encoding == "relative":
            self.bias = keras_pe.RelativePositionBias(
                num_heads=args.heads, bidirectional=not causal
            )
        self.drop = layers.Dropout(args.dropout)
        self.blocks = [Block(args, self.rotary) for _ in range(args.blocks)]
        self.normalize = layers.LayerNormalization()

    def __call__(self, ids):
        bias = None if self.bias is None else self.bias(ids)
        x = self.embed(ids)
        x = x if self.add_rows is None else self.add_rows(x)
        x = self.drop(x)
        for block in self.blocks:
            x, _ = block(x, bias=bias, use_causal_mask=self.causal)
        return self.normalize(x)

    def init_caches(self, batch_size, slots):
        """Return a cache for each block, of what a causal encoder has read."""
        return [block.attend.init_cache(batch_size, slots) for block in self.blocks]

    def step(self, ids, start_index, caches):
        """Return the features of the next ids, and the caches with these in them."""
        x = self.embed(ids)
        if self.add_rows is not None:
            x = self.add_rows(x, start_index=start_index)
        bias = None
        if self.bias is not None and caches:
            # Of the new steps to all slots: only the sizes of both count.
            slots = caches[0]["mask"]
            bias = self.bias(ids, slots, start_index=start_index)
        x, after = self.drop(x), []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(
                x,
                bias=bias,
                use_causal_mask=True,
                start_index=start_index,
                cache=cache,
            )
            after.append(cache)
        return self.normalize(x), after


class Block:
    """Attention, then a dense net of twice the size, each with a way around it."""

    def __init__(self, args, rotary):
        from keras import layers

        import keras_pe

        self.before_attention = layers.LayerNormalization()
        self.attend = keras_pe.MultiHeadAttention(
            args.heads, args.dim // args.heads, rotary=rotary
        )
        self.drop_attended = layers.Dropout(args.dropout)
        self.before_dense = layers.LayerNormalization()
        self.widen = layers.Dense(2 * args.dim, activation="gelu")
        self.narrow = layers.Dense(args.dim)
        self.drop = layers.Dropout(args.dropout)

    def __call__(self, x, **call):
        """Return features, and the cache if there is one among the arguments."""
        from keras import layers

        y, cache = self.before_attention(x), None
        y = self.attend(y, y, **call)
        if "cache" in call:
            y, cache = y
        # Not `x + y`, which loses the mask.
        x = layers.Add()([x, self.drop_attended(y)])
        y = self.widen(self.before_dense(x))
        return layers.Add()([x, self.drop(self.narrow(y))]), cache
