"""What the core's tests share."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The project's folder."""
