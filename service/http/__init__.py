"""Everything HTTP has in common for all protocols: connections, heads, bodies, negotiation and delivery."""
