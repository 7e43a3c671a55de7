"""The programs user.py and wrong.py are read by type checkers, not run."""

collect_ignore = ["user.py", "wrong.py"]
