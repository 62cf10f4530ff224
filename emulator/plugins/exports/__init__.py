"""A run in the formats of other tools: tables, TensorBoard's event files, a Chrome trace."""
