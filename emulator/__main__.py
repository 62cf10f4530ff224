"""`python -m emulator` is `emulate`."""

from emulator.cli import main

main()
