"""A file that is damaged, foreign or made to do harm is refused with words; nothing in it is ever executed."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import quaver
from quaver.errors import StorageError
from quaver.program.graph_json import encode_graph

pytestmark = pytest.mark.slow

LAW = settings(max_examples=80, derandomize=True)


@pytest.fixture(scope="module")
def saved(stages, tmp_path_factory) -> Path:
    """A folder with the trained program, to be copied before it is damaged."""
    return quaver.save(stages["trained"], tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    """A folder to damage."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "program"))


def json_file(folder: Path) -> Path:
    return folder / "program.json"


def weights_file(folder: Path) -> Path:
    (weights,) = folder.glob("weights-*.safetensors")
    return weights


WHICH = pytest.mark.parametrize("which", [json_file, weights_file], ids=["json", "weights"])


def damage(saved: Path, scratch: Path, which, change) -> Path:
    """A copy of the saved program in which one file is changed."""
    shutil.rmtree(scratch)
    shutil.copytree(saved, scratch)
    path = which(scratch)
    path.write_bytes(change(path.read_bytes()))
    return scratch


def assert_refused_or_equal(folder: Path, expected: quaver.Program) -> None:
    """Not every flipped bit is damage (1e-05 and 1E-05 are one number), but what loads must be the same program."""
    try:
        restored = quaver.load(folder)
    except StorageError:
        return
    assert [encode_graph(graph) for graph in restored.graphs.values()] == [
        encode_graph(graph) for graph in expected.graphs.values()
    ]
    assert (restored.ops(), restored.placements) == (expected.ops(), expected.placements)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in restored.state_dict().items())


@WHICH
@LAW
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_harmless(saved, scratch, stages, which, position, bit):
    def flip(content: bytes) -> bytes:
        index = int(position * len(content))
        return content[:index] + bytes([content[index] ^ (1 << bit)]) + content[index + 1 :]

    damaged = damage(saved, scratch, which, flip)

    assert_refused_or_equal(damaged, stages["trained"])


@LAW
@given(index=st.integers(0, 150), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_head_of_the_json_is_refused_or_harmless(saved, scratch, stages, index, bit):
    damaged = damage(saved, scratch, json_file, lambda c: c[:index] + bytes([c[index] ^ (1 << bit)]) + c[index + 1 :])

    assert_refused_or_equal(damaged, stages["trained"])


@pytest.mark.parametrize("bit", [0, 3, 6])
def test_every_flipped_bit_of_the_weights_header_is_refused(saved, scratch, bit):
    for index in range(0, 64, 3):
        damaged = damage(
            saved, scratch, weights_file, lambda c, index=index: c[:index] + bytes([c[index] ^ (1 << bit)]) + c[index + 1 :]
        )

        with pytest.raises(StorageError, match="checksum differs"):
            quaver.load(damaged)


@WHICH
@LAW
@given(length=st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_off_is_refused(saved, scratch, which, length):
    damaged = damage(saved, scratch, which, lambda content: content[: int(length * (len(content) - 3))])

    with pytest.raises(StorageError, match=r"damaged|cut off"):
        quaver.load(damaged)


@WHICH
@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"\x80\x04pickle", b"PK\x03\x04" + b"\0" * 100], ids=range(4))
def test_other_content_is_refused(saved, scratch, which, content):
    damaged = damage(saved, scratch, which, lambda _: content)

    with pytest.raises(StorageError):
        quaver.load(damaged)


# what is no program of ours


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "3",
        "null",
        '"quaver.program"',
        '{"format": "onnx", "version": 1}',
        '{"model": {"layers": [1, 2]}}',
    ],
)
def test_a_foreign_json_file_is_refused(tmp_path, text):
    (tmp_path / "program.json").write_text(text)

    with pytest.raises(StorageError, match=r"program\.json: this is not a program that quaver\.save wrote"):
        quaver.load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 5000,
        "NaN",
        '"\\ud800"',
        '{"a": NaN}',
        '{"a": 1e999}',
        "[]",
        "3",
        "null",
        "{}",
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_json_that_is_hard_to_read_is_refused(tmp_path, text, wrapped):
    whole = f'{{"format":"quaver.program","version":1,"sha256":"{sealed(text)}","program":{text}}}'
    (tmp_path / "program.json").write_text(whole if wrapped else text)

    with pytest.raises(StorageError):
        quaver.load(tmp_path)


