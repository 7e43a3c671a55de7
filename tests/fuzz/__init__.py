"""Fuzzing: drawn cases, and the corpus of what they have found. docs/design/fuzzing.md says how it works."""
