"""transformers: DeiT, Swin and ConvNeXt, small ones, each with its own loss."""

import torch
from deploy import deploy
from transformers import (
    ConvNextConfig,
    ConvNextForImageClassification,
    DeiTConfig,
    DeiTForImageClassification,
    SwinConfig,
    SwinForImageClassification,
)

import quaver

torch.manual_seed(0)
images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 5, (4,))
shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
deit = DeiTConfig(**shape, image_size=32, patch_size=8, num_labels=5)
swin = SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4, num_labels=5)
convnext = ConvNextConfig(hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], num_labels=5)
for model in (
    DeiTForImageClassification(deit),
    SwinForImageClassification(swin),
    ConvNextForImageClassification(convnext),
):
    program = quaver.quant_aware(model, example_kwargs={"pixel_values": images, "labels": labels})
    optimizer = torch.optim.SGD(program.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        program(pixel_values=images, labels=labels).loss.backward()
        optimizer.step()
    assert deploy(program, (images, labels))
