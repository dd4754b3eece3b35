"""transformers: DETR, as a live model with quaver.QAT; captured, it trains."""

import copy

import torch
from deploy import deploy
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

import quaver

torch.manual_seed(0)
backbone = ResNetConfig(
    embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1] * 4, layer_type="basic", out_features=["stage4"]
)
sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in (("layers", 1), ("ffn_dim", 32))}
heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
config = DetrConfig(backbone=None, backbone_config=backbone, d_model=32, num_queries=5, num_labels=3, **sides, **heads)
detr = DetrForObjectDetection(config)
images = torch.randn(4, 3, 64, 64)


def train(model):
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.05)
    for _ in range(5):
        outputs = model(images)
        optimizer.zero_grad()
        ((outputs["logits"] - 1).square().mean() + outputs["pred_boxes"].square().mean()).backward()
        optimizer.step()
    return model.eval()


train(quaver.quant_aware(copy.deepcopy(detr), example_inputs=(images,)))
quanter = quaver.QAT()
deploy(quanter.convert(train(quanter.quantize(detr)), [images]), images)
