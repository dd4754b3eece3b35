from quaver.graph.rewriter import Lowering


class ToyLowering(Lowering):
    """Every op as it is written."""

    def lowered(self, node):
        if self.facts[node].kind == "dequantize":
            self.integers[node] = (self.copies[node.args[0]], node.args[1])


lowering = ToyLowering


def exact_nodes(facts):
    return set()
