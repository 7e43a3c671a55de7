"""Damaged prediction files: `of_<format>` makes and damages them, `target` reads and `judge` judges them."""
