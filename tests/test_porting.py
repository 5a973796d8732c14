"""docs/porting.md: its layers have the positions of the models that it names."""

import re
from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_pe

PAGE = (Path(__file__).parents[1] / "docs" / "porting.md").read_text("utf-8")
ROWS = re.findall(r"^\| ([\w.,' -]+) \| `(\w+\(.*?\))` \| (.*) \|$", PAGE, re.MULTILINE)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def layer_of(model, words="", **names):
    """The layer of the one row that has `words`, made of the code that stands there."""
    (code,) = (code for name, code, more in ROWS if name == model and words in more)
    exec(BLOCKS[0], scope := {})
    return eval(f"keras_pe.{code}", scope | names)


def wave(*shape):
    return np.sin(1 + np.arange(np.prod(shape))).reshape(shape).astype("float32")


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def array(tensor):
    return ops.convert_to_numpy(tensor).astype("float64")


def assert_close(result, expected, error=3e-7):
    np.testing.assert_allclose(array(result), expected, rtol=0, atol=error)


def with_table(layer, table):
    """The layer with `table` as its first rows."""
    layer.build((None, None, table.shape[-1]))
    rows = np.zeros((layer.max_length, table.shape[-1]), "float32")
    rows[: len(table)] = table
    layer.set_weights([rows])
    return layer


def test_the_page_has_rows():
    assert len(ROWS) == 20


@pytest.mark.parametrize(
    ("model", "max_length"),
    [("BERT", 512), ("GPT-2", 1024), ("BART", 1026), ("ViT", 197)],
)
def test_tables_are_as_long_as_those_of_the_models(model, max_length):
    # `max_position_embeddings` of the default configs of transformers 5.24.0, BART with
    # the 2 before, ViT with 14 * 14 patches and the class token.
    assert layer_of(model).max_length == max_length


# Learned rows. All values are of transformers 5.24.0 on torch 2.13.0; all tables of
# theirs are `wave` of their shape.


def test_bert():
    # `BertEmbeddings` of modeling_bert: 6 tokens, 8 positions, 2 types, 4 channels;
    # ids 5, 1, 3 of types 0, 0, 1.
    x = wave(6, 4)[[5, 1, 3]] + wave(2, 4)[[0, 0, 1]]
    x = array(with_table(layer_of("BERT"), wave(8, 4))(x[None]))[0]
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    expected = [
        [1.1147238, 0.75225383, -0.45983136, -1.40714633],
        [-1.57599807, -0.13834752, 0.97464532, 0.7397002],
        [-1.61256289, 0.24678394, 1.13347936, 0.23229975],
    ]
    assert_close((x - mean) / np.sqrt(variance + 1e-12), expected, 1e-6)


def test_gpt2():
    # `GPT2LMHeadModel` of modeling_gpt2: `hidden_states[0]` of the ids 5, 1, 3.
    layer = with_table(layer_of("GPT-2"), wave(8, 4))
    expected = [
        [1.67812657, 0.90044612, -0.70510042, -1.66238093],
        [-1.91784859, -0.55883098, 1.31397319, 1.97871649],
        [0.83228552, 0.44658625, -0.34970236, -0.82447624],
    ]
    assert_close(layer(wave(6, 4)[None, [5, 1, 3]])[0], expected)


def test_bart():
    # `BartLearnedPositionalEmbedding(6, 4)` of modeling_bart, for two steps.
    # `RobertaEmbeddings` of modeling_roberta adds the same, with 8 positions.
    layer = with_table(layer_of("BART"), wave(8, 4))
    expected = [
        [0.41211849, -0.54402113, -0.99999022, -0.53657293],
        [0.42016703, 0.99060738, 0.65028787, -0.28790331],
    ]
    zeros = np.zeros((1, 2, 4), "float32")
    assert_close(layer(zeros, start_index=2)[0], expected)


