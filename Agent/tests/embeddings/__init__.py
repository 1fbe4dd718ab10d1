"""Tests of vectors: what they find, and who computes them."""
