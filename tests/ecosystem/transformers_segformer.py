"""transformers: SegFormer, by the HF Trainer with a loss of its own."""

import torch
import torch.nn.functional as F
from deploy import deploy
from transformers import SegformerConfig, SegformerForSemanticSegmentation, Trainer, TrainingArguments

import quaver

torch.manual_seed(0)
data = [{"pixel_values": torch.randn(3, 64, 64), "labels": torch.randint(0, 5, (16, 16))} for _ in range(8)]
size = {"depths": [1] * 4, "hidden_sizes": [16, 16, 32, 32], "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 32}
config = SegformerConfig(num_labels=5, **size)


class WithLoss(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **_):
        outputs = model(pixel_values=inputs["pixel_values"])
        loss = F.cross_entropy(outputs["logits"], inputs["labels"])
        return (loss, outputs) if return_outputs else loss


images = torch.stack([row["pixel_values"] for row in data[:4]])
program = quaver.quant_aware(SegformerForSemanticSegmentation(config), example_kwargs={"pixel_values": images})
options = {"max_steps": 2, "per_device_train_batch_size": 4, "remove_unused_columns": False, "use_cpu": True}
arguments = TrainingArguments("unused", report_to=[], save_strategy="no", **options)
WithLoss(program, arguments, train_dataset=data).train()
deploy(program, images)