def test_vit():
    # `ViTEmbeddings` of modeling_vit for 4 patches of 4 pixels, which it takes as they
    # are: 0.0, 0.1, 0.4, 0.5 is the first.
    pixels = (np.arange(16) / 10).reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
    x = np.concatenate([wave(1, 4), pixels])[None].astype("float32")
    expected = [
        [1.68294191, 1.81859481, 0.28224, -1.513605],
        [-0.95892429, -0.1794155, 1.05698657, 1.48935822],
        [0.61211848, -0.24402112, -0.3999902, 0.16342705],
        [1.22016704, 1.89060736, 1.85028791, 1.01209664],
        [0.03860253, 0.34901279, 1.54987717, 2.41294527],
    ]
    assert_close(with_table(layer_of("ViT"), wave(5, 4))(x)[0], expected)


# In attention.


def test_bloom():
    # `build_alibi_tensor` of modeling_bloom for 16 heads and 6 keys, less that of the
    # last key: heads 0, 7 and 15.
    result = array(layer_of("BLOOM")(np.zeros((1, 6))))[0, [0, 7, 15], 5]
    steps = np.arange(5, -1, -1)
    expected = [-0.70710683 * steps, -0.0625 * steps, -0.00390625 * steps]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


def test_t5():
    # `T5Attention.compute_bias(40, 40)` of modeling_t5, head 3, with the weights
    # `wave(32, 8)`: of the default config, and of that with `is_decoder`.
    queries, keys = [0, 20, 39, 39, 0, 5], [0, 5, 0, 25, 20, 39]
    encoder = layer_of("T5")
    decoder = keras_pe.RelativePositionBias.from_config(
        {**encoder.get_config(), "bidirectional": False}
    )
    for layer, expected in (
        (encoder, [-0.7568025, 0.56610763, -0.50636566, 0.56610763,
                   -0.9983471, 0.97262305]),
        (decoder, [-0.7568025, -0.99568701, -0.80115265, 0.23666139,
                   -0.7568025, -0.7568025]),
    ):  # fmt: skip
        layer.build((None, None))
        layer.set_weights([wave(32, 8)])
        result = layer(np.zeros((1, 40)))
        result = array(ops.stop_gradient(result))[0, 3, queries, keys]
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


# Images.


def grid(layer, *sizes, positions=None):
    zeros = np.zeros((1, *sizes), "float32")
    return array(layer(zeros, positions=positions)).reshape(-1, sizes[-1])


