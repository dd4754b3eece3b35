import subprocess
import sys
import types

import pytest
import torch
from torch import nn

from quaver import models
from quaver.errors import ConfigError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("MobileNetV1", "mobilenet_v1"),
        ("mobilenet_v1", "mobilenet_v1"),
        ("MobileNetV3_large", "mobilenet_v3_large"),
        ("mobilenet-v3-small", "mobilenet_v3_small"),
        ("ResNet50", "resnet50"),
        ("VGG16_BN", "vgg16_bn"),
        ("GoogLeNet", "googlenet"),
        ("SqueezeNet", "squeezenet"),
        ("MobileNet", "mobilenet_v1"),
        ("MobileNetV3_large_x1_0", "mobilenet_v3_large"),
        ("MobileNetV3_small_x1_0", "mobilenet_v3_small"),
    ],
)
def test_both_spellings_of_a_name_build_the_same_model(spelling, name):
    with torch.device("meta"):
        built, expected = models.build(spelling, num_classes=5), getattr(models, name)(num_classes=5)

    assert str(built) == str(expected)


@pytest.mark.parametrize(
    ("spelling", "name", "scale"),
    [
        ("MobileNetV1_x0_25", "mobilenet_v1", 0.25),
        ("MobileNetV2_x0_5", "mobilenet_v2", 0.5),
        ("MobileNet_x1_0", "mobilenet_v1", 1),
    ],
)
def test_a_width_may_stand_behind_the_name_as_the_reference_writes_it(spelling, name, scale):
    with torch.device("meta"):
        built, expected = models.build(spelling), getattr(models, name)(scale=scale)

    assert str(built) == str(expected)
    with pytest.raises(ConfigError, match=f"model '{spelling}': its name says scale={scale:g}, and the options scale=0.75"):
        models.build(spelling, scale=0.75)


def test_a_width_is_refused_where_the_architecture_has_none():
    with pytest.raises(ConfigError, match="model 'ResNet50_x0_5': has no option 'scale'"):
        models.build("ResNet50_x0_5")


@pytest.mark.parametrize(("size", "stride"), [(32, (1, 1)), (64, (1, 1)), (65, (2, 2)), (None, (2, 2))])
def test_small_images_choose_the_small_stem(size, stride):
    assert models.build("mobilenet_v1", scale=0.25, image_size=size).stem[0].stride == stride


def test_what_is_said_about_the_stem_goes_before_the_size():
    assert models.build("mobilenet_v1", scale=0.25, image_size=32, small_images=False).stem[0].stride == (2, 2)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'mobilnet_v1': .* Did you mean 'mobilenet_v1'\? .*squeezenet"):
        models.build("mobilnet_v1")


def test_all_unknown_options_are_refused_at_once():
    with pytest.raises(ConfigError, match=r"no option 'scal'. Did you mean 'scale'\?\n.*'width'.\nIts options: num_classes"):
        models.build("mobilenet_v1", scal=1, width=2)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\n"
        "def plain(): return nn.Linear(3, 4)\n"
        "def told(num_classes, small_images, depth=1): return nn.Sequential(*[nn.Linear(3, num_classes)] * depth)\n"
        "def wrong(): return 7\n"
        "class Nets:\n"
        "    inner = staticmethod(plain)\n"
    )
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_nets", None)


@pytest.mark.usefixtures("own_module")
def test_a_function_of_the_users_is_called_with_what_it_takes():
    assert models.build("own_nets:plain", num_classes=9, image_size=32).out_features == 4
    assert len(models.build("own_nets:told", num_classes=9, image_size=32, depth=2)) == 2
    assert models.build("own_nets:Nets.inner").out_features == 4


@pytest.mark.usefixtures("own_module")
def test_finding_a_module_in_the_current_folder_leaves_the_path_as_it_was():
    before = list(sys.path)

    models.build("own_nets:plain")

    assert sys.path == before


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("own_nets:nothing", "own_nets has no function 'nothing'"),
        ("own_nets:wrong", "gave a int, not a torch.nn.Module"),
        ("nowhere.at_all:net", "nowhere.at_all cannot be imported"),
        ("models/mine.py:net", "names a file. Name the module instead: models.mine:net."),
        ("own_nets:", "takes the form package.module:function"),
    ],
)
def test_what_is_no_model_function_is_refused(name, fact):
    with pytest.raises(ConfigError, match=fact):
        models.build(name)


