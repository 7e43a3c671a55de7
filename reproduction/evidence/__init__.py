"""Evidence: what the small recipes found on real data, kept as result files, and the pages made from them.

`collect` reads the folders of finished runs and writes one result file a recipe; `reproduction.evidence.pages` makes
docs/results from the result files alone.
"""
