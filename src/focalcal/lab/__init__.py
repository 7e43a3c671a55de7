"""Training runs that show what the losses do."""
