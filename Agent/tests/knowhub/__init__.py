"""Tests of KnowHub, most of them over HTTP."""