def sealed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"program\.json: there is no such file. quaver\.save writes one"):
        quaver.load(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"nowhere/program\.json: there is no such file"):
        quaver.load(tmp_path / "nowhere")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("{}")

    with pytest.raises(StorageError, match=r"file: cannot be read: this is a file, and a program is a folder"):
        quaver.load(tmp_path / "file")


def test_a_folder_in_place_of_the_json_is_refused(tmp_path):
    (tmp_path / "program.json").mkdir()

    with pytest.raises(StorageError, match="cannot be read"):
        quaver.load(tmp_path)


def test_missing_weights_are_refused(folder):
    weights_file(folder).unlink()

    with pytest.raises(StorageError, match=r"its weights file is missing.*Save the program again"):
        quaver.load(folder)


def test_weights_of_another_program_are_refused(folder, stages, tmp_path):
    other = quaver.save(stages["float"], tmp_path / "other")
    weights_file(folder).write_bytes(weights_file(other).read_bytes())

    with pytest.raises(StorageError, match="checksum differs"):
        quaver.load(folder)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused_by_its_number(folder, version):
    whole = json.loads(json_file(folder).read_text())
    json_file(folder).write_text(json.dumps(whole | {"version": version}))

    with pytest.raises(StorageError, match=f"version {version!r} of the format; this Quaver reads 1"):
        quaver.load(folder)


# crafted: the checksum is right, the content is not


def craft(folder: Path, change) -> None:
    """Change the program and seal it again, as an attacker would."""
    whole = json.loads(json_file(folder).read_text())
    change(whole["program"])
    whole["sha256"] = sealed(json.dumps(whole["program"], separators=(",", ":")))
    json_file(folder).write_text(json.dumps(whole))


def node(name: str, op: str, target: str, *args, **kwargs) -> dict:
    return {
        "name": name,
        "op": op,
        "target": target,
        "args": {"tuple": list(args)},
        "kwargs": {"dict": [list(pair) for pair in kwargs.items()]},
        "meta": {},
    }


def insert(*nodes: dict):
    def change(body: dict) -> None:
        for graph in body["graphs"].values():
            graph[-1:-1] = nodes

    return change


def test_a_program_that_is_sealed_again_unchanged_loads(folder, stages, images):
    craft(folder, lambda body: None)

    assert torch.equal(quaver.load(folder).clone(for_test=True)(images), stages["view"](images))


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "posix.system.default",
        "builtins.eval.default",
        "operator.attrgetter",
        "operator.call",
        "prim.Print.default",
        "aten.no_such_op.default",
        "aten.conv2d.no_such_overload",
        "aten.conv2d",
        "aten.conv2d.default.__call__",
        "aten.__class__.mro",
        "aten.__setattr__.__call__",
        "aten.__init__.__globals__",
        "aten.conv2d.__class__",
        "aten.conv2d.__getattr__",
        "aten.from_file.default",
        "quantized_decomposed.__dict__.get",
        "",
        "...",
    ],
)
def test_a_target_that_is_no_tensor_op_is_refused(folder, target):
    craft(folder, insert(node("evil", "call_function", target, "touch owned")))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize(
    "target",
    [
        "aten.max_pool2d_with_indices_backward.default",
        "aten.native_group_norm.default",
        "aten.native_batch_norm.default",
        "aten._native_batch_norm_legit.default",
        "aten._embedding_bag.default",
        "aten.fractional_max_pool2d.default",
        "aten.as_strided.default",
        "aten.as_strided_.default",
        "aten.set_.source_Tensor",
        "aten.resize_.default",
        "aten.lstm.data",
        "aten.linalg_lu_solve.default",
        "aten._reshape_alias.default",
        "aten._sparse_coo_tensor_unsafe.default",
        "aten._make_per_tensor_quantized_tensor.default",
        "aten.tanh_backward.default",
        "quantized_decomposed.choose_qparams.tensor",
        "prims.as_strided.default",
    ],
)
def test_an_op_that_trusts_what_it_is_given_is_refused(folder, target):
    craft(folder, insert(node("evil", "call_function", target, {"node": "tensors_0"})))

    with pytest.raises(StorageError, match="which a program in a file cannot call"):
        quaver.load(folder)


