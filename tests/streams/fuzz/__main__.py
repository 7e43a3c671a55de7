"""`python -m tests.streams.fuzz npz 17` reads the damaged file of one seed; without one, what stdin asks for."""

from tests.streams.fuzz.worker import main

main()
