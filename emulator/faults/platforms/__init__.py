"""How platforms take a machine away, and what they tell it before: data and values."""
