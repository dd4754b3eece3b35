"""`make ecosystem` runs these scripts, in an environment of their own; pytest looks at none of them."""

collect_ignore_glob = ["*.py"]
