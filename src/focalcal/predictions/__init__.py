"""Predictions as callers bring them: arrays, batches and streams, checked and read in chunks of rows."""
