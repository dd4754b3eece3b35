"""Does every network of the zoo export, and does its file compute what the simulation computes?

    python benchmarks/zoo_exact.py --engines litert,tensorrt
    python benchmarks/zoo_exact.py --networks vgg16_bn --size 32 --small 1      # with the stem and head for small images

Random weights, a few training steps on noise, exported for each engine and held to the simulation by `quaver.verify`.
Printed: the integers that differ, of all that the engine shows, the agreement and the verdict; or why there is no file.
"""

import tempfile
import warnings

import torch

import quaver
from measure import Rows, arguments, report
from quaver.models import build
from quaver.program import Program

warnings.filterwarnings("ignore")
NETWORKS = "mobilenet_v1,mobilenet_v2,mobilenet_v3_small,resnet20,googlenet,squeezenet,yolov3_mobilenet_v1"


def trained(name: str, target: str, size: int, small: bool) -> Program:
    """A network quantized for an engine."""
    torch.manual_seed(0)
    shape = (4, 3, size, size)
    net = build(name, num_classes=10, image_size=size if small else None)
    qat = quaver.quant_aware(net, {"target": target}, example_inputs=(torch.randn(shape),)).train()
    optimizer = torch.optim.SGD(qat.parameters(), lr=1e-3)
    for _ in range(3):
        loss = sum(one.square().mean() for one in torch.utils._pytree.tree_leaves(qat(torch.randn(shape))))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return quaver.convert(qat.eval())


def compared(name: str, target: str, size: int, images: int, small: bool) -> dict[str, object]:
    """A network on an engine."""
    row: dict[str, object] = {"network": name, "engine": target}
    program = trained(name, target, size, small)
    with tempfile.TemporaryDirectory() as folder:
        try:
            file = quaver.export(program, folder, target=target)
        except quaver.QuaverError as error:
            return row | {"integers that differ": "", "agreement": float("nan"), "verdict": str(error)[:100]}
        result = quaver.verify(program, file, [torch.randn(images, 3, size, size)])
    differ, size_of_all = (sum(getattr(layer, key) for layer in result.layers) for key in ("differ", "size"))
    verdict = "passed" if result.passed else result.failures[0][:100]
    return row | {"integers that differ": f"{differ} of {size_of_all}", "agreement": result.agreement, "verdict": verdict}


def main() -> None:
    options = arguments(__doc__, engines="litert,tensorrt", networks=NETWORKS, size=64, images=8, small=0)
    rows: Rows = []
    for name in options.networks.split(","):
        for target in options.engines.split(","):
            rows.append(compared(name, target, options.size, options.images, bool(options.small)))
            print(rows[-1], flush=True)
    report("The zoo on engines", rows, options.json)


if __name__ == "__main__":
    main()
