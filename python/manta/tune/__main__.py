"""`python -m manta.tune`: the command `manta tune`."""
import sys

from ._command import main

sys.exit(main())
