"""The commands `focalcal lab` and `focalcal claims`."""
