"""Write docs/results anew: `python -m reproduction.evidence.pages docs/results`."""

import sys

from reproduction.evidence.files import recorded
from reproduction.evidence.pages.write import write_pages

for path in write_pages(recorded(), sys.argv[1]):
    print(path)
