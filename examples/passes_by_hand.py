"""The five passes one by one, with a look at the program between them."""

import torch

import quaver
from quaver.models import MobileNetV2
from quaver.passes import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)

torch.manual_seed(0)
images = torch.randn(4, 3, 32, 32)
program = quaver.capture(MobileNetV2(10, 0.25, small_images=True), (images,))

program = QuantizationTransformPass(
    quantizable_op_type=["conv2d", "depthwise_conv2d", "mul"],
    weight_quantize_type="channel_wise_abs_max",
    activation_quantize_type="moving_average_abs_max",
    skip_pattern=["skip_quant"],
).apply(program)
program = AddQuantDequantPass(quantizable_op_type=["elementwise_add", "pool2d", "flatten"]).apply(program)
program.train()(images)  # stands for training: batches move weights and ranges

frozen = QuantizationFreezePass().apply(program.eval())
int8 = ConvertToInt8Pass().apply(frozen)
mobile = TransformForMobilePass().apply(frozen)

print(int8)
print("int8 equals trained:", torch.equal(int8(images), program(images)))
print("mobile, largest difference:", (mobile(images) - int8(images)).abs().max().item())
