"""The layers on several devices of JAX give the numbers of one device."""

import pytest
from positioned import LAYERS
from processes import run

pytestmark = pytest.mark.jax

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


@pytest.mark.parametrize("kind", ["data", "model"])
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*LAYERS], id="all"),
        *(pytest.param([name], id=name, marks=pytest.mark.long) for name in LAYERS),
    ],
)
def test_distribution(names, kind, tmp_path):
    """Saved, the model is loaded on one device and on all, and goes on."""
    printed = run(
        """
        import sys
        import jax
        import keras
        from keras import distribution
        from positioned import assert_alike, make, numbers, predict, train

        path, kind, *names = sys.argv[1:]
        assert len(jax.devices()) == 8
        alone = make(*names)
        expected = numbers(alone)

        if kind == "data":
            distributed = distribution.DataParallel()
        else:
            mesh = distribution.DeviceMesh((4, 2), ("batch", "model"))
            layout = distribution.LayoutMap(mesh)
            layout["ids/embeddings"] = (None, "model")
            layout["learned/embeddings"] = (None, "model")
            layout["relative/embeddings"] = (None, "model")
            layout[".*/(query|key|value)/kernel"] = (None, "model", None)
            layout[".*/attention_output/kernel"] = ("model", None, None)
            layout["hidden/kernel"] = (None, "model")
            distributed = distribution.ModelParallel(
                layout_map=layout, batch_dim_name="batch"
            )

        def assert_spread(model):
            for weight in model.weights:
                shards = weight.value.addressable_shards
                assert len(shards) == 8
                parts = weight.value.size // shards[0].data.size
                whole = kind == "data" or weight.path.endswith("bias")
                whole = whole or weight.path == "scores/kernel"
                assert parts == (1 if whole else 2), weight.path

        distribution.set_distribution(distributed)
        model = make(*names)
        assert_spread(model)
        assert_alike(numbers(model), expected)
        assert_spread(model)
        model.save(path)
        inside = keras.saving.load_model(path)
        assert_spread(inside)
        found = [predict(inside), train(inside, 2), predict(inside)]

        distribution.set_distribution(None)
        outside = keras.saving.load_model(path)
        assert_alike([predict(outside), found[0]], [expected[2]] * 2)
        assert_alike(found[1:], [train(alone, 2), predict(alone)])
        print("done")
        """,
        tmp_path / "model.keras",
        kind,
        *names,
        env=EIGHT,
    )
    assert printed.endswith("done\n")


def test_an_input_in_parts():
    """Along the batch, the steps or the features: so is what is compiled for it."""
    printed = run(
        """
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        import keras_pe

        mesh = Mesh(np.array(jax.devices()), ("part",))
        parted = [
            NamedSharding(mesh, PartitionSpec(*([None] * axis), "part"))
            for axis in range(3)
        ]
        x = np.random.default_rng(0).normal(size=(8, 600, 16)).astype("float32")
        start = jax.numpy.int32(70)
        positions = jax.numpy.arange(8 * 600).reshape(8, 600) % 700
        layers = [
            keras_pe.PositionalEncoding(),
            keras_pe.PositionalEncoding(max_length=700),
            keras_pe.LearnedPositionalEncoding(max_length=700),
            keras_pe.RotaryEmbedding(),
            keras_pe.AxialPositionalEncoding(),
            keras_pe.ALiBi(num_heads=8),
            keras_pe.RelativePositionBias(num_heads=8),
        ]
        tried = 0
        for layer in layers:
            bias = hasattr(layer, "num_heads")
            calls = [{}]
            if layer.name != "axial_positional_encoding":
                calls.append({"start_index": start})
            if layer.name != "axial_positional_encoding" and not bias:
                calls.append({"positions": positions})
            for call in calls:
                expected = np.array(layer(x, **call))
                for sharding in parted:
                    parts = jax.device_put(x, sharding)
                    found = jax.jit(lambda x, call: layer(x, **call))(parts, call)
                    assert bias or found.sharding.is_equivalent_to(sharding, 3)
                    error = np.abs(np.array(found) - expected).max()
                    assert error < 1e-6, (layer.name, call, sharding, error)
                    tried += 1
        print(tried)
        """,
        env=EIGHT,
    )
    assert printed.endswith("51\n")
