"""The math of the four papers: pure tensor functions, no state, no files."""
