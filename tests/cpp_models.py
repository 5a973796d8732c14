"""Writes SavedModels that show what TensorFlow's C++ runtime does."""

import tensorflow as tf

# What both NumPy and TensorFlow's `as_string` know, without string.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


def write(path, module, **functions):
    """Saves functions as signatures, each given with the specs of what it takes."""
    module.functions = {
        name: tf.function(function, specs)
        for name, (function, *specs) in functions.items()
    }
    tf.saved_model.save(module, str(path), module.functions)


def write_echo(path):
    """A signature for each dtype: what came, what it reads as, and its shape."""

    def numbers(x):
        return {"same": tf.identity(x), "text": tf.as_string(x), "shape": tf.shape(x)}

    def strings(x):
        return {"same": tf.identity(x), "length": tf.strings.length(x), "more": x + "!"}

    def two(a, b):
        return {"difference": a - b, "quotient": a / b}

    write(
        path,
        tf.Module(),
        string=(strings, tf.TensorSpec(None, "string", "x")),
        two=(two, tf.TensorSpec([None, 2], name="a"), tf.TensorSpec([], name="b")),
        nothing=(lambda: {"seven": tf.constant(7)},),
        **{name: (numbers, tf.TensorSpec(None, name, "x")) for name in DTYPES},
    )


def write_table(path, words):
    """A signature that gives words their line in the file `words`, else -1."""
    whole, line = (
        tf.lookup.TextFileIndex.WHOLE_LINE,
        tf.lookup.TextFileIndex.LINE_NUMBER,
    )
    file = tf.lookup.TextFileInitializer(str(words), tf.string, whole, tf.int64, line)
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(file, -1)
    spec = tf.TensorSpec([None], "string", "word")
    write(path, module, find=(lambda word: {"line": module.table.lookup(word)}, spec))


def write_compiled(path):
    """A signature with XLA in it, beside one without."""
    spec = tf.TensorSpec([None], name="x")
    compiled = tf.function(lambda x: x * 2, jit_compile=True)
    write(
        path,
        tf.Module(),
        compiled=(lambda x: {"y": compiled(x)}, spec),
        plain=(lambda x: {"y": x * 2}, spec),
    )


def write_held(path, model):
    """A Keras model as an attribute of a module: what not to do."""
    module = tf.Module()
    module.model = model
    spec = tf.TensorSpec([None, *model.inputs[0].shape[1:]], name="x")
    write(path, module, serving_default=(lambda x: {"y": module.model(x)}, spec))


def write_texts(path):
    """Signatures of texts in a row and in a column: lengths, and in capitals."""

    def measure(text):
        length = tf.strings.length(text, "UTF8_CHAR")
        return {"length": length, "upper": tf.strings.upper(text, "utf-8")}

    row, column = (tf.TensorSpec(s, "string", "text") for s in ([None], [None, 1]))
    numbers = tf.TensorSpec([None, 2], name="x")
    write(
        path,
        tf.Module(),
        serving_default=(measure, row),
        column=(measure, column),
        numbers=(lambda x: {"y": tf.matmul(x, [[1.0], [2.0]])}, numbers),
    )
