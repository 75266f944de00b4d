"""The TOML of the package that is not a family, a lane, a signature or a conversation."""

from pathlib import Path

FOLDER = Path(__file__).parent
