"""Independent references, which import nothing of the product."""
