"""``python -m llmsim`` is the command ``llmsim``."""

import sys

from llmsim.cli import main

sys.exit(main())
