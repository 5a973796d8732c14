"""Training, and how it went."""


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
        axes.legend()
    figure.savefig(path, dpi=150)
