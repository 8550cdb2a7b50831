"""`python -m supercluster.app.cli`."""

import sys

from supercluster.app.cli.program import main

sys.exit(main())
