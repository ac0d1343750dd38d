"""`python -m mindnano`: the command line without its script."""

import sys

from mindnano.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