def fake_timm(monkeypatch):
    def create_model(name, **options):
        if name != "tiny":
            raise RuntimeError(f"Unknown model ({name})")
        return nn.Linear(2, options["num_classes"])

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model, list_models=lambda: ["tiny"]))


def fake_torchvision(monkeypatch):
    def googlenet(**options):
        given = {"num_classes": 1000, "aux_logits": True, "init_weights": None} | options
        return nn.Linear(2, given["num_classes"] + given["aux_logits"])

    def resnet18(*, num_classes=1000):
        return nn.Linear(2, num_classes)

    def detector(*, weights=None, num_classes=91, weights_backbone="theirs"):
        if weights_backbone is not None:
            raise OSError("downloading is not for tests")
        return nn.Linear(2, num_classes)

    known = {"googlenet": googlenet, "resnet18": resnet18, "detector": detector}
    found = types.SimpleNamespace(
        get_model=lambda name, **options: known[name](**options), get_model_builder=known.get, list_models=lambda: [*known]
    )
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=found))
    monkeypatch.setitem(sys.modules, "torchvision.models", found)


@pytest.mark.parametrize("name", ["timm/tiny", "timm:tiny"])
def test_a_model_of_timm_is_built_by_timm(monkeypatch, name):
    fake_timm(monkeypatch)

    assert models.build(name, num_classes=6, image_size=32).out_features == 6


def test_what_timm_refuses_is_told_in_its_words(monkeypatch):
    fake_timm(monkeypatch)

    with pytest.raises(ConfigError, match=r"'timm/huge': timm cannot build it: Unknown model \(huge\)"):
        models.build("timm/huge")


def test_a_model_of_torchvision_comes_without_auxiliary_logits_unless_they_are_asked_for(monkeypatch):
    fake_torchvision(monkeypatch)

    assert models.build("torchvision/googlenet", num_classes=6).out_features == 6
    assert models.build("torchvision/googlenet", num_classes=6, aux_logits=True).out_features == 7
    assert models.build("torchvision/resnet18", num_classes=6).out_features == 6


def test_a_model_of_torchvision_downloads_nothing_unless_it_is_told_to(monkeypatch):
    fake_torchvision(monkeypatch)

    assert models.build("torchvision/detector", num_classes=6).out_features == 6
    with pytest.raises(
        ConfigError, match=r"'torchvision/detector': torchvision cannot build it: downloading is not for tests\.$"
    ):
        models.build("torchvision/detector", weights_backbone="DEFAULT")


def test_a_name_that_is_almost_one_of_a_librarys_is_told_the_nearest(monkeypatch):
    fake_timm(monkeypatch)

    with pytest.raises(ConfigError, match=r"Unknown model \(tinny\). Did you mean 'tiny'\?"):
        models.build("timm/tinny")


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_library_that_is_not_installed_is_named(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.models", None)

    with pytest.raises(ConfigError, match=rf"'{library}/resnet18': {library} cannot be imported: .* use a model of the zoo"):
        models.build(f"{library}/resnet18")


@pytest.mark.slow
def test_the_zoo_needs_none_of_the_libraries():
    code = "import sys, quaver.models; print([m for m in ('timm', 'torchvision') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


THEIRS = {
    "broken": (
        "import nothing_like_it",
        "ModuleNotFoundError: No module named 'nothing_like_it'",
        "1",
        "import nothing_like_it",
    ),
    "unfinished": ("def net(:", "SyntaxError: invalid syntax", "1", "def net(:"),
    "failing": ("def net():\n    return {}['small']", "KeyError: 'small'", "2, in net", "return {}['small']"),
    "inside": (
        "import torch\n\n\ndef net():\n    return torch.nn.Conv2d(3, 8, 3, groups=2)",
        "ValueError: in_channels must be divisible by groups",
        "5, in net",
        "return torch.nn.Conv2d(3, 8, 3, groups=2)",
    ),
}


@pytest.mark.parametrize("module", THEIRS)
def test_an_error_in_a_users_own_code_is_three_lines_what_where_and_the_line(module, tmp_path, monkeypatch):
    source, what, place, line = THEIRS[module]
    (tmp_path / f"{module}_net.py").write_text(source + "\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError) as caught:
        models.build(f"{module}_net:net")

    assert str(caught.value).splitlines() == [
        f"model '{module}_net:net': {what}",
        f"  {tmp_path / f'{module}_net.py'}:{place}",
        f"    {line}",
    ]
