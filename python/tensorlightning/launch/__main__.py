"""`python -m tensorlightning.launch` is tlrun."""

import sys

from tensorlightning.launch.main import main

if __name__ == "__main__":
    sys.exit(main())
