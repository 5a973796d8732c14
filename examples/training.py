"""Training that a kill only sends back to its last whole epoch, and its history."""

from devices import evenly
from options import InputError


def set_up(args):
    """Set what decides the numbers of all that follows."""
    import keras

    keras.config.set_dtype_policy(args.precision)
    keras.utils.set_random_seed(args.seed)


def fit(model, training, validation, args, backup, from_logits=False):
    """Train a model of probabilities of classes, or of logits; return its history."""
    strategy = model.distribute_strategy
    with strategy.scope():
        compile_model(model, args, len(training), from_logits)
    replicas = strategy.num_replicas_in_sync
    training, validation = evenly(training, replicas), evenly(validation, replicas)
    return fit_with_backup(model, training, validation, args.epochs, backup)


def compile_model(model, args, steps, from_logits=False):
    """Make a model of classes ready to train, `steps` batches an epoch."""
    import keras

    decay = keras.optimizers.schedules.CosineDecay(
        args.learning_rate, decay_steps=args.epochs * steps
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(decay),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits),
        metrics=["accuracy"],
    )


def fit_with_backup(model, training, validation, epochs, backup):
    """Train a compiled model while it gets better, and return its history.

    If `backup` has a state, training goes on from there, to the same result as if it
    had never stopped.

    Args:
        model: A built and compiled Keras model.
        training: Batches, in an order that its own seeds give.
        validation: Batches.
        epochs: Passes over the training batches at most.
        backup: A `Backup`.
    """
    import keras

    stop = keras.callbacks.EarlyStopping(
        "val_loss", patience=3, restore_best_weights=True
    )
    history, best, best_weights, epoch, ended = {}, [], [], 0, False
    loaded = backup.load()
    if loaded is not None:
        state, arrays = loaded
        history, best, epoch, ended = (
            state[name] for name in ("history", "best", "epoch", "ended")
        )
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        variables = all_variables(model)
        for variable, array in zip(variables, arrays, strict=False):
            variable.assign(array)
        best_weights = arrays[len(variables) :]
        if not ended:
            pass_over(training, epoch)
        print(
            f"Training goes on after epoch {epoch} of {epochs}"
            + (", which was its last" if ended else "")
            + f": {backup.path}"
        )

    def restore(logs=None):
        # EarlyStopping forgets all as training begins, so this comes after.
        if best:
            stop.best, stop.best_epoch, stop.wait = best
            stop.best_weights = best_weights

    def save(epoch, logs):
        for name, value in logs.items():
            history.setdefault(name, []).append(float(value))
        state = {
            "history": history,
            "best": (float(stop.best), stop.best_epoch, stop.wait),
            "epoch": epoch + 1,
            "ended": bool(model.stop_training) or epoch + 1 == epochs,
        }
        arrays = [variable.numpy() for variable in all_variables(model)]
        try:
            backup.save(state, [*arrays, *stop.best_weights])
        except InputError:
            print(flush=True)  # the end of Keras's line of progress
            raise

    keep = keras.callbacks.LambdaCallback(on_train_begin=restore, on_epoch_end=save)
    model.fit(
        training,
        validation_data=validation,
        initial_epoch=epochs if ended else epoch,
        epochs=epochs,
        callbacks=[stop, keep],
        shuffle=False,  # The dataset does it.
    )
    return history


def pass_over(batches, epochs):
    """Take batches as `fit` does, whose passes each draw another order, for nothing."""
    import keras

    class Idle(keras.Model):
        def train_step(self, data):
            return {"loss": keras.ops.zeros(())}

    model = Idle()
    model.compile(jit_compile=False)
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0)


def all_variables(model):
    """Return weights, the seeds of the dropout layers, and the optimizer's state."""
    return [*model.variables, *model.optimizer.variables]


def plot_history(history, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    epochs = range(1, len(history["loss"]) + 1)
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        axes.plot(epochs, history[name], "o-", label="training")
        axes.plot(epochs, history[f"val_{name}"], "o-", label="validation")
        axes.set(xlabel="epoch", ylabel=name)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    found = axes.get_legend_handles_labels()
    figure.legend(*found, loc="outside lower center", ncols=len(found), frameon=False)
    figure.savefig(path, dpi=150)
