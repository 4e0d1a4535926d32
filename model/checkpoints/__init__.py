"""What a folder says of its model: where it comes from, its layout, its weights, how to convert it."""
