"""`python -m tests.files.fuzz npz 17` reads the damaged file of one seed; without one, what stdin asks for."""

from tests.files.fuzz.worker import main

main()
