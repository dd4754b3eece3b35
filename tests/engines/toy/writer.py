from quaver.onnx.model import checked_proto, shared_model


def write(program, file, origin, options):
    file.write_bytes(checked_proto(shared_model(program, options.shared), origin).SerializeToString())
