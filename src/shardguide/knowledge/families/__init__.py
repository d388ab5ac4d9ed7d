"""Model families: a configuration in, the exact parameters out."""