def test_indices_that_lead_outside_are_refused_where_they_would_be_followed(tmp_path):
    """What the attack was: the backward of a max pool writes wherever its indices say."""
    program = quaver.capture(ReadsIndices(), (torch.zeros(1, 1, 2, 2),))
    for graph in program.graphs.values():
        picked = next(one for one in graph.nodes if one.op == "call_function")
        picked.target = torch.ops.aten.max_pool2d_with_indices_backward.default

    with pytest.raises(StorageError, match=r"max_pool2d_with_indices_backward\.default of node .* has no form in a file"):
        quaver.save(program, tmp_path)


class ReadsIndices(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("indices", torch.tensor([2**40]))

    def forward(self, x):
        return torch.index_select(x.flatten(), 0, self.indices)


def test_an_index_outside_its_tensor_is_an_error_of_torch(tmp_path):
    quaver.save(quaver.capture(ReadsIndices(), (torch.zeros(1, 1, 2, 2),)), tmp_path)

    with pytest.raises((RuntimeError, IndexError), match="index"):
        quaver.load(tmp_path)(torch.zeros(1, 1, 2, 2))


HUGE = [
    node("huge", "call_function", "aten.zeros.default", [1 << 40]),
    node("huge", "call_function", "aten.zeros.default", [1 << 32, 1 << 33]),
    node("huge", "call_function", "aten.full.default", [1 << 34], 1.0, device={"device": "cpu"}),
    node("huge", "call_function", "aten.arange.default", 1e12),
    node("huge", "call_function", "aten.constant_pad_nd.default", {"node": "tensors_0"}, [1 << 38, 0]),
    node("huge", "call_function", "aten.expand.default", {"node": "tensors_0"}, [1 << 38, -1, -1, -1, -1]),
    node("huge", "call_function", "operator.pow", 9, 1 << 40),
    node("huge", "call_function", "operator.mul", [0], 1 << 40),
    node("huge", "call_function", "operator.mul", "x", 1 << 40),
    node("huge", "call_function", "operator.mul", 1 << 63, 1 << 63),
]


@pytest.mark.parametrize("one", HUGE, ids=lambda one: f"{one['target']}{one['args']['tuple']}")
def test_what_would_take_all_memory_is_refused_before_it_does(folder, one):
    craft(folder, insert(one))

    with pytest.raises(StorageError, match=r"too large|bits|power|text or a list|numel|storage size|overflow"):
        quaver.load(folder)


@pytest.mark.parametrize(
    "one",
    [
        node("evil", "call_function", "aten.conv2d.default", {"node": "tensors_0"}, {"node": "tensors_0"}, "words"),
        node("evil", "call_function", "aten.conv2d.default", {"node": "tensors_0"}),
        node("evil", "call_function", "aten.relu.default", 3),
        node("evil", "call_function", "aten.relu.default", {"node": "tensors_0"}, more=3),
        node("evil", "call_function", "aten.flatten.using_ints", {"node": "tensors_0"}, 7, 9),
        node("evil", "call_function", "aten.view.default", {"node": "tensors_0"}, [7, 7]),
        node("evil", "call_function", "operator.getitem", {"node": "tensors_0"}, "words"),
    ],
    ids=lambda one: f"{one['target']}{one['args']['tuple']}",
)
def test_arguments_that_do_not_fit_their_op_are_refused(folder, one):
    craft(folder, insert(one))

    with pytest.raises(StorageError, match="the program cannot be read"):
        quaver.load(folder)


@pytest.mark.parametrize(
    "path",
    [
        'x"),print("owned"),("',
        "x'+str(1)+'",
        "x\\",
        "x\ny",
        "x y",
        "stem.weight;print(1)",
        "stem.weight[0]",
        "stem.weight+1",
        "",
        "stem..weight",
        "no.such.weight",
        "__class__",
        "_run.__builtins__",
        "forward.__globals__",
        "stem.weight.data",
    ],
)
@pytest.mark.parametrize("kind", ["get_attr", "call_module"])
def test_a_path_that_leads_to_no_tensor_or_quantizer_is_refused(folder, kind, path):
    craft(folder, insert(node("evil", kind, path)))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize("kind", ["call_method", "call_python", "root", None, 3])
def test_another_kind_of_node_is_refused(folder, kind):
    craft(folder, insert(node("evil", kind, "__class__")))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize("name", ["class", "lambda", "x=print(1)", "x, y", "*x", "1x", "", "é'"])
def test_a_keyword_that_is_none_is_refused(folder, name):
    craft(folder, insert(node("evil", "call_function", "aten.relu.default", **{name: 1})))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize("name", ["class", "lambda", "x=print(1)", "*x", "self", "x: print(1)", ""])
def test_an_input_that_has_no_name_of_a_variable_is_refused(folder, name):
    def rename(body: dict) -> None:
        for graph in body["graphs"].values():
            next(entry for entry in graph if entry["op"] == "placeholder")["target"] = name

    craft(folder, rename)

    with pytest.raises(StorageError):
        quaver.load(folder)


ESCAPE = [
    node("builtins", "get_attr", "_run.__builtins__"),
    node("execute", "call_function", "operator.getitem", {"node": "builtins"}, "exec"),
    node("keep", "call_module", "__setattr__", "stolen", {"node": "execute"}),
    node("run", "call_module", "stolen", "open('owned', 'w').close()"),
]


def test_a_graph_that_reaches_for_python_is_refused_and_nothing_runs(folder, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    craft(folder, insert(*ESCAPE))

    with pytest.raises(StorageError):
        quaver.load(folder).clone(for_test=True)(images)

    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "value",
    [
        {"torch": "load"},
        {"torch": "nn"},
        {"torch": "no_such"},
        {"device": "nowhere"},
        {"node": "no_such_node"},
        {"pickle": "gASVKAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOU"},
        {"float": "words"},
        {"slice": [1, 2, 3, 4]},
        {},
        {"tuple": 3},
        {"dict": [[1]]},
        {"dict": [[[], 1]]},
        {"ordered": [[1]]},
        {"namedtuple": ["Pair", ["class"], [1]]},
        {"namedtuple": ["Pair'", ["a"], [1]]},
        {"namedtuple": ["Pair", ["a", "b"], [1]]},
        {"namedtuple": []},
    ],
    ids=str,
)
def test_a_value_of_no_known_kind_is_refused(folder, value):
    craft(folder, insert(node("evil", "call_function", "aten.relu.default", value)))

    with pytest.raises(StorageError):
        quaver.load(folder)


KEYS = ["stage", "for_test", "training", "history", "graphs", "inputs", "call", "results", "quantizers", "placements"]
KEYS += ["records", "tensors", "weights", "weights_sha256"]


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_refused(folder, key):
    craft(folder, lambda body: body.pop(key))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("for_test",)])  # null is as good as false
