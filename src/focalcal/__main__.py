"""`python -m focalcal` is the command `focalcal`."""

from focalcal.cli import main

if __name__ == "__main__":
    main()
