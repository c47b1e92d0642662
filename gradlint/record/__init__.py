"""Runs the user's own program for a few steps and records what its graph did."""
