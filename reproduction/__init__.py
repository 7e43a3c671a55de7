"""The evidence: recorded results, and what turns them into the tables and figures of the documentation."""
