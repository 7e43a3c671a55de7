"""python -m reproduction.ledger docs/claims.md: writes the page anew."""

import sys

from focalcal.atomic import write_atomically
from reproduction.ledger.page import page

if __name__ == "__main__":
    write_atomically(sys.argv[1], page().encode())
