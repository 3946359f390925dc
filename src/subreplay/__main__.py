"""``python -m subreplay`` is the command."""

import sys

from subreplay.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
