collect_ignore = ["guided.py"]  # it needs atheris, which only `make fuzz-guided` installs
