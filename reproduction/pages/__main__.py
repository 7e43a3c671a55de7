"""Write docs/results anew: `python -m reproduction.pages docs/results`."""

import sys

from reproduction.pages.write import write_pages
from reproduction.result_files import recorded

for path in write_pages(recorded(), sys.argv[1]):
    print(path)
