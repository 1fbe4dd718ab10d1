"""Tests of imports and exports, the HTML page in a browser among them."""
