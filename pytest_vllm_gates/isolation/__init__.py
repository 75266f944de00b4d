"""The isolation gate: cancelled requests and their neighbours."""
