"""``python -m ilk.cli``."""

from ilk.cli import main

main()
