"""HTTP whatever is asked: connections, heads, bodies, negotiation, and answers on their way."""
