"""What servers are deployed with besides plain serving: features on must equal features off."""
