"""The laboratory of focalcal: recipes that rerun the papers' experiments, and the papers' claims."""
