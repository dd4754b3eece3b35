"""A program as an ONNX model, the form that several engines read."""
