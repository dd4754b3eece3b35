"""YAML as a recipe needs it: small, flat, each key once, and nothing in it that grows when it is read."""

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError

DEEPEST, MOST = 20, 1000  # levels, and values; a recipe has three levels and some dozen values
_LARGEST = 1 << 63


class RecipeLoader(yaml.SafeLoader):
    """YAML with bounds. Keys are text as it is written (``no`` is not False), and dates are text, too.

    A value that was given a name (``&name``) counts again wherever it is repeated (``*name``), so that a few lines cannot
    stand for millions.
    """

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth, self.count = 0, 0
        self.sizes: dict[int, int] = {}  # of the nodes that are complete

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A value, unless there are too many by now, or it lies too deep."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark, before = event.start_mark, self.count
        self.depth += 1
        if self.depth > DEEPEST:
            raise ConstructorError(None, None, f"it is nested more than {DEEPEST} levels deep", mark)
        node = super().compose_node(parent, index)  # type: ignore[arg-type]
        self.depth -= 1
        if not isinstance(event, yaml.AliasEvent):
            self.count += 1
            self.sizes[id(node)] = self.count - before
        elif id(node) not in self.sizes:
            raise ConstructorError(None, None, f"*{event.anchor} is a part of itself", mark)
        else:
            self.count += self.sizes[id(node)]
        if self.count > MOST:
            raise ConstructorError(None, None, f"it has more than {MOST} values, too many for a recipe", mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A table in which a key stands once: the plain loader would take the last in silence."""
        odd = next((key for key, _ in node.value if not isinstance(key, yaml.ScalarNode)), None)
        if odd is not None:
            raise ConstructorError(None, None, "a key is a list or a table, not a word", odd.start_mark)
        keys = [key.value for key, _ in node.value]
        if len(set(keys)) < len(keys):
            repeated = next(key for key in keys if keys.count(key) > 1)
            raise ConstructorError(None, None, f"the key {repeated!r:.60} stands twice", node.start_mark)
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value; one that its own tag does not fit is an error of YAML's, with its place."""
        try:
            value = super().construct_object(node, deep)  # type: ignore[no-untyped-call]
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ConstructorError(None, None, f"a value cannot be read: {error}", node.start_mark) from error
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise ConstructorError(None, None, "a number is too large", node.start_mark)
        return value
