"""transformers: ViT with its loss, by the HF Trainer."""

import torch
from deploy import deploy
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import quaver

torch.manual_seed(0)
data = [{"pixel_values": torch.randn(3, 32, 32), "labels": torch.tensor(index % 10)} for index in range(8)]
batch = {key: torch.stack([row[key] for row in data[:4]]) for key in data[0]}
size = {"image_size": 32, "patch_size": 8, "hidden_size": 64, "intermediate_size": 128}
config = ViTConfig(num_hidden_layers=2, num_attention_heads=4, num_labels=10, **size)
program = quaver.quant_aware(ViTForImageClassification(config), example_kwargs=batch)
options = {"max_steps": 2, "per_device_train_batch_size": 4, "remove_unused_columns": False, "use_cpu": True}
arguments = TrainingArguments("unused", report_to=[], save_strategy="no", **options)
Trainer(program, arguments, train_dataset=data).train()
deploy(program, tuple(batch.values()))
