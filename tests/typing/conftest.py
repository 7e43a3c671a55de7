"""These programs are read by type checkers; tests/test_packaging.py calls them."""

collect_ignore = ["user.py", "wrong.py"]