def blocks(y, x, d):
    """The sines and the cosines of y, then of x, at the rates of a quarter of d."""
    rates = [10000.0 ** (-i / (d // 4)) for i in range(d // 4)]
    angles = [[place * rate for rate in rates] for place in (y, x)]
    return [wave(angle) for angle in angles for wave in (np.sin, np.cos)]


def test_mae():
    # `ViTMAEEmbeddings` of modeling_vit_mae for 3 x 3 patches, 8 channels: the rows of
    # the patches 0, 1, 3, 8. Row 0 is the class token's, zeros. MAE's own
    # `get_2d_sincos_pos_embed` has `meshgrid(grid_w, grid_h)` and so x first as well.
    y, x = np.indices((3, 3))
    rows = grid(layer_of("MAE"), 3, 3, 8, positions=np.stack([x, y], axis=-1))
    expected = [
        [0, 0, 1, 1, 0, 0, 1, 1],
        [0.84147096, 0.00999983, 0.54030228, 0.99994999, 0, 0, 1, 1],
        [0, 0, 1, 1, 0.84147096, 0.00999983, 0.54030228, 0.99994999],
        [0.90929741, 0.01999867, -0.41614684, 0.99980003] * 2,
    ]
    assert_close(rows[[0, 1, 3, 8]], expected)


def test_moco_v3():
    # `build_2d_sincos_position_embedding` of facebookresearch/moco-v3, vits.py: its
    # grid counts `grid_w` in the outer loop, as patches count y.
    rows = [np.concatenate(blocks(w, h, 16)) for w in range(3) for h in range(3)]
    assert_close(grid(layer_of("MoCo v3"), 3, 3, 16), rows)


def test_timm():
    # `build_sincos2d_pos_embed` of timm, layers/pos_embed_sincos.py.
    places = [(y, x) for y in range(2) for x in range(3)]
    layer = keras_pe.AxialPositionalEncoding(layout="halves")
    expected = [np.concatenate(blocks(y, x, 16)) for y, x in places]
    assert_close(grid(layer, 2, 3, 16), expected)
    # Without `interleave_sin_cos`: as a fixed table.
    table = [
        np.concatenate([blocks(y, x, 16)[i] for i in (0, 2, 1, 3)]) for y, x in places
    ]
    layer = keras_pe.LearnedPositionalEncoding(max_length=6, trainable=False)
    layer = with_table(layer, np.array(table))
    assert_close(layer(np.zeros((1, 6, 16), "float32"))[0], table)
    assert not layer.trainable_weights


# Rotary. Llama 2, "llama3" and YaRN of small numbers, and GPT-J, are in test_rotary.py;
# here they have the sizes of the models.

CHANNELS = [33, 40, 84, 97, 104]
# transformers 5.24.0 on torch 2.13.0: `LlamaRotaryEmbedding`, `Qwen2RotaryEmbedding`,
# `Qwen3RotaryEmbedding` (these two are the same) and `apply_rotary_pos_emb`. `CHANNELS`
# of the input `wave(128)` at the positions 50 and 1000.
TURNED = {
    "Llama 2": [
        [0.72083759, -0.00382748, 0.43760377, -0.29847705, -0.98340487],
        [0.01552239, 0.13851437, -0.42628142, 0.78003484, 0.97360861],
    ],
    "Llama 3": [
        [0.56121498, -0.14529979, 0.49719045, -0.54197145, -0.97261906],
        [0.73897642, 0.11014879, -0.51404977, 0.25021833, -0.97722423],
    ],
    "Llama 3.1": [
        [0.53798234, -0.15695888, 0.49719045, -0.56504017, -0.97080576],
        [0.67981201, -0.12526505, -0.51404977, -0.3828198, -0.9754017],
    ],
    "Qwen2, Qwen3": [
        [0.55174977, -0.14998709, 0.37905908, -0.55160439, -0.97190732],
        [0.78003764, 0.01555888, 0.45518255, -0.01538143, -0.9832893],
    ],
    "Qwen, YaRN": [
        [0.61697531, -0.17815557, 0.43160781, -0.63914073, -1.10547888],
        [0.82653666, -0.13132164, 0.51828426, -0.32557106, -1.11201489],
    ],
}


@pytest.mark.parametrize("model", TURNED)
def test_turned_queries(model):
    x = np.broadcast_to(wave(128), (1, 2, 3, 128))
    result = array(layer_of(model)(x, positions=[50, 1000]))
    # Theirs have float32 angles, and are up to 5e-6 off.
    assert_close(result[0, :, 0, CHANNELS].T, TURNED[model], 1e-5)


def test_gpt_neox():
    # As there, `GPTNeoXRotaryEmbedding` of its default config: at the position 5.
    x = np.broadcast_to(wave(96), (1, 1, 1, 96))
    result = array(layer_of("GPT-NeoX")(x, positions=[5]))[0, 0, 0]
    assert_close(result[24:], wave(96)[24:])
    expected = [
        [0.64160192, -1.34462881, -0.50581133, -0.52612847, -0.71209276, -0.19705459],
        [0.64867479, 0.96790612, 0.40308216, -0.54397011, -0.99802363, -0.53559715],
        [-0.68772143, -0.00991124, 0.43237025, -0.61548936, -1.15617681, -0.77667516],
        [0.18252555, 0.93565834, 0.84104645, -0.01157129, -0.84853894, -0.90615582],
    ]
    assert_close(result[:24].reshape(4, 6), expected, 1e-6)


def test_gpt_j():
    layer = layer_of("GPT-J")
    x = numbers(1, 3, 2, 256)
    result = array(layer(x))
    rates = [10000.0 ** (-i / 32) for i in range(32)]
    turns = np.exp(1j * np.arange(3)[:, None, None] * np.array(rates))
    pairs = x[..., :64].astype("float64").view("complex128") * turns
    assert_close(result[..., :64], pairs.view("float64"), 2e-6)
    assert_close(result[..., 64:], x[..., 64:])


def test_weights_of_meta_and_of_transformers():
    # Meta's llama/model.py turns complex numbers, `x[2i] + 1j * x[2i + 1]`; `permute`
    # of transformers' convert_llama_weights_to_hf.py reorders for the halves.
    exec(next(code for code in BLOCKS if "to_halves" in code), scope := {})
    width, heads, dim = 12, 3, 8
    x, weights = numbers(1, 5, width), 0.1 * numbers(2, heads * dim, width)
    turns = np.exp(1j * np.arange(5)[:, None, None] * 10000.0 ** (-np.arange(4) / 4))

    def scores(turn, weights):
        query, key = (turn((x @ w.T).reshape(1, 5, heads, dim)) for w in weights)
        return np.einsum("bqhd,bkhd->bhqk", query, key)

    def as_meta(x):
        pairs = x.astype("float64").view("complex128") * turns
        return pairs.view("float64")

    def ours(**arguments):
        return lambda x: array(keras_pe.RotaryEmbedding(**arguments)(x))

    truth = scores(as_meta, weights)
    assert_close(scores(ours(layout="interleaved"), weights), truth, 1e-5)
    permuted = [scope["to_halves"](weight, heads) for weight in weights]
    assert_close(scores(ours(), permuted), truth, 1e-5)
    assert np.abs(scores(ours(), weights) - truth).max() > 0.01


# Sines and cosines.


def encode(layer, *shape, **call):
    return array(layer(np.zeros((1, *shape), "float32"), **call))[0]


def test_tutorial():
    # `positional_encoding` of tensorflow/text, docs/tutorials/transformer.ipynb.
    half = 8
    rows = []
    for position in range(50):
        angles = [position / 10000.0 ** (i / half) for i in range(half)]
        rows.append([*np.sin(angles), *np.cos(angles)])
    assert_close(encode(layer_of("TensorFlow's tutorial"), 50, 16), rows)


def timing_signal(positions, d):
    # `get_timing_signal_1d` of tensorflow/tensor2tensor, layers/common_attention.py,
    # and `SinusoidalPositionalEmbedding.get_embedding` of facebookresearch/fairseq.
    half, rows = d // 2, []
    for position in positions:
        angles = [position / 10000.0 ** (i / (half - 1)) for i in range(half)]
        rows.append([*np.sin(angles), *np.cos(angles)] + [0.0] * (d % 2))
    return np.array(rows)


@pytest.mark.parametrize("d", [4, 6, 64, 512])
def test_tensor2tensor_and_fairseq(d):
    layer = layer_of("tensor2tensor, fairseq", d=d)
    truth = timing_signal(range(1500), d)
    assert_close(encode(layer, 1500, d), truth)
    assert_close(encode(layer, 1500, d, start_index=np.array(0)), truth)


def test_tensor2tensor_and_fairseq_of_odd_width():
    layer = layer_of("tensor2tensor, fairseq", d=6)
    rows = np.pad(encode(layer, 9, 6), [(0, 0), (0, 1)])
    assert_close(rows, timing_signal(range(9), 7))


def test_tensor2tensor_on_a_grid():
    # `add_timing_signal_nd` of the same file.
    layer = keras_pe.AxialPositionalEncoding(
        layout="halves", max_wavelength=10000 ** (8 / (8 - 2))
    )
    rows = timing_signal(range(4), 8)
    expected = [[*rows[y], *rows[x]] for y in range(3) for x in range(4)]
    assert_close(grid(layer, 3, 4, 16), expected)


def test_fairseq_counts_from_2():
    # `make_positions` of facebookresearch/fairseq, fairseq/utils.py.
    layer = layer_of("tensor2tensor, fairseq", d=8)
    mask = np.array([[False, True, True], [True, True, True]])
    positions = keras_pe.positions_from_mask(mask) + 2
    result = array(layer(np.zeros((2, 3, 8), "float32"), positions=positions))
    truth = timing_signal(range(6), 8)
    assert_close(result[0, 1:], truth[2:4])
    assert_close(result[1], truth[2:5])
    assert_close(encode(layer, 3, 8, start_index=2), truth[2:5])


# keras-hub 0.32.0 on TensorFlow 2.21.


def test_keras_hub_sines():
    # `SinePositionEncoding(max_wavelength=500)`, 5 channels, the positions 1 and 8.
    layer = layer_of("keras-hub", "SinePositionEncoding")
    layer = type(layer).from_config({**layer.get_config(), "max_wavelength": 500})
    expected = [
        [0.84147096, 0.54030228, 0.08315917, 0.99653625, 0.00693139],
        [0.98935825, -0.14550003, 0.61787921, 0.78627306, 0.05542317],
    ]
    assert_close(encode(layer, 9, 5)[[1, 8]], expected)


def test_keras_hub_learned_rows():
    # `PositionEmbedding(4)` with the weights `wave(4, 2)`, from `start_index=2`.
    layer = layer_of("keras-hub", "PositionEmbedding")
    assert layer.get_config()["initializer"]["class_name"] == "GlorotUniform"
    layer = with_table(layer, wave(4, 2))
    expected = [[-0.95892429, -0.27941549], [0.65698659, 0.98935825]]
    assert_close(encode(layer, 2, 2, start_index=2), expected)


def keras_hub_arguments():
    """By the left cell of the page's second table: the code in the right one."""
    section = PAGE.split("## keras-hub\n")[1]
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)`", section, re.MULTILINE)
    return {left: f"dict({right})" for left, right in rows}


# `RotaryEmbedding` of these arguments, with s = 3 and n = 32: head 0 of the input
# `wave(1, 3, 2, 8)`, steps 1 and 2, at the positions 5 and 20.
HUB = {
    "scaling_factor=s": [
        [-0.74078518, -0.73911256, 0.16395941, 0.91445339,
         -1.03707039, -0.13331454, -0.84360504, -0.90405554],
        [1.1680665, 0.23253398, -0.49143693, -0.99672419,
         -0.22267786, 0.56008106, 0.93313003, 0.73848474]],
    'scaling_factor=s, rope_type="dynamic"': [
        [-1.15336835, -0.74495786, 0.15964593, 0.91399109,
         -0.54223537, -0.09538349, -0.844432, -0.90452278],
        [-0.73078603, 0.34139132, -0.472260, -0.99521238,
         -0.93803883, 0.50121331, 0.94298065, 0.74052078]],
    "denominator_dim=n": [
        [0.52957726, 0.71336067, 0.84462512, 1.27843761,
         1.15923488, -0.23489723, 0.15862109, 0.13834232],
        [0.99556112, 0.41860199, -0.46767724, 1.20800567,
         0.650248409, -0.43878835, 0.94526184, -0.28203079]],
}  # fmt: skip


@pytest.mark.parametrize("arguments", HUB)
def test_keras_hub_rotary(arguments):
    theirs = layer_of("keras-hub", "`RotaryEmbedding()`").get_config()
    code = keras_hub_arguments()[arguments]
    names = {"s": 3.0, "dim": 8, "n": 32, "w": theirs["max_wavelength"]}
    layer = keras_pe.RotaryEmbedding(**theirs | eval(code, names))
    result = array(layer(wave(1, 3, 2, 8), positions=[0, 5, 20]))
    assert_close(result[0, 1:, 0], HUB[arguments], 1e-6)


def test_keras_hub_yarn():
    # With `scaling_factor=4.0, original_max_position_embeddings=64, beta_fast=20.0,
    # beta_slow=2.0, truncate=False`: as above.
    code = keras_hub_arguments()['scaling_factor=s, rope_type="yarn"']
    scaling = eval(code, {"s": 4.0})["scaling"] | {
        "original_max_position_embeddings": 64,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "truncate": False,
    }
    layer = keras_pe.RotaryEmbedding(scaling=scaling)
    expected = [
        [0.6029923, -0.84716791, 0.18268511, 1.04079449,
         1.31993902, -0.11660861, -0.96132314, -1.02981806],
        [1.1335752, 0.36689728, -0.54177953, -1.13349652,
         0.74039191, 0.58496368, 1.07166743, 0.84275073],
    ]  # fmt: skip
    result = array(layer(wave(1, 3, 2, 8), positions=[0, 5, 20]))
    assert_close(result[0, 1:, 0], expected, 1e-6)
