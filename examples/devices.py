"""The devices that an example trains on."""


def make_strategy(args):
    import tensorflow as tf

    if args.distribute == "none":
        return tf.distribute.get_strategy()
    # Without a GPU, all CPUs: one, unless TensorFlow was told to see more.
    kinds = map(tf.config.list_logical_devices, ("GPU", "CPU"))
    names = [device.name for device in next(filter(None, kinds))]
    print(f"replicas   {len(names):>7}")
    return tf.distribute.MirroredStrategy(names)


def evenly(data, replicas):
    """Batches that fall into equal parts: each is filled up with rows of its own.

    Keras 3.11 to 3.15 fails where the first one does not (`AddN` of two shapes).
    """
    import tensorflow as tf

    if replicas == 1:
        return data

    def fill(ids, labels):
        size = tf.shape(labels)[0]
        rows = tf.range(-(-size // replicas) * replicas) % size
        return tf.gather(ids, rows), tf.gather(labels, rows)

    return data.map(fill)
