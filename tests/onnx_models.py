"""Small ONNX models, written as text."""

import onnx_ir as ir


def parsed(text):
    """A model from ONNX's own language, checked as far as its parser checks it."""
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": 20]>\n{text}')


def types(model):
    return [node.op_type for node in model.graph]


def node(model, op_type, which=0):
    return [node for node in model.graph if node.op_type == op_type][which]
