"""The integer arithmetic that evaluation, frozen and int8 programs share, and that exporters are held to."""
