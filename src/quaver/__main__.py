"""``python -m quaver``."""

from quaver.cli.main import main

main()
