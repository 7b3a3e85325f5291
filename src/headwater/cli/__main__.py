"""`python -m headwater.cli`, for those who have the package but not the command.

This file alone decides that both are the same program.
"""

import sys

from headwater.cli import main

sys.exit(main())
