"""The API's protocols: each translates to the same engine calls."""
