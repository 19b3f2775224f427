"""`python -m neve` is the command `neve`."""

from neve.cli.entry import main

main()
