"""What tests share: the service started for them, engines, doubles, and how the product is run."""
