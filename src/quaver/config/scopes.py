"""How a pattern of a config finds ops: by a part of their scope."""


def contains(scope: str, pattern: str) -> bool:
    """Whether a scope contains a pattern, in which ``^`` and ``$`` stand for the scope's two ends.

    >>> contains("features.12", "2"), contains("features.12", "^2$"), contains("2", "^2$")
    (True, False, True)
    """
    return pattern in f"^{scope}$"
