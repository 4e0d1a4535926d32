"""Our own protocol: `POST /encode` and `POST /attention`."""
