"""Serving features of deployments: answers with a feature on must equal answers with it off."""
