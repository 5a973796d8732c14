"""How often a classifier is right, as numbers and as a picture."""

import collections

from options import InputError


def evaluate(classifier, data, classes):
    import numpy as np
    from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

    labels = np.concatenate([label for _, label in data])
    probabilities = classifier.predict(data, verbose=0)
    if not np.isfinite(probabilities).all():
        raise InputError(
            "Training diverged: the probabilities are not finite. Try a smaller "
            "`--learning-rate`."
        )
    predicted = probabilities.argmax(-1)
    return {
        "accuracy": accuracy_score(labels, predicted),
        "macro_f1": f1_score(
            labels, predicted, labels=range(classes), average="macro", zero_division=0
        ),
        "confusion": confusion_matrix(
            labels, predicted, labels=range(classes)
        ).tolist(),
    }


def majority_accuracy(splits):
    """The test accuracy of always naming the training split's commonest class."""
    (commonest, _), *_ = collections.Counter(
        label for _, label in splits["training"]
    ).most_common(1)
    test = [label for _, label in splits["test"]]
    return test.count(commonest) / len(test)


def report(metrics):
    test = metrics["test"]
    print(f"test accuracy      {test['accuracy']:.4f}")
    print(f"test macro F1      {test['macro_f1']:.4f}")
    print(f"majority class     {metrics['majority_accuracy']:.4f}  (always that label)")
    print("confusion: true class, then how often each class was predicted")
    width = max(map(len, metrics["classes"]))
    for label, counts in zip(metrics["classes"], test["confusion"], strict=True):
        print(f"  {label:<{width}}", *(f"{count:>6}" for count in counts))


def plot_confusion(metrics, path):
    import numpy as np
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    # A `$` would start mathematics.
    classes = [label.replace("$", r"\$") for label in metrics["classes"]]
    size = min(3.5 + 0.5 * len(classes), 20)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.subplots()
    ConfusionMatrixDisplay(
        np.array(metrics["test"]["confusion"]), display_labels=classes
    ).plot(
        ax=axes,
        cmap="Blues",
        include_values=len(classes) <= 40,
        xticks_rotation=0 if len(classes) < 4 else 90,
    )
    axes.set_title(f"Test texts, accuracy {metrics['test']['accuracy']:.3f}")
    figure.savefig(path, dpi=150)
