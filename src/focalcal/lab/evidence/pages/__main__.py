"""Write docs/results anew: `python -m focalcal.lab.evidence.pages docs/results`."""

import sys

from focalcal.lab.evidence.files import recorded
from focalcal.lab.evidence.pages.write import write_pages

for path in write_pages(recorded(), sys.argv[1]):
    print(path)