def test_null_in_place_of_a_value_is_refused(folder, key):
    craft(folder, lambda body: body.update({key: None}))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("history", "records", "for_test")])  # may be
def test_an_empty_list_in_place_of_a_value_is_refused(folder, key):
    craft(folder, lambda body: body.update({key: []}))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize("name", ["..", "/etc/passwd", "a\0b", "../../../../../../etc/passwd", "", "x" * 5000])
def test_weights_elsewhere_are_refused(folder, name):
    craft(folder, lambda body: body.update(weights=name))

    with pytest.raises(StorageError):
        quaver.load(folder)


@pytest.mark.parametrize("kind", ["custom", "no_such_rule", None, "MovingAverageAbsMax"])
def test_a_quantizer_of_another_kind_is_refused(folder, kind):
    def change(body: dict) -> None:
        next(iter(body["quantizers"].values()))["options"]["kind"] = kind

    craft(folder, change)

    with pytest.raises(StorageError):
        quaver.load(folder)


def test_a_tensor_that_is_not_in_the_weights_is_refused(folder):
    craft(folder, lambda body: body["tensors"].append({"name": "more", "kind": "parameter", "trains": True}))

    with pytest.raises(StorageError):
        quaver.load(folder)


def test_a_program_for_an_engine_that_is_not_here_is_refused_by_its_name(folder):
    craft(folder, lambda body: body["placements"].update(target="toaster"))

    with pytest.raises(StorageError, match="it was made for the engine 'toaster', which is not known here"):
        quaver.load(folder)


def test_a_mobile_program_of_before_computes_as_the_mobile_engine(stages, images, tmp_path):
    quaver.save(stages["mobile"], tmp_path)
    craft(tmp_path, lambda body: body["placements"].update(target="openvino"))

    assert torch.equal(quaver.load(tmp_path)(images), stages["mobile"](images))
