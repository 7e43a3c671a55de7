"""Damaged files for the readers: `valid` makes good ones, `mutate` damages, `worker` reads and `judge` judges them."""
