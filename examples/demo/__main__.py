"""Play the demo with whichever neve is installed: `python examples/demo [LAKE]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.demo.command import play

if __name__ == "__main__":
    play(lake=sys.argv[1] if len(sys.argv) > 1 else None)
