"""`python -m coterie` is `coterie`: what torchrun and others start, who know modules and no commands."""

import sys

from coterie.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
