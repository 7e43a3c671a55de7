"""From measured results to words, figures and the HTML report."""
