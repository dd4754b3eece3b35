from quaver.graph.nodes import is_quantize, note_integers
from quaver.graph.rewriter import Lowering


class ToyLowering(Lowering):
    """Every op as it is written."""

    def run(self, graph):
        for node in graph.nodes:
            self.copies[node] = self.copy(node)
            if is_quantize(node):
                note_integers(self.copies[node], node)
        return self.result


lowering = ToyLowering


def computes_exactly(node):
    return False
