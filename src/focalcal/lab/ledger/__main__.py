"""python -m focalcal.lab.ledger docs/claims.md: writes the page anew."""

import sys

from focalcal.core.files import write_atomically
from focalcal.lab.ledger.page import page

if __name__ == "__main__":
    write_atomically(sys.argv[1], page().encode())
